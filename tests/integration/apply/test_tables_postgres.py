"""Registering mappings on a real server: tables made, widened, or refused with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apply.tables import migrate_mappings
from ops.migrate import migrate
from schemas.definitions import DefinitionError, Definitions, load_folder
from tests.conftest import Lane

Connection = psycopg.Connection[tuple[Any, ...]]

_SOURCE = """
gapless: 1
source: shop
base_url: https://shop.example
tenants: {list: [{id: north}, {id: south}]}
streams:
  orders:
    get: /orders
    params: {changed_from: "{start}", changed_to: "{end}"}
    records: body.items
    pages: none
    plan: {interval: {time: updated_at, start: 2024-01-01}}
"""
_MAPPING = """
gapless: 1
mapping: shop_orders
version: 1
from: shop/orders
table: orders
key: id
revision: updated_at::timestamptz
columns:
  id: text
  status: text
  updated_at: timestamptz
"""


@pytest.fixture
def connection(lane: Lane) -> Iterator[Connection]:
    """A database with the schema of Gapless."""
    migrate(lane.postgres)
    with psycopg.connect(lane.postgres) as opened:
        yield opened


class Folder:
    """Definitions that a user edits and registers again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for kind, text in (("sources", _SOURCE), ("mappings", _MAPPING)):
            (path / kind).mkdir()
            (path / kind / "shop.yaml").write_text(text.lstrip(), "utf-8")

    def edit(self, old: str, new: str) -> Definitions:
        """Change the mapping's file and load everything."""
        file = self.path / "mappings" / "shop.yaml"
        text = file.read_text("utf-8")
        assert old in text
        file.write_text(text.replace(old, new), "utf-8")
        return load_folder(self.path).check()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """One source with tenants, one mapping."""
    return Folder(tmp_path)


def _register(connection: Connection, definitions: Definitions) -> list[str]:
    with connection.transaction():
        return migrate_mappings(connection, definitions)


def _refused(connection: Connection, definitions: Definitions) -> str:
    with pytest.raises(DefinitionError) as caught:
        _register(connection, definitions)
    return str(caught.value)


def test_a_mapping_is_registered_once_and_its_table_made(
    connection: Connection, folder: Folder
) -> None:
    definitions = folder.edit("version: 1", "version: 1")
    assert _register(connection, definitions) == [
        "table orders created",
        "shop_orders version 1 registered",
    ]
    assert _register(connection, definitions) == []
    key = connection.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'orders'::regclass"
        " AND contype = 'p'"
    ).fetchone()
    assert key == ("PRIMARY KEY (id, tenant_id)",), "the most selective column first"
    collations = connection.execute(
        "SELECT column_name, collation_name FROM information_schema.columns"
        " WHERE table_name = 'orders' AND data_type = 'text' ORDER BY 1"
    ).fetchall()
    assert collations == [("id", "C"), ("status", None), ("tenant_id", "C")]
    options = connection.execute(
        "SELECT reloptions FROM pg_class WHERE oid = 'orders'::regclass"
    ).fetchone()
    assert options == (["fillfactor=80"],)
    connection.execute("INSERT INTO gapless.present_orders VALUES (1, 's', 'a', 'north')")


def test_a_changed_mapping_needs_a_new_version(connection: Connection, folder: Folder) -> None:
    _register(connection, folder.edit("version: 1", "version: 1"))
    changed = folder.edit("status: text", "status: {type: text, values: [open]}\n  total: numeric")
    message = _refused(connection, changed)
    assert message.startswith("mappings/shop.yaml:3:10  the mapping changed, its version did not\n")
    assert "    3 | version: 1            (in use since " in message
    assert "; changed: status, +total)" in message
    assert "Write `version: 2`, then look: gapless replay shop_orders --dry-run" in message
    assert _register(connection, folder.edit("version: 1", "version: 2")) == [
        "table orders has new columns: total",
        "shop_orders version 2 registered",
        "shop_orders version 1 retired",
    ]
    states = connection.execute(
        "SELECT version, state FROM gapless.mapping_version ORDER BY version"
    ).fetchall()
    assert states == [(1, "retired"), (2, "live")]
    old = _refused(connection, folder.edit("version: 2", "version: 1"))
    assert "version 1 is older than version 2, which is in use" in old
    assert "`version: 3`" in old


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "status: text",
            "status: integer",
            "column status of orders is text, this mapping says integer",
        ),
        ("key: id", "key: [id, status]", "has the key id, tenant_id"),
        ("revision: updated_at::timestamptz", "revision: {kind: none}", "declares none"),
        ("updated_at::timestamptz", "updated_at::bigint", "column source_revision"),
        ("table: orders", f"table: {'o' * 60}", "is longer than 55 bytes"),
    ],
)
def test_what_would_change_stored_rows_is_refused(
    connection: Connection, folder: Folder, old: str, new: str, words: str
) -> None:
    _register(connection, folder.edit("version: 1", "version: 1"))
    folder.edit("version: 1", "version: 2")
    message = _refused(connection, folder.edit(old, new))
    assert words in message
    assert message.count("\n") >= 1, "it says what to write instead"
    assert "longer than" in words or "gapless replay shop_orders --shadow" in message
    registered = connection.execute("SELECT max(version) FROM gapless.mapping_version").fetchone()
    assert registered == (1,), "nothing is registered if anything is refused"


def test_a_table_of_somebody_else_is_left_alone(connection: Connection, folder: Folder) -> None:
    connection.execute("CREATE TABLE orders (id text PRIMARY KEY)")
    connection.commit()
    message = _refused(connection, folder.edit("version: 1", "version: 1"))
    assert "exists and was not made by Gapless" in message
    assert message.startswith("mappings/shop.yaml:5:8  ")


_CHILDREN = """
children:
  order_lines:
    path: lines[*]
    key: line_no
    columns: {line_no: integer, sku: text}
"""


def test_children_come_later_grow_and_stay(connection: Connection, folder: Folder) -> None:
    _register(connection, folder.edit("version: 1", "version: 1"))
    added = folder.edit("  updated_at: timestamptz\n", f"  updated_at: timestamptz{_CHILDREN}")
    assert "; changed: +order_lines)" in _refused(connection, added)
    assert _register(connection, folder.edit("version: 1", "version: 2"))[0] == (
        "table order_lines created; `gapless replay shop_orders` fills it for the rows of orders"
    )
    key = connection.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = 'order_lines'::regclass AND contype = 'p'"
    ).fetchone()
    assert key == ("PRIMARY KEY (parent_id, parent_tenant_id, line_no)",)
    folder.edit("version: 2", "version: 3")
    wider = folder.edit("sku: text", "sku: text, price: numeric")
    assert _register(connection, wider)[0] == "table order_lines has new columns: price"
    folder.edit("version: 3", "version: 4")
    assert _register(
        connection, folder.edit(_CHILDREN.replace("sku: text", "sku: text, price: numeric"), "\n")
    ) == [
        "shop_orders version 4 registered",
        "shop_orders version 3 retired",
    ]
    connection.execute("SELECT price FROM order_lines")


def test_columns_of_other_hands_are_left_alone(connection: Connection, folder: Folder) -> None:
    _register(connection, folder.edit("version: 1", f"version: 1{_CHILDREN}"))
    for table in ("orders", "order_lines"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN note text DEFAULT '-'".encode())
    connection.commit()
    folder.edit("status: text", "status: text\n  total: numeric")
    done = _register(connection, folder.edit("version: 1", "version: 2"))
    assert done[0] == "table orders has new columns: total"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("sku: text", "sku: integer", "column sku of order_lines is text, this child order_lines says integer"),
        ("key: line_no", "key: [line_no, sku]", "order_lines has the key parent_id, parent_tenant_id, line_no"),
    ],
)  # fmt: skip
def test_what_would_change_stored_children_is_refused(
    connection: Connection, folder: Folder, old: str, new: str, words: str
) -> None:
    _register(connection, folder.edit("version: 1", f"version: 1{_CHILDREN}"))
    folder.edit("version: 1", "version: 2")
    message = _refused(connection, folder.edit(old, new))
    assert words in message
    assert "gapless replay shop_orders --shadow" in message
    assert message.startswith("mappings/shop.yaml:5:"), "at the child"


def test_a_table_of_somebody_else_gets_no_children(connection: Connection, folder: Folder) -> None:
    connection.execute("CREATE TABLE order_lines (parent_id text PRIMARY KEY)")
    connection.commit()
    message = _refused(connection, folder.edit("version: 1", f"version: 1{_CHILDREN}"))
    assert "order_lines exists and was not made by Gapless for this child order_lines" in message


def test_a_child_table_of_another_mapping_is_not_shared(
    connection: Connection, folder: Folder
) -> None:
    definitions = folder.edit("version: 1", f"version: 1{_CHILDREN}")
    _register(connection, definitions)
    spec = definitions.mappings["shop_orders"]
    for taken in (
        replace(spec, name="other", table="others"),
        replace(spec, name="other", table="order_lines", children={}),
    ):
        message = _refused(connection, replace(definitions, mappings={"other": taken}))
        assert "the table order_lines belongs to the mapping shop_orders" in message


def test_two_mappings_do_not_share_a_table(connection: Connection, folder: Folder) -> None:
    definitions = folder.edit("version: 1", "version: 1")
    _register(connection, definitions)
    other = replace(definitions.mappings["shop_orders"], name="orders_too")
    message = _refused(connection, replace(definitions, mappings={"orders_too": other}))
    assert "the table orders belongs to the mapping shop_orders" in message


def test_an_impossible_column_is_a_problem_of_the_definition(
    connection: Connection, folder: Folder
) -> None:
    message = _refused(
        connection, folder.edit("status: text", "status: {type: varchar(2), values: [open]}")
    )
    assert "column status: 'open' is longer than 2 characters" in message
