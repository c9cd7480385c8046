"""Parts of the mapping language that only show on a real table: functions, orders of text, columns of
the database's own."""

from __future__ import annotations

from apply.metrics import PAUSED
from ops.facts.log import mirrored
from tests.integration.apply.scene import Scene, account, page
from tests.waiting import wait_until

FUNCTION = """
import os
from decimal import Decimal

from apply.python_mapping import Ignored


def row(record, seen):
    if record["lifecycle"] == "draft":
        return Ignored()
    if record["lifecycle"] == "poison":
        os._exit(1)
    record["cards"] = [{"number": card} for card in record.pop("held", ())]
    return {**record, "balance": Decimal(record["balance"]) * 2, "email": seen.tenant}
"""


def test_rows_of_a_function_are_applied(scene: Scene) -> None:
    (scene.folder / "account_rows.py").write_text(FUNCTION)
    cards = "children:\n  cards: {path: 'cards[*]', key: number, columns: {number: text}}\nevents:"
    made = {"key: id": "key: id\npython: account_rows:row", "events:": cards}
    scene.define(2, **made)
    scene.put(
        page(
            [
                account(1, held=["a"]), account(2, lifecycle="draft"),
                account(3, lifecycle="poison", held=["b", "c"]),
                account(4, lifecycle="odd"), b"no json", account(5, deleted=True),
            ]
        )
    )  # fmt: skip
    with scene.applying():
        scene.settle()
        scene.put(page([account(1, 2, balance="0.25", held=["d"])], number=2))
        scene.settle()
    assert scene.balance() == {"applied": 3, "ignored": 1, "quarantined": 3}
    rows = scene.rows("SELECT id, balance::text, email, _deleted FROM accounts ORDER BY id")
    assert rows == [("a-1", "0.50", "north", False), ("a-5", "21.00", "north", True)]
    found = scene.rows("SELECT index, reason, key->>'id' FROM gapless.exception ORDER BY index")
    assert found == [
        (2, "mapper_ended", None), (3, "unknown_value", "a-4"), (4, "unreadable", None),
    ]  # fmt: skip
    # a function that is put right heals its record by itself, children and all
    (scene.folder / "mended_rows.py").write_text(
        FUNCTION.replace("os._exit(1)", "record['lifecycle'] = 'active'")
    )
    scene.define(3, **{**made, "key: id": "key: id\npython: mended_rows:row"})
    with scene.applying():
        scene.until("SELECT state FROM gapless.exception WHERE index = 2", "resolved")
    assert scene.rows("SELECT parent_id, number FROM cards ORDER BY 2") == [
        ("a-3", "b"), ("a-3", "c"), ("a-1", "d"),
    ]  # fmt: skip


def test_a_function_that_is_gone_while_apply_runs_is_waited_for_and_said(scene: Scene) -> None:
    """No record is to blame: nothing is quarantined, and what waits is applied once it is back."""
    module, moved = scene.folder / "away_rows.py", scene.folder / "moved.py"
    module.write_text(FUNCTION)
    cards = "children:\n  cards: {path: 'cards[*]', key: number, columns: {number: text}}\nevents:"
    scene.define(2, **{"key: id": "key: id\npython: away_rows:row", "events:": cards})
    scene.put(page([account(1)]))

    def said() -> set[str | None]:
        notes = [one.pause for one in mirrored(scene.settings, 2).values()]
        return {None if note is None else note.reason for note in notes}

    with scene.applying():
        scene.settle()
        module.rename(moved)
        scene.put(page([account(2, lifecycle="poison"), account(3)], number=2))
        wait_until(lambda: "mapping_function" in said(), 60, "apply says that it waits")
        assert _paused() == "mapping_function"
        assert scene.rows("SELECT id FROM accounts") == [("a-1",)]
        assert scene.value("SELECT count(*) FROM gapless.exception") == 0
        moved.rename(module)
        scene.settle()
        wait_until(lambda: said() == {None}, 60, "apply says that it goes on")
    assert _paused() is None
    assert scene.balance() == {"applied": 2, "quarantined": 1}
    # one that is tried again by the writer is waited for likewise, and ends no process
    with scene.applying():
        scene.until("SELECT count(*) FROM gapless.position WHERE owner IS NOT NULL", 2)
        module.rename(moved)
        scene.db.execute(
            "UPDATE gapless.exception SET state = 'retryable', due_at = now(), reason = 'unknown_value'"
        )
        wait_until(lambda: _paused() == "mapping_function", 90, "apply says that it waits")
        module.write_text(moved.read_text().replace("os._exit(1)", "pass"))
        scene.until("SELECT state FROM gapless.exception", "quarantined")
        wait_until(lambda: _paused() is None, 60, "apply goes on")


def _paused() -> str | None:
    found = [s.labels["reason"] for m in PAUSED.collect() for s in m.samples if s.value]
    return found[0] if found else None


def test_text_revisions_are_ordered_byte_by_byte(scene: Scene) -> None:
    """As ULIDs are, and not as a language sorts: there `a` comes before `B`."""
    scene.define(2, **{"type: bigint": "type: text", "table: accounts": "table: lexical"})
    ulids = [f"01HZ{tail}" for tail in ("0000000001", "000000000Z", "00000000A0")]
    old_first = [account(1, balance=f"{n}") | {"version": v} for n, v in enumerate(ulids)]
    mixed = [account(2, balance=f"{n}") | {"version": v} for n, v in enumerate(["a", "B", "b"])]
    scene.put(page(old_first), page(list(reversed(old_first)), number=2), page(mixed, number=3))
    with scene.applying():
        scene.settle()
        scene.put(page([account(2, balance="9") | {"version": "C"}], number=4))
        scene.settle()
    rows = scene.rows("SELECT id, source_revision, balance::text FROM lexical ORDER BY id")
    assert rows == [("a-1", ulids[2], "2.00"), ("a-2", "b", "2.00")]


def test_generated_columns_are_the_databases_own(scene: Scene) -> None:
    scene.db.execute(
        "ALTER TABLE accounts ADD COLUMN domain text"
        " GENERATED ALWAYS AS (split_part(email, '@', 2)) STORED"
    )
    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
    scene.define(2, **{"  email:": "  plan: text\n  email:"})
    scene.put(page([account(1, 2, plan="pro"), account(2, email=None)], number=2))
    with scene.applying():
        scene.settle()
    rows = scene.rows("SELECT id, domain, plan FROM accounts ORDER BY id")
    assert rows == [("a-1", "example.org", "pro"), ("a-2", None, None)]
