"""What must fit together in the child tables of a mapping: keys, names, and the parent's plans."""

from collections.abc import Iterator
from typing import Final

from schemas.definitions.fields import Fields
from schemas.definitions.mapping import POSITION, ChildSpec, ColumnSpec, MappingSpec, Personal
from schemas.definitions.problems import closest
from schemas.definitions.reader import Place, Reader
from schemas.definitions.tree import Entry, MapNode

NO_KEYS: Final = ("jsonb", "real", "double precision")
"""Types that no key may have: equal values do not always compare equal."""
_LONGEST_NAME: Final = 63


def check_children(reader: Reader, fields: Fields, spec: MappingSpec) -> None:
    """Note everything that does not fit, but for plans."""
    tables = {spec.table: "the mapping's own table"}
    for child, entry in written(fields, spec):
        inner = entry.value
        assert isinstance(inner, MapNode)
        at = inner.entries.get("table", entry)
        if child.table in tables:
            message = f"child {child.name} would fill {child.table}, {tables[child.table]}"
            reader.note(at, message, "Write another `table:`.")
        tables.setdefault(child.table, f"the table of child {child.name}")
        _check_names(reader, inner, child, spec)
        if "key" in inner.entries and child.columns:
            _check_key(reader, inner.entries["key"].value, child)


def written(fields: Fields, spec: MappingSpec) -> Iterator[tuple[ChildSpec, Entry]]:
    """The children that could be read, each with its place."""
    node = fields.node.get("children")
    if isinstance(node, MapNode):
        yield from ((child, node.entries[child.name]) for child in spec.children.values())


def _check_names(reader: Reader, inner: MapNode, child: ChildSpec, spec: MappingSpec) -> None:
    node = inner.get("columns")
    parents = child.parent_columns(spec.key)
    taken = {POSITION, *parents}
    for name in parents:
        if len(name) > _LONGEST_NAME:
            message = f"the column {name} of {child.table} would be longer than {_LONGEST_NAME}"
            reader.note(inner, message, "Give that column of the parent's key a shorter name.")
    for name in child.columns:
        if name in taken:
            at: Place = node.entries[name] if isinstance(node, MapNode) else inner
            message = f"every row of {child.table} has a column {name} of its own"
            reader.note(at, message, "Name this one differently.")


def _check_key(reader: Reader, at: Place, child: ChildSpec) -> None:
    if child.key == (POSITION,):
        return
    for name in child.key:
        column = child.columns.get(name)
        if column is None:
            near = closest(name, sorted(child.columns))
            advice = f"Did you mean `{near}`?" if near else f"It has {', '.join(child.columns)}."
            reader.note(at, f"child {child.name} has no column {name}", advice)
        else:
            check_key_column(reader, at, name, column)
    columns = [child.columns.get(name) for name in child.key]
    if all(column is not None and column.path is None for column in columns):
        message = "all elements of a list would have the same key"
        reader.note(at, message, "Add a column with a path, or write `key: position`.")


def check_key_column(reader: Reader, at: Place, name: str, column: ColumnSpec) -> None:
    """Note why a column cannot be part of a key."""
    if column.type.name in NO_KEYS or column.type.array:
        reader.note(
            at, f"{column.type.sql} cannot be part of a key", "Key a text, number, uuid or date."
        )
    if column.personal is Personal.DROP:
        reader.note(at, f"the key column {name} is dropped", "Write `personal: hash`.")
    if column.default is not None:
        reader.note(at, f"a default of the key column {name} would join entities", "Take it out.")
