"""Placeholders that can never have a value where they stand: the request would silently lack them."""

from collections.abc import Mapping
from typing import Final

from schemas.definitions.known_keys import REQUEST_KEYS
from schemas.definitions.read_values import SENT_KEYS, templates_below
from schemas.definitions.reader import Reader
from schemas.definitions.source import SourceSpec
from schemas.definitions.tree import MapNode
from schemas.records import BY_TIME

_OF_PLAN: Final = {
    "start": "interval", "end": "interval", "cursor": "cursor",
    "after.time": "keyset", "after.id": "keyset", "until": "keyset",
}  # fmt: skip


def check_placeholders(
    reader: Reader, stream: MapNode, plans: Mapping[str, MapNode], what: str
) -> None:
    """What a plan sends it must have; what a stream sends at least one of its plans must have."""
    for name, plan in plans.items():
        _check(reader, plan, {name}, f"the plan {name} of {what}")
    if plans:
        _check(reader, stream, set(plans), what)


def _check(reader: Reader, node: MapNode, plans: set[str], what: str) -> None:
    for text, template in templates_below(node, SENT_KEYS):
        for name in sorted(template.names & set(_OF_PLAN)):
            if _OF_PLAN[name] not in plans:
                reader.note(
                    text,
                    f"{{{name}}} never has a value in {what}",
                    f"It is filled by the plan `{_OF_PLAN[name]}`.",
                )
        for name in sorted(one for one in template.names if one.startswith("run.")):
            if not plans & set(BY_TIME):
                reader.note(
                    text,
                    f"{{{name}}} never has a value in {what}",
                    "It is filled by a plan `interval` or `keyset` whose schedule has `cron:`.",
                )


def check_tenant_fields(reader: Reader, root: MapNode, spec: SourceSpec) -> None:
    """`{tenant.x}` needs tenants, and each listed one needs the field."""
    for text, template in templates_below(
        root, ("base_url", "auth", "streams", "plan", *REQUEST_KEYS)
    ):
        for name in sorted(one for one in template.names if one.startswith("tenant.")):
            field = name.removeprefix("tenant.")
            if spec.tenants is None and "tenants" not in root.entries:
                reader.note(
                    text, f"{{{name}}} has no value: this source has no tenants", "Add `tenants:`."
                )
                continue
            lacking = [
                one.id
                for one in (spec.tenants.listed if spec.tenants else ())
                if field not in one.fields
            ]
            if lacking:
                reader.note(
                    text,
                    f"{{{name}}} has no value for the tenant {lacking[0]}",
                    f"Add `{field}:` to it.",
                )
