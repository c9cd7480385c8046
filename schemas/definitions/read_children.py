"""Reads the child tables of a mapping: one row for each element of a list in the parent's entity.

What must fit together is `children_checks`'s; the parent's key is not known here.
"""

import dataclasses

from schemas.definitions import known_keys
from schemas.definitions.fields import Fields
from schemas.definitions.mapping import ByPlan, ChildSpec
from schemas.definitions.paths import Path, parse_mapping_path
from schemas.definitions.problems import NotationError
from schemas.definitions.read_columns import read_by_plan, read_columns, read_key
from schemas.definitions.reader import Reader
from schemas.definitions.tree import Entry, Node


def read_children(reader: Reader, node: Node) -> dict[str, ChildSpec]:
    """The child tables by name."""
    entries = reader.map(node, "children").entries.values()
    if not entries:
        raise reader.refuse(
            node,
            "no child table stands here",
            'Write `order_lines: {path: "lines[*]", key: line_no, columns: {line_no: integer}}`.',
        )
    found = [reader.attempt(lambda e=entry: _child(reader, e), None) for entry in entries]  # type: ignore[misc]
    return {child.name: child for child in found if child is not None}


def _child(reader: Reader, entry: Entry) -> ChildSpec:
    name = reader.check_sql_name(entry, entry.key)
    what = f"child {name}"
    fields = Fields(reader, reader.map(entry.value, what), what, known_keys.CHILD)
    spec = ChildSpec(
        name=name,
        table=fields.get("table", reader.sql_name, name),
        path=fields.need(
            "path",
            lambda node: read_by_plan(reader, node, reader.parsed(parse_child_path)),
            ByPlan(),
            "Write where the list is, such as `path: lines[*]`.",
        ),
        key=fields.need(
            "key",
            lambda node: read_key(reader, node),
            (),
            "Name the column that tells two elements of one record apart, or `position`.",
        ),
        columns=fields.need(
            "columns", lambda node: read_columns(reader, node), {}, "Write `columns:` below it."
        ),
    )
    columns = {
        name: dataclasses.replace(column, required=True) if name in spec.key else column
        for name, column in spec.columns.items()
    }
    return dataclasses.replace(spec, columns=columns)


def parse_child_path(text: str) -> Path:
    """A path to the elements of one list. Raises NotationError."""
    path = parse_mapping_path(text, each=True)
    if not path.has_each:
        raise NotationError(
            f'"{text}" finds one value, and a child table needs a list',
            f"Write `{text}[*]` for the elements of the list there.",
        )
    return path
