"""Reads a mapping into a MappingSpec, complete with the tenant's column where there are tenants."""

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from schemas.definitions import known_keys
from schemas.definitions.column_types import REVISION_TYPES, ColumnType, parse_type
from schemas.definitions.fields import Fields
from schemas.definitions.fingerprint import fingerprint
from schemas.definitions.mapping import (
    Alternative,
    ByPlan,
    ColumnSpec,
    MappingSpec,
    Personal,
    PostSpec,
    RevisionKind,
    RevisionSpec,
)
from schemas.definitions.mapping_checks import check_mapping
from schemas.definitions.paths import Path, parse_entity_path, parse_mapping_path
from schemas.definitions.read_children import read_children
from schemas.definitions.read_columns import (
    exact,
    read_by_plan,
    read_columns,
    read_key,
    read_pattern,
    read_short,
)
from schemas.definitions.read_events import read_events
from schemas.definitions.read_function import read_function
from schemas.definitions.read_lengths import positive_s
from schemas.definitions.read_predicate import read_predicate
from schemas.definitions.reader import Reader
from schemas.definitions.source import SourceSpec
from schemas.definitions.times import parse_format, parse_zone
from schemas.definitions.tree import MapNode, Node, ScalarNode

TENANT: Final = "tenant_id"
_WHOLE: Final = parse_entity_path("$")
_NO_REVISION: Final = RevisionSpec(RevisionKind.NONE)
_KEEP_S: Final = 90 * 86_400.0


def read_mapping(
    reader: Reader, fields: Fields, name: str, sources: Mapping[str, SourceSpec | None]
) -> MappingSpec | None:
    """One mapping, or None if it is wrong; a source that is None could not be read itself."""
    what = f"mapping {name}"
    source, stream = fields.need(
        "from", lambda node: _from(reader, node), ("", ""), "Write `from: source/stream`."
    )
    columns = fields.need(
        "columns", lambda node: read_columns(reader, node), {}, "Write `columns:` below it."
    )
    spec = MappingSpec(
        name=name,
        version=fields.need("version", reader.at_least(1), 1, "Begin with `version: 1`."),
        source=source,
        stream=stream,
        table=fields.need("table", reader.sql_name, "unread"),
        key=fields.need(
            "key",
            lambda node: read_key(reader, node),
            (),
            "Name the column that tells two entities apart.",
        ),
        revision=fields.need(
            "revision",
            lambda node: _revision(reader, node),
            _NO_REVISION,
            "Write where the provider's own order stands, such as `updated_at::timestamptz`, or `none`.",
        ),
        columns=columns,
        children=fields.get("children", lambda node: read_children(reader, node), {}),
        entity=fields.get("entity", lambda node: _entity(reader, node), ByPlan(_WHOLE)),
        where=fields.get(
            "where", lambda node: read_predicate(reader, node, parse_mapping_path), None
        ),
        deleted=fields.get(
            "deleted", lambda node: read_predicate(reader, node, parse_mapping_path), None
        ),
        absent=fields.get("absent", reader.choice("delete", "keep"), "delete"),
        absent_max=fields.get("absent_max", lambda node: _share(reader, node), Decimal("0.1")),
        subjects=fields.get("subjects", reader.list_of(reader.text), ()),
        events=fields.get("events", lambda node: read_events(reader, node), None),
        keep_quarantine_s=fields.get("keep", lambda node: _keep(reader, node), _KEEP_S),
        faults_max=fields.get("faults", lambda node: _faults(reader, node), None),
        incident=fields.get("incident", lambda node: _incident(reader, node), None),
        file=reader.file,
        python=fields.get("python", lambda node: read_function(reader, node), None),
    )
    origin = sources.get(source)
    if origin is not None and origin.tenants is not None:
        spec = _with_tenant(spec)
    spec = _with_required_key(spec)
    check_mapping(reader, fields, spec, sources, what)
    if reader.failed or origin is None or stream not in origin.streams:
        return None
    return dataclasses.replace(spec, hash=mapping_hash(spec))


def mapping_hash(spec: MappingSpec) -> str:
    """The fingerprint of all that rows depend on, but the version: no file, limits, tolerance or receiver."""
    python = spec.python
    if python is not None:
        python = dataclasses.replace(python, hang_s=0.0, memory_bytes=0)
    events = spec.events
    if events is not None and events.post is not None:
        events = dataclasses.replace(events, post=PostSpec(""))
    return fingerprint(
        dataclasses.replace(
            spec, version=0, file="", hash="", python=python, events=events, faults_max=None
        )
    )


def _from(reader: Reader, node: Node) -> tuple[str, str]:
    source, slash, stream = reader.text(node).partition("/")
    if not (slash and source and stream) or "/" in stream:
        raise reader.refuse(node, "a mapping reads one stream", "Write `from: source/stream`.")
    return source, stream


def _with_tenant(spec: MappingSpec) -> MappingSpec:
    """`tenant_id` joins the key; last, since it tells the fewest rows apart."""
    path = parse_mapping_path("observation.tenant")
    own = ColumnSpec(
        TENANT,
        ColumnType("text"),
        ByPlan((Alternative(path),)),
        required=True,
        personal=Personal.NO,
    )
    columns = spec.columns if TENANT in spec.columns else {TENANT: own, **spec.columns}
    key = spec.key if TENANT in spec.key else (*spec.key, TENANT)
    return dataclasses.replace(spec, key=key, columns=columns)


def _with_required_key(spec: MappingSpec) -> MappingSpec:
    columns = {
        name: dataclasses.replace(column, required=True) if name in spec.key else column
        for name, column in spec.columns.items()
    }
    return dataclasses.replace(spec, columns=columns)


def _revision(reader: Reader, node: Node) -> RevisionSpec:
    if isinstance(node, ScalarNode):
        if node.value == "none":
            return _NO_REVISION
        text, column_type = read_short(reader, node)
        if text is None:
            raise reader.refuse(
                node, "a revision needs a path", "Write for example `updated_at::timestamptz`."
            )
        _check_revision_type(reader, node, column_type)
        path = reader.notation(node, parse_mapping_path, text)
        return RevisionSpec(RevisionKind.COARSE, ByPlan(path), column_type)
    fields = Fields(reader, reader.map(node, "revision"), "revision", known_keys.REVISION)
    kind = RevisionKind(fields.get("kind", reader.choice(*RevisionKind), RevisionKind.COARSE))
    if kind is RevisionKind.NONE:
        return _NO_REVISION
    path_spec = fields.need(
        "path", lambda one: read_by_plan(reader, one, lambda two: _revision_path(reader, two)), None
    )
    column_type = fields.need("type", reader.parsed(parse_type), ColumnType("timestamptz"))
    if fields.has("type"):
        reader.attempt(
            lambda: _check_revision_type(reader, fields.entry("type").value, column_type), None
        )
    for key in ("from", "zone"):
        if fields.has(key) and column_type.name not in ("timestamptz", "date"):
            reader.note(fields.entry(key), f"`{key}` is for times, and {column_type.sql} is none")
    return RevisionSpec(
        kind,
        path_spec,
        column_type,
        fields.get("from", reader.parsed(parse_format), None),
        fields.get("zone", reader.parsed(parse_zone), None),
        fields.get("pattern", lambda one: read_pattern(reader, one), None),
    )


def _revision_path(reader: Reader, node: Node) -> Path:
    return reader.notation(node, parse_mapping_path, reader.text(node))


def _check_revision_type(reader: Reader, node: Node, column_type: ColumnType) -> None:
    if column_type.array or column_type.name not in REVISION_TYPES:
        raise reader.refuse(
            node,
            f"{column_type.sql} has no order to rely on",
            f"Write one of {', '.join(REVISION_TYPES)}.",
        )


def _entity(reader: Reader, node: Node) -> ByPlan[Path]:
    return read_by_plan(reader, node, reader.parsed(parse_entity_path))


def _share(reader: Reader, node: Node) -> Decimal:
    """`10%` or `0.1`."""
    if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.value[:-1].isdigit():
        share = Decimal(node.value[:-1]) / 100 if node.value.endswith("%") else Decimal(-1)
    else:
        share = reader.decimal(node)
    if not 0 <= share <= 1:
        raise reader.refuse(node, "this is no share", "Write for example `10%`.")
    return share


def _keep(reader: Reader, node: Node) -> float:
    fields = Fields(reader, reader.map(node, "keep"), "keep", known_keys.KEEP)
    return fields.get("quarantine", reader.parsed(positive_s), _KEEP_S)


def _faults(reader: Reader, node: Node) -> int | None:
    """How many records may be in quarantine: any number, none, or so many."""
    if isinstance(node, ScalarNode):
        return {"accept": None, "halt": 0}[reader.choice("accept", "halt")(node)]
    fields = Fields(reader, reader.map(node, "faults"), "faults", known_keys.FAULTS)
    return fields.need("max", reader.at_least(0), 0, "Write for example `max: 10`.")


def _incident(reader: Reader, node: Node) -> Mapping[str, object]:
    return {
        entry.key: _plain(entry.value) for entry in reader.map(node, "incident").entries.values()
    }


def _plain(node: Node) -> object:
    if isinstance(node, ScalarNode):
        return exact(node.value, node.raw)
    if isinstance(node, MapNode):
        return {entry.key: _plain(entry.value) for entry in node.entries.values()}
    return tuple(_plain(item) for item in node.items)
