"""What must fit together in a mapping: its columns, its key, its source and that source's plans."""

from collections.abc import Iterable, Mapping
from typing import Final

from schemas.definitions.children_checks import check_children, check_key_column, written
from schemas.definitions.fields import Fields
from schemas.definitions.mapping import ColumnSpec, MappingSpec
from schemas.definitions.problems import closest
from schemas.definitions.reader import Place, Reader
from schemas.definitions.source import SourceSpec
from schemas.definitions.tree import MapNode

_ROLES: Final = ("time", "severity", "stage", "run", "tenant", "dataset", "terminal")


def check_mapping(
    reader: Reader,
    fields: Fields,
    spec: MappingSpec,
    sources: Mapping[str, SourceSpec | None],
    what: str,
) -> None:
    """Note everything that does not fit."""
    if fields.has("columns") and spec.columns:
        _check_key(reader, fields, spec)
        if fields.has("subjects"):
            _check_columns(fields, fields.entry("subjects"), spec, spec.subjects)
        if spec.events is not None:
            _check_columns(fields, fields.entry("events"), spec, spec.events.changed_fields)
        _check_incident(reader, fields, spec)
    if spec.python is not None and fields.has("entity"):
        reader.note(
            fields.entry("entity"),
            "what the function returns is the entity",
            "Take `entity` out; a column reads the record itself at `$.path`.",
        )
    check_children(reader, fields, spec)
    if fields.has("from") and spec.source:
        _check_source(reader, fields, spec, sources, what)


def _check_key(reader: Reader, fields: Fields, spec: MappingSpec) -> None:
    if not fields.has("key"):
        return
    at = fields.entry("key").value
    _check_columns(fields, at, spec, spec.key)
    for name in spec.key:
        column = spec.columns.get(name)
        if column is None:
            continue
        check_key_column(reader, at, name, column)
    if all(name in spec.columns and spec.columns[name].path is None for name in spec.key):
        reader.note(at, "all entities would have the same key", "Add a column with a path.")


def _check_columns(fields: Fields, at: Place, spec: MappingSpec, names: Iterable[str]) -> None:
    written = fields.node.get("columns")
    known = {*spec.columns, *(written.entries if isinstance(written, MapNode) else ())}
    for name in names:
        if name not in known:
            near = closest(name, sorted(known))
            advice = f"Did you mean `{near}`?" if near else f"It has {', '.join(spec.columns)}."
            fields.reader.note(at, f"{spec.name} has no column {name}", advice)


def _check_incident(reader: Reader, fields: Fields, spec: MappingSpec) -> None:
    for role, named in (spec.incident or {}).items():
        at = fields.entry("incident")
        if role not in _ROLES:
            near = closest(role, _ROLES)
            advice = f"Did you mean `{near}`?" if near else f"Roles are {', '.join(_ROLES)}."
            reader.note(at, f'an incident has no role "{role}"', advice)
        elif isinstance(named, str):
            _check_columns(fields, at, spec, [named])
        elif isinstance(named, dict):
            _check_columns(fields, at, spec, named)


def _check_source(
    reader: Reader,
    fields: Fields,
    spec: MappingSpec,
    sources: Mapping[str, SourceSpec | None],
    what: str,
) -> None:
    at = fields.entry("from").value
    if spec.source not in sources:
        near = closest(spec.source, sources)
        known = ", ".join(sources)
        advice = f"It is one of {known}." if known else "No file in `sources/` could be read."
        reader.note(
            at, f'there is no source "{spec.source}"', f"Did you mean `{near}`?" if near else advice
        )
        return
    source = sources[spec.source]
    if source is None:
        return  # its own problems come first
    stream = source.streams.get(spec.stream)
    if stream is None:
        near = closest(spec.stream, source.streams)
        advice = f"Did you mean `{near}`?" if near else f"It has {', '.join(source.streams)}."
        reader.note(at, f'{spec.source} has no stream "{spec.stream}"', advice)
        return
    plans = list(stream.plan_names)
    if spec.entity.named is not None:
        _check_plans(reader, fields.entry("entity"), spec.entity.named, plans, f"entity of {what}")
    revision = spec.revision.path
    if revision is not None and revision.named is not None:
        _check_plans(reader, fields.entry("revision"), revision.named, plans, f"revision of {what}")
    _check_column_plans(reader, fields.node, spec.columns, plans, at)
    for child, entry in written(fields, spec):
        if child.path.named is not None:
            _check_plans(reader, entry, child.path.named, plans, f"child {child.name}")
        if isinstance(entry.value, MapNode):
            _check_column_plans(reader, entry.value, child.columns, plans, entry)


def _check_column_plans(
    reader: Reader, holder: MapNode, columns: Mapping[str, ColumnSpec], plans: list[str], at: Place
) -> None:
    node = holder.get("columns")
    for column in columns.values():
        if column.path is not None and column.path.named is not None:
            place = node.entries[column.name] if isinstance(node, MapNode) else at
            _check_plans(reader, place, column.path.named, plans, f"column {column.name}")


def _check_plans(
    reader: Reader, at: Place, named: Mapping[str, object], plans: list[str], what: str
) -> None:
    lacking = [plan for plan in plans if plan not in named]
    alien = [plan for plan in named if plan not in plans]
    if lacking:
        reader.note(at, f"{what} says nothing for the plan {lacking[0]}", f"Add `{lacking[0]}:`.")
    if alien:
        reader.note(
            at, f"{what} speaks of a plan {alien[0]} that the stream does not have", "Take it out."
        )
