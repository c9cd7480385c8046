"""Reads the plans `interval`, `keyset`, `cursor` and `snapshot`, each with its merged request."""

from collections.abc import Sequence
from typing import Final, TypeVar

from schemas.definitions import known_keys
from schemas.definitions.durations import format_duration
from schemas.definitions.fields import Fields
from schemas.definitions.fingerprint import fingerprint
from schemas.definitions.merging import merge_requests
from schemas.definitions.paths import Path, parse_record_path
from schemas.definitions.read_lengths import (
    duration_s,
    positive_s,
    positive_us,
    read_lookback_us,
    read_settle_us,
    read_width_us,
)
from schemas.definitions.read_pages import body_path, header_or_body_path
from schemas.definitions.read_request import NO_PATH, read_request, read_request_path
from schemas.definitions.read_values import names_sent, read_tenant_template
from schemas.definitions.reader import Reader
from schemas.definitions.source import (
    Bounds,
    CursorSpec,
    IdentitySpec,
    IntervalSpec,
    KeysetSpec,
    Order,
    RequestSpec,
    SnapshotSpec,
)
from schemas.definitions.templates import Template
from schemas.definitions.times import (
    RFC3339,
    TimeFault,
    TimeFormat,
    is_ambiguous,
    parse_format,
    parse_time,
    parse_zone,
)
from schemas.definitions.tree import MapNode, Node, ScalarNode

_SETTLE_US: Final = 60_000_000
_LOOKBACK_US: Final = 600_000_000
_NOWHERE: Final = parse_record_path("time")
_BODY: Final = body_path("body")
_Timed = TypeVar("_Timed", bound=IntervalSpec)


def read_interval(reader: Reader, layers: Sequence[MapNode], what: str) -> IntervalSpec:
    """The plan `interval`; its own map is the first of `layers`."""
    fields = Fields(reader, layers[0], what, known_keys.INTERVAL)
    order = Order(fields.get("order", reader.choice(*Order), Order.NONE))
    spec = _by_time(fields, layers, IntervalSpec, "interval", order)
    unfiltered = "start" not in names_sent(merge_requests(layers))
    if unfiltered and order is not Order.DESC and not _below_changed(layers):
        reader.warn(
            fields.node,
            "{start} is never sent: every poll reads everything again",
            "Send it if the server filters by time.",
        )
    return spec


def _below_changed(layers: Sequence[MapNode]) -> bool:
    """Whether only parents that changed are asked: then a poll is small without a filter, too."""
    parent = layers[1].get("parent")
    on = parent.get("on") if isinstance(parent, MapNode) else None
    return isinstance(on, ScalarNode) and on.value == "changed"


def read_keyset(reader: Reader, layers: Sequence[MapNode], what: str) -> KeysetSpec:
    """The plan `keyset`; its own map is the first of `layers`."""
    fields = Fields(reader, layers[0], what, known_keys.KEYSET)
    sent = names_sent(merge_requests(layers))
    for name in ("after.time", "after.id"):
        if name not in sent:
            reader.note(
                fields.node,
                f"{{{name}}} is never sent: what shares its time with a page's last record would be"
                " passed over, or read for ever",
                "Filter by both, as in `updated > {after.time} or (updated = {after.time} and"
                " id > {after.id})`; else write `interval:` with `order: asc`.",
            )
    return _by_time(fields, layers, KeysetSpec, "keyset", Order.ASC)


def _by_time(
    fields: Fields, layers: Sequence[MapNode], kind: type[_Timed], plan: str, order: Order
) -> _Timed:
    """What the plans that read by the source's time have in common."""
    reader = fields.reader
    time = fields.need(
        "time", reader.parsed(parse_record_path), _NOWHERE, "It is the field the server filters by."
    )
    time_format = fields.get("format", reader.parsed(parse_format), RFC3339)
    zone = fields.get("zone", reader.parsed(parse_zone), None)
    granularity_us = fields.get("granularity", reader.parsed(positive_us), time_format.unit_us)
    request = read_request(reader, layers, fields.what, plan)
    spec = kind(
        time=time,
        start_us=fields.get("start", lambda node: _start_us(reader, node, time_format, zone), None),
        format=time_format,
        granularity_us=granularity_us,
        zone=zone,
        bounds=Bounds(fields.get("bounds", reader.choice(*Bounds), Bounds.UNKNOWN)),
        settle_us=fields.get("settle", lambda node: read_settle_us(reader, node), _SETTLE_US),
        lookback_us=fields.get(
            "lookback", lambda node: read_lookback_us(reader, node), _LOOKBACK_US
        ),
        order=order,
        width_us=fields.get("width", lambda node: read_width_us(reader, node), None),
        width_min_us=fields.get("width_min", reader.parsed(positive_us), granularity_us),
        result_cap=fields.get("result_cap", reader.at_least(1), None),
        request=request,
        definition_hash=_asked(plan, request, time, time_format, zone),
    )
    _check_steps(fields, spec)
    _check_zone(fields, spec)
    return spec


def read_cursor(reader: Reader, layers: Sequence[MapNode], what: str) -> CursorSpec:
    """The plan `cursor`; its own map is the first of `layers`."""
    fields = Fields(reader, layers[0], what, known_keys.CURSOR)
    next_path = fields.need(
        "next",
        reader.parsed(header_or_body_path),
        _BODY,
        "It is where the answer has the next cursor.",
    )
    request = read_request(reader, layers, what, "cursor")
    if "cursor" not in names_sent(merge_requests(layers)):
        at = fields.entry("next") if fields.has("next") else fields.node
        reader.note(
            at,
            "a cursor is read but never sent: every poll would begin again",
            'Add a param such as `since: "{cursor}"`.',
        )
    if not fields.has("identity"):
        reader.warn(
            fields.node,
            "a re-created collection would not be noticed",
            "Write `identity: {get: /path, value: body.instance, head: body.last}` if the API tells.",
        )
    return CursorSpec(
        next=next_path,
        start=fields.get("start", reader.scalar, None),
        lifetime_s=fields.get("lifetime", reader.parsed(duration_s), None),
        identity=fields.get("identity", lambda node: _identity(reader, node), None),
        on_reset=fields.get("on_reset", reader.choice("reread", "stop"), "reread"),
        request=request,
        definition_hash=_asked("cursor", request, None),
    )


def read_snapshot(reader: Reader, layers: Sequence[MapNode], what: str) -> SnapshotSpec:
    """The plan `snapshot`; its own map is the first of `layers`."""
    fields = Fields(reader, layers[0], what, known_keys.SNAPSHOT)
    every_s = fields.need(
        "every", reader.parsed(positive_s), 86_400.0, "Write for example `every: 1d`."
    )
    request = read_request(reader, layers, what, "snapshot")
    return SnapshotSpec(every_s, request, _asked("snapshot", request, None))


def _asked(
    plan: str,
    request: RequestSpec,
    time: Path | None,
    time_format: TimeFormat = RFC3339,
    zone: str | None = None,
) -> str:
    """The fingerprint of what is asked: another one begins a new pass from the start.

    The format and zone of times belong to it: with a wrong one the server may have found nothing.
    Headers, records, pages and errors do not.
    """
    asked: dict[str, object] = {
        "plan": plan,
        "method": request.method,
        "path": request.path,
        "params": request.params,
        "body": request.body,
        "id": request.id,
        "time": time,
    }
    if time_format != RFC3339 or zone is not None:
        asked["format"] = [time_format, zone]
    return fingerprint(asked)


def _identity(reader: Reader, node: Node) -> IdentitySpec:
    fields = Fields(reader, reader.map(node, "identity"), "identity", known_keys.IDENTITY)
    return IdentitySpec(
        get=fields.need("get", lambda one: _identity_path(reader, one), NO_PATH),
        value=fields.need("value", reader.parsed(header_or_body_path), _BODY),
        head=fields.get("head", reader.parsed(header_or_body_path), None),
    )


def _identity_path(reader: Reader, node: Node) -> Template:
    template = read_request_path(reader, node)
    read_tenant_template(reader, node)
    return template


def _check_steps(fields: Fields, spec: IntervalSpec) -> None:
    """Nothing can be asked between two steps of the server or of the notation."""
    unit_us = spec.format.unit_us
    note = fields.reader.note
    if spec.granularity_us % unit_us:
        note(
            fields.entry("granularity"),
            f"times of this format cannot be written at steps of {format_duration(spec.granularity_us)}",
            f"Write `{format_duration(unit_us)}` or a multiple, or a finer `format`.",
        )
    elif spec.start_us is not None and spec.start_us % spec.granularity_us:
        note(
            fields.entry("start"), "`start` lies between two steps of the server", "Round it down."
        )
    if spec.width_min_us < spec.granularity_us:
        note(fields.entry("width_min"), "no interval is narrower than the granularity")
    if spec.width_us is not None and spec.width_us < spec.width_min_us:
        note(fields.entry("width"), "the first width is below `width_min`")


def _check_zone(fields: Fields, spec: IntervalSpec) -> None:
    """Asked in local time, the hour that a zone has twice a year cannot be told apart."""
    if spec.zone is not None and is_ambiguous(spec.format, spec.zone):
        fields.reader.warn(
            fields.entry("zone"),
            f"asked in the time of {spec.zone}, one hour a year is ambiguous: its rows may be missed",
            "Ask in UTC if the API can, or with an offset (`%z`); else let a snapshot find them.",
        )


def _start_us(reader: Reader, node: Node, time_format: TimeFormat, zone: str | None) -> int:
    """ISO 8601 (a day alone, or no zone, is in `zone`, else UTC) or the plan's own format."""
    value = reader.scalar(node)
    for one in (RFC3339, time_format):
        try:
            return parse_time(value, one, zone or "UTC")
        except TimeFault:
            continue
    raise reader.refuse(
        node, f'"{value}" is no time', "Write for example `2024-01-01` or `2024-01-01T12:00:00Z`."
    )
