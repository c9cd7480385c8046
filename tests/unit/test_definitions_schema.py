"""The schemas for editors take what the loader takes, and underline what it has no key for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.definitions import known_keys
from schemas.definitions.fields import Known
from schemas.definitions.json_schema import mapping_schema, source_schema
from schemas.definitions.load import load_folder
from schemas.definitions.tree import ListNode, MapNode, Node, ScalarNode, read_tree
from tests.unit.definition_files import ORDERS, SHOP, changed
from tests.unit.json_schema import faults

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("ops/demo/definitions", "ingest", "tests/acceptance/github", "tests/acceptance/kinto",
           "tests/acceptance/singer", "tests/unit/definitions")  # fmt: skip


def _plain(node: Node) -> Any:
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.items]
    return {entry.key: _plain(entry.value) for entry in node.entries.values()}


def _judge(text: str) -> list[str]:
    root = read_tree(text).root
    assert isinstance(root, MapNode)
    schema = mapping_schema() if "columns" in root.entries else source_schema()
    return faults(_plain(root), schema)


def _valid() -> list[Path]:
    """Every definition of this repository that loads."""
    found = []
    for name in FOLDERS:
        definitions = load_folder(REPOSITORY / name)
        wrong = {problem.file for problem in definitions.errors}
        files = sorted((REPOSITORY / name).glob("*s/*.yaml"))
        shown = {file.relative_to(REPOSITORY / name).as_posix(): file for file in files}
        loaded = {one.file for one in definitions.sources.values()}
        loaded |= {one.file for one in definitions.mappings.values()}
        found += [shown[one] for one in sorted(loaded - wrong)]
    return found


@pytest.mark.parametrize("file", _valid(), ids=lambda file: file.relative_to(REPOSITORY).as_posix())
def test_what_loads_is_valid(file: Path) -> None:
    assert _judge(file.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (changed(SHOP, ("source: shop\n", "source: shop\nurl: x\n")), ".url: no such key"),
        (changed(SHOP, ("source: shop\n", "")), ": lacks source"),
        (changed(SHOP, ("    pages:", "    paginator:")), ".streams.orders.paginator: no such key"),
        (changed(SHOP, ("      size: 200", "      limit: 200")), "pages.limit: no such key"),
        (changed(SHOP, ("      size: 200", "      size: many")), "pages.size: 'many' is no integer"),
        (changed(SHOP, ("every: 7d", "every: weekly")), "snapshot.every: 'weekly' does not match"),
        (changed(SHOP, ("time: updated_at", "time: t\n        bounds: both")), "is none of ['[)'"),
        (changed(SHOP, ("      interval:", "      keyset:\n        width: 1d")), "plan.keyset.width: no such key"),
        (changed(SHOP, ("{every: 5m}", "{cron: x, timezone: y}")), "schedule.timezone: no such key"),
        (changed(SHOP, ("interval:\n", "python: {class: a:B, path: x}\n      interval:\n")), "python.path: no such"),
        (changed(SHOP, ("interval:\n", "singer: {command: [a], tap: a}\n      interval:\n")), "singer.tap: no such"),
        (changed(SHOP, ("bearer:", "token:")), ".auth.token: no such key"),
        (changed(ORDERS, ("key: id", "primary_key: id")), ".primary_key: no such key"),
        (changed(ORDERS, ("  id: text", "  Id: text")), "'Id' does not match"),
        (changed(ORDERS, ("  id: text", "  id: {type: text, personal: yes}")), "is none of"),
        (changed(ORDERS, ("  id: text", "  id: {type: text, personal: {hash: K}}")), "'K' is no"),
        (changed(ORDERS, ("key: id", "key: id\npython: a.b")), "python: 'a.b' does not match"),
        (changed(ORDERS, ("key: id", "key: id\npython: {function: a:b, memory_max: 1}")), "memory_max: no such key"),
        (changed(ORDERS, ("  id: text", "  id: {path: id}")), ".columns.id: "),
        (changed(ORDERS, ("key: id", "key: id\nchildren: {a: {key: n}}")), ".children.a: lacks path"),
        (changed(ORDERS, ("key: id", "key: id\nchildren: {a: {where: n}}")), ".children.a.where: no such"),
    ],
    ids=lambda value: value if len(value) < 60 else "text",
)  # fmt: skip
def test_what_no_table_knows_is_not(text: str, fault: str) -> None:
    assert any(fault in one for one in _judge(text)), _judge(text)


def test_every_table_of_the_loader_is_in_a_schema() -> None:
    """Also one that is added: whoever adds a table says here where its keys stand."""
    shown = {frozenset(keys) for schema in (source_schema(), mapping_schema())
             for keys in _closed(schema)}  # fmt: skip
    tables = {name: one for name, one in vars(known_keys).items() if isinstance(one, Known)}
    assert len(tables) > 20
    assert [name for name, one in tables.items() if frozenset(one.keys) not in shown] == []


def _closed(schema: Any) -> Iterator[set[str]]:
    """The keys of every map that takes no others."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is False:
            yield set(schema["properties"])
        for member in schema.values():
            yield from _closed(member)
    elif isinstance(schema, list):
        for member in schema:
            yield from _closed(member)
