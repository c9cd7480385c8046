"""Pieces of generated SQL: quoted names, lists of columns, conditions over a mapping's key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apply.mapping.types import Column, CompiledMapping
from schemas.definitions.mapping import ChildSpec, MappingSpec


def quote(name: str) -> str:
    """A name as SQL takes it literally."""
    return '"' + name.replace('"', '""') + '"'


def target_sql(spec: MappingSpec) -> str:
    """The mapping's table."""
    return f"{spec.schema}.{quote(spec.table)}"


def child_sql(spec: MappingSpec, child: ChildSpec) -> str:
    """A child table of a mapping; it stands where the mapping's own table does."""
    return target_sql(replace(spec, table=child.table))


def present_sql(spec: MappingSpec) -> str:
    """The table of the keys that snapshots of this mapping have shown."""
    schema = "gapless" if spec.schema == "public" else spec.schema
    return f"{schema}.{quote(f'present_{spec.table}')}"


def columns_sql(columns: Sequence[Column], alias: str | None = None) -> str:
    """Column names with commas, each behind the alias if there is one."""
    before = "" if alias is None else f"{alias}."
    return ", ".join(before + quote(column.name) for column in columns)


def equal_sql(compiled: CompiledMapping, one: str, other: str) -> str:
    """That two aliases have the same key."""
    return " AND ".join(
        f"{one}.{quote(column.name)} = {other}.{quote(column.name)}"
        for column in compiled.key_columns
    )


def copy_sql(compiled: CompiledMapping, temp: str) -> str:
    """Take rows as `map_page` makes them; call `set_types(compiled.type_names)` first."""
    return f"COPY {quote(temp)} ({columns_sql(compiled.columns)}) FROM STDIN (FORMAT BINARY)"
