"""Who shares a credential with its limits, who has one of his own, and what a tenant's fields fill."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from ingest.accesses import Accesses
from schemas.definitions.load import load_folder
from schemas.definitions.source import SourceSpec, Tenant
from tests.unit.ingest.polling import EVENTS, page, run, stamp, write

TENANTS = "    tenants: {list: [{id: a, key: abcdef, host: x}, {id: b, key: ghijkl, host: y}]}\n"
SHARED = EVENTS.replace("URL", "http://127.0.0.1:9").replace("    limits:", TENANTS + "    limits:")


def own(auth: str) -> str:
    return SHARED.replace("    limits:", f"    auth: {{{auth}}}\n    limits:")


def source(folder: Path, text: str) -> SourceSpec:
    write(folder, text)
    return load_folder(folder).check().sources["shop"]


def tenants_of(spec: SourceSpec) -> tuple[Tenant, ...]:
    assert spec.tenants is not None
    return spec.tenants.listed


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        (SHARED, True),
        (own("bearer: {env: X}"), True),
        (SHARED.replace("limits: {", "limits: {per: tenant, "), False),
        (SHARED.replace("http://127.0.0.1:9/v1", "'http://{tenant.host}.example'"), False),
        (own("bearer: '{tenant.key}'"), False),
        (own("basic: {user: '{tenant.key}', password: {env: X}}"), False),
        (own("basic: {user: me, password: '{tenant.key}'}"), False),
        (own("api_key: {param: k, value: '{tenant.key}'}"), False),
        (own("session: {post: '/{tenant.key}/login', token: body.t}"), False),
        (own("session: {post: /login, token: body.t, body: {k: ['{tenant.key}']}}"), False),
        (own("oauth2: {token_url: /t, client_id: '{tenant.key}', client_secret: {env: X}}"), False),
        (own("oauth2: {token_url: /t, client_id: a, client_secret: '{tenant.key}'}"), False),
        (
            own("oauth2: {token_url: /t, client_id: a, client_secret: {env: X},"
                " params: {who: '{tenant.key}'}}"),
            False,
        ),
    ],
)  # fmt: skip
def test_limits_are_shared_unless_the_credential_is_the_tenants_own(
    tmp_path: Path, text: str, shared: bool
) -> None:
    spec = source(tmp_path, text)
    accesses = Accesses(tmp_path, lambda: 0)
    first, second = (accesses.of(spec, tenant) for tenant in tenants_of(spec))
    assert (first is second) is shared
    assert accesses.of(spec, tenants_of(spec)[0]) is first


def test_a_tenant_whose_fields_changed_is_asked_anew_and_one_that_left_is_forgotten(
    tmp_path: Path,
) -> None:
    spec = source(tmp_path, own("bearer: '{tenant.key}'"))
    first, second = tenants_of(spec)

    def shown(tenant: str) -> float | None:
        labels = {"source": "shop", "tenant": tenant}
        return REGISTRY.get_sample_value("gapless_ingest_concurrency_limit", labels)

    async def main() -> None:
        accesses = Accesses(tmp_path, lambda: 0)
        before = accesses.of(spec, first)
        accesses.of(spec, second)
        changed = Tenant("a", {**first.fields, "key": "mnopqr"})
        after = accesses.of(spec, changed)
        assert after is not before
        assert (await after.credential.proof()).headers == {"Authorization": "Bearer mnopqr"}
        assert (shown("a"), shown("b")) == (4, 4)
        await accesses.keep("shop", {"a"})
        assert (shown("a"), shown("b")) == (4, None)
        assert accesses.of(spec, changed) is after
        await accesses.close()

    asyncio.run(main())


def test_fields_of_a_tenant_fill_host_path_params_headers_and_auth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAPLESS_TEST_KEY", "the key of a")
    seen: list[web.Request] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        return page([{"id": 1, "t": stamp(60)}])

    text = (
        EVENTS.replace("URL", "'http://{tenant.host}:PORT'", 1)
        .replace("PORT'/v1", "PORT/v1'")
        .replace("get: /events", 'get: "/{tenant.path:path}/events"')
        .replace(
            "params: {", 'headers: {X-Lang: "{tenant.lang}"}\n        params: {l: "{tenant.lang}", '
        )
        .replace(
            "    limits:",
            "    tenants: {list: [{id: a, host: 127.0.0.1, path: x/y, lang: de,\n"
            "                      key: {env: GAPLESS_TEST_KEY}}]}\n"
            "    auth: {basic: {user: '{tenant.lang}', password: '{tenant.key}'}}\n"
            "    limits:",
        )
    )
    polled = run(tmp_path, text, handler)
    assert (polled.blocked, len(polled.records)) == ("", 1)
    [request] = seen
    assert (request.path, request.query["l"]) == ("/v1/x/y/events", "de")
    assert request.headers["X-Lang"] == "de"
    assert request.headers["Authorization"] == "Basic ZGU6dGhlIGtleSBvZiBh"
    assert polled.poller.partition_id == "shop/events/a"
