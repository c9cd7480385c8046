"""What mapping lets through, Postgres takes, and it stands there as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import sql

from apply.children import ChildTables
from apply.copy_form import RowForms
from apply.copy_frame import chunks
from apply.fold import fold
from apply.guard import upsert_sql
from apply.mapping.compile import compile_mapping
from apply.mapping.readable import readable_row
from apply.mapping.types import INDEX, LINEAGE, CompiledMapping, Place, Row
from apply.share import Family
from apply.sql_text import columns_sql, copy_sql, target_sql
from apply.target_tables import migrate_table
from ops.migrate import migrate
from schemas.definitions.column_types import parse_type
from schemas.definitions.mapping import (
    Alternative,
    ByPlan,
    ColumnSpec,
    MappingSpec,
    RevisionKind,
    RevisionSpec,
)
from schemas.definitions.paths import parse_entity_path, parse_mapping_path
from schemas.definitions.times import parse_format
from schemas.records import Observation
from tests.conftest import Lane
from tests.property.apply import pages, specs

Connection = psycopg.Connection[tuple[Any, ...]]
MAPPINGS = 120


@pytest.fixture
def connection(lane: Lane) -> Iterator[Connection]:
    """A database with the schema of Gapless."""
    migrate(lane.postgres)
    with psycopg.connect(lane.postgres) as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


def _stage(connection: Connection, compiled: CompiledMapping, rows: list[Row]) -> None:
    """Into a fresh temporary table with the target's types."""
    columns = columns_sql(compiled.columns)
    connection.execute("DROP TABLE IF EXISTS pg_temp.stage")
    connection.execute(
        f"CREATE TEMPORARY TABLE stage AS SELECT {columns}"
        f" FROM {target_sql(compiled.spec)} WITH NO DATA".encode()
    )
    with connection.cursor().copy(copy_sql(compiled, "stage").encode()) as copy:
        for piece in chunks(map(RowForms(compiled).form, rows)):
            copy.write(piece)


def _land(
    connection: Connection,
    compiled: CompiledMapping,
    rows: list[Row],
    families: dict[Row, Family] | None = None,
) -> int:
    """Into the target, as the store does it. Returns how many rows were written."""
    _stage(connection, compiled, rows)
    written = connection.execute(upsert_sql(compiled, "stage").encode()).fetchall()
    tables = ChildTables(compiled, "stage")
    connection.execute("DROP TABLE IF EXISTS pg_temp.stage_child_0, pg_temp.stage_child_1")
    tables.prepare(connection)
    tables.replace(connection, rows, families or {})
    return len(written)


def test_no_mapped_row_is_refused(connection: Connection) -> None:
    """Poison is found before SQL: whatever became a row, of any mapping, is stored."""
    dice = Random(7)
    mapped = landed = born = 0
    for number in range(MAPPINGS):
        spec = replace(specs.spec(dice), name=f"m{number}", table=f"m{number}")
        children = {
            name: replace(one, table=f"m{number}_{name}") for name, one in spec.children.items()
        }
        spec = replace(spec, children=children)
        compiled = compile_mapping(spec, 1)
        rows: list[Row] = []
        families: dict[Row, Family] = {}
        for offset in range(5):
            observation = msgspec.structs.replace(pages.page(dice, spec), original_offset=None)
            found = compiled.map_page(observation, Place(1, 0, offset, "north", None))
            rows += found.rows
            for row in found.rows:
                if row[INDEX] in found.children:
                    families[row[LINEAGE]] = Family(found.children[row[INDEX]], None)
        if not rows:
            continue
        migrate_table(connection, spec)
        _stage(connection, compiled, rows)
        winners = fold(rows, compiled).winners
        assert _land(connection, compiled, winners, families) == len(winners)
        wanted = sum(
            len(rows)
            for row in winners
            if row[LINEAGE] in families
            for rows in families[row[LINEAGE]].rows
        )
        for child in spec.children.values():
            count = connection.execute(f"SELECT count(*) FROM {child.table}".encode()).fetchall()
            wanted -= count[0][0]
            born += count[0][0]
        assert wanted == 0
        mapped += len(rows)
        landed += len(winners)
        connection.commit()
    assert (mapped > 300, landed > 60, born > 60) == (True,) * 3, (mapped, landed, born)


_EVERY = [
    # type, how JSON says it, how Postgres shows it, how an event shows it
    ("text", '"é:\\u0022\\\\"', 'é:"\\', 'é:"\\'),
    ("varchar(4)", '"abcd"', "abcd", "abcd"),
    ("char(3)", '"a "', "a", "a"),
    ("smallint", "-32768", "-32768", -32768),
    ("integer", "2147483647", "2147483647", 2147483647),
    ("bigint", '"9223372036854775807"', "9223372036854775807", 9223372036854775807),
    ("numeric", "0.30000000000000000001", "0.30000000000000000001", "0.30000000000000000001"),
    ("numeric", "1.10", "1.10", "1.10"),
    ("numeric(38,10)", "12345678901234567890.5", "12345678901234567890.5000000000",
     "12345678901234567890.5000000000"),
    ("numeric(6,2)", "1e3", "1000.00", "1000.00"),
    ("real", "0.5", "0.5", 0.5),
    ("double precision", "0.1", "0.1", 0.1),
    ("boolean", "true", "true", True),
    ("timestamptz", '"2024-03-01T08:12:31.123456+02:00"', "2024-03-01 06:12:31.123456+00",
     "2024-03-01T06:12:31.123456Z"),
    ("timestamptz", '"0001-02-03T00:00:00Z"', "0001-02-03 00:00:00+00", "0001-02-03T00:00:00.000000Z"),
    ("date", '"2024-02-29"', "2024-02-29", "2024-02-29"),
    ("uuid", '"7F2C1E0A0b1c4d2e8f3a123456789abc"', "7f2c1e0a-0b1c-4d2e-8f3a-123456789abc",
     "7f2c1e0a-0b1c-4d2e-8f3a-123456789abc"),
    ("jsonb", '{"b":[1.10,null,"\\u00e9"],"a":12345678901234567890}',
     '{"a": 12345678901234567890, "b": [1.10, null, "é"]}',
     {"a": 12345678901234567890, "b": [1.1, None, "é"]}),
    ("text[]", '["a,b",null,""]', '{"a,b",NULL,""}', ["a,b", None, ""]),
    ("numeric[]", "[1.50]", "{1.50}", ["1.50"]),
    ("timestamptz[]", '["2024-03-01T00:00:00Z"]', '{"2024-03-01 00:00:00+00"}',
     ["2024-03-01T00:00:00.000000Z"]),
    ("date[]", '["2024-03-01"]', "{2024-03-01}", ["2024-03-01"]),
    ("uuid[]", '["7f2c1e0a-0b1c-4d2e-8f3a-123456789abc"]', "{7f2c1e0a-0b1c-4d2e-8f3a-123456789abc}",
     ["7f2c1e0a-0b1c-4d2e-8f3a-123456789abc"]),
    ("boolean[]", "[true,false]", "{t,f}", [True, False]),
    ("smallint[]", "[1,2]", "{1,2}", [1, 2]),
    ("varchar(3)[]", '["abc"]', "{abc}", ["abc"]),
]  # fmt: skip


def _spec(columns: dict[str, ColumnSpec], revision: RevisionSpec) -> MappingSpec:
    key = ColumnSpec("id", parse_type("text"), _own("id"))
    return MappingSpec(
        name="every", version=1, source="s", stream="t", table="every", key=("id",),
        revision=revision, columns={"id": key, **columns}, entity=ByPlan(parse_entity_path("$")),
    )  # fmt: skip


def _own(name: str) -> ByPlan[tuple[Alternative, ...]]:
    return ByPlan((Alternative(parse_mapping_path(name)),))


def _page(records: list[str]) -> Observation:
    return Observation(
        partition_id="s/t", plan="interval", scope="x", pass_="p", page=1, reason="r", method="GET",
        url="u", definition_hash="h", status=200, requested_at=1,
        received_at=1_700_000_000_123_456, records=[one.encode() for one in records],
    )  # fmt: skip


def test_every_type_stands_as_it_was_written(connection: Connection) -> None:
    columns = {
        f"c{number}": ColumnSpec(f"c{number}", parse_type(one[0]), _own(f"c{number}"))
        for number, one in enumerate(_EVERY)
    }
    revision = RevisionSpec(
        RevisionKind.COARSE, ByPlan(parse_mapping_path("at")), parse_type("timestamptz"),
        from_=parse_format("unix_s"),
    )  # fmt: skip
    spec = _spec(columns, revision)
    compiled = compile_mapping(spec, 1)
    members = ",".join(f'"c{number}":{one[1]}' for number, one in enumerate(_EVERY))
    record = f'{{"id":"k","at":1700000000.5,{members}}}'
    mapped = compiled.map_page(_page([record]), Place(3, 1, 42, None, None))
    assert not mapped.faults
    migrate_table(connection, spec)
    assert _land(connection, compiled, mapped.rows) == 1
    names = [*columns, "source_revision", "_observed_at", "deleted_at", "_offset"]
    shown = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    found = connection.execute(sql.SQL("SELECT {} FROM every").format(shown)).fetchone()
    assert found is not None
    assert dict(zip(names, found, strict=True)) == {
        **{f"c{number}": one[2] for number, one in enumerate(_EVERY)},
        "source_revision": "2023-11-14 22:13:20.5+00",
        "_observed_at": "2023-11-14 22:13:20.123456+00",
        "deleted_at": None,
        "_offset": "42",
    }
    assert readable_row(compiled, mapped.rows[0]) == {
        "id": "k",
        **{f"c{number}": one[3] for number, one in enumerate(_EVERY)},
    }
