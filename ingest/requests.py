"""From a plan's question to an HTTP request: every placeholder filled, secrets apart. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ingest.plans.opaque import give
from ingest.plans.protocol import Ask
from schemas.definitions.paths import MISSING
from schemas.definitions.secrets import Reference
from schemas.definitions.source import CursorSpec, IntervalSpec, PlanSpec, Tenant
from schemas.definitions.templates import render_path, render_value, text_of
from schemas.definitions.times import print_time

Resolve = Callable[[Reference], str]
_TIMES = ("start", "end", "after.time", "until", "run.start", "run.end")
_OPAQUE = ("token", "cursor", "last.id", "after.time", "after.id")


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask. `path` is appended to the base URL, `link` is asked as it is."""

    method: str
    path: str
    params: list[tuple[str, str]]
    headers: dict[str, str]
    body: object | None
    link: str | None = None


def placeholder_values(
    ask: Ask, spec: PlanSpec, tenant: Tenant | None, resolve: Resolve
) -> dict[str, object]:
    """The value of every placeholder; times are written as the provider writes them.

    Raises ValueError for a time that the provider's format cannot write.
    """
    values: dict[str, object] = tenant_values(tenant, resolve)
    for name, value in ask.values.items():
        if name in _TIMES and isinstance(spec, IntervalSpec) and isinstance(value, int):
            values[name] = print_time(value, spec.format, spec.zone)
        elif name in _OPAQUE and isinstance(value, str):
            values[name] = give(value)
        else:
            values[name] = value
    return values


def tenant_values(tenant: Tenant | None, resolve: Resolve) -> dict[str, object]:
    """What `{tenant.x}` stands for."""
    if tenant is None:
        return {}
    return {
        f"tenant.{name}": resolve(value) if isinstance(value, Reference) else value
        for name, value in tenant.fields.items()
    }


def request_for(
    ask: Ask, spec: PlanSpec, values: Mapping[str, object], resolve: Resolve
) -> Request:
    """Raises RenderError for a value that must not stand where the template puts it."""
    if ask.probe:
        assert isinstance(spec, CursorSpec)
        assert spec.identity is not None
        headers = _headers(spec, values, resolve)
        return Request("GET", render_path(spec.identity.get, values), [], headers, None)
    request = spec.request
    body = None if request.body is None else render_value(request.body, values, resolve)
    return Request(
        method=request.method,
        path="" if ask.link else render_path(request.path, values),
        params=[] if ask.link else _params(request.params, values, resolve),
        headers=_headers(spec, values, resolve),
        body=None if body is MISSING else body,
        link=ask.link,
    )


def says(spec: PlanSpec, placeholder: str) -> bool:
    """Whether the request of a plan uses a placeholder anywhere."""
    return placeholder in spec.request.names


def _params(
    params: Mapping[str, object], values: Mapping[str, object], resolve: Resolve
) -> list[tuple[str, str]]:
    """In the order of the definition; a list repeats its key, a value that is missing is left out."""
    found: list[tuple[str, str]] = []
    for name, value in params.items():
        rendered = render_value(value, values, resolve)  # type: ignore[arg-type]
        if rendered is MISSING or rendered is None:
            continue
        several = rendered if isinstance(rendered, list) else [rendered]
        found += [(name, text_of(one)) for one in several if one is not None]
    return found


def _headers(spec: PlanSpec, values: Mapping[str, object], resolve: Resolve) -> dict[str, str]:
    found = {}
    for name, value in spec.request.headers.items():
        rendered = render_value(value, values, resolve)
        if rendered is not MISSING and rendered is not None:
            found[name] = text_of(rendered)
    return found
