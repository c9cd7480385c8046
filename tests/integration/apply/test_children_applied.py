"""Children through the whole of apply: replayed under a new version, changed, refused, retried, swept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from apply.replay import run_replay
from apply.requests import request
from tests.integration.apply.scene import Scene, account, begin, complete, page

CARDS = {
    "events:": """children:
  cards:
    path: cards[*]
    key: number
    columns: {number: text, spent: integer}
events:"""
}


def holder(number: int, version: int = 1, **spent: int) -> dict[str, Any]:
    """An account with cards: what was spent by the number of each."""
    cards = [{"number": card, "spent": amount} for card, amount in spent.items()]
    return account(number, version, cards=cards)


def cards(scene: Scene) -> list[tuple[Any, ...]]:
    """Account, card and what was spent, of every row there is."""
    return scene.rows(
        "SELECT parent_id, number, spent FROM cards WHERE parent_tenant_id = 'north' ORDER BY 1, 2"
    )


def test_children_follow_their_row(scene: Scene) -> None:
    listed = page(
        [holder(1, 2, b=5, c=6), holder(2, 3)],
        plan="snapshot", scope="s1", pass_="s1-p", number=1,
    )  # fmt: skip
    scene.put(page([holder(1, a=1, b=2), holder(2, a=3), holder(3, a=4)]))
    with scene.applying():
        scene.settle()
    definitions = scene.define(2, **CARDS)
    run_replay(scene.settings, definitions, "accounts")
    assert cards(scene) == [("a-1", "a", 1), ("a-1", "b", 2), ("a-2", "a", 3), ("a-3", "a", 4)]
    scene.db.execute("ALTER TABLE cards ADD CONSTRAINT afford CHECK (spent < 100)")
    with scene.applying():
        twice = [{"number": "x", "spent": 1}] * 2
        scene.put(
            page([holder(1, 2, b=5, c=6), holder(3, 2, a=100)], number=2),
            page([holder(1, a=9), account(4, cards=twice)], number=3),
            page([{**holder(2, 2, a=8), "deleted": True}], number=4),
        )
        scene.settle()
        assert cards(scene) == [("a-1", "b", 5), ("a-1", "c", 6), ("a-3", "a", 4)]
        reasons = "SELECT reason, detail, key->>'id' FROM gapless.exception ORDER BY reason"
        assert scene.rows(reasons) == [
            ("check", "SQLSTATE 23514, constraint afford", "a-3"),
            ("duplicate_child", "cards[1] has the key of cards[0]", "a-4"),
        ]
        scene.db.execute("ALTER TABLE cards DROP CONSTRAINT afford")
        request(scene.db, "retry", by="op", note="", now=datetime.now(UTC), reason="check")
        scene.until("SELECT state FROM gapless.exception WHERE reason = 'check'", "resolved")
        assert cards(scene)[2:] == [("a-3", "a", 100)]
        scene.put(begin("s1"), listed, complete(listed, kind="snapshot_complete"))
        scene.settle()
    assert cards(scene) == [("a-1", "b", 5), ("a-1", "c", 6)]
    alive = "SELECT id FROM accounts WHERE NOT _deleted ORDER BY id"
    assert scene.rows(alive) == [("a-1",), ("a-2",)]
