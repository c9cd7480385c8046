"""Children through the whole of apply: replayed under a new version, changed, refused, retried, swept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from apply.replay import run_dry, run_replay
from apply.replay_report import ChildDiff
from apply.requests import request
from apply.shadow import run_shadow
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
    dry = run_dry(scene.settings, definitions, "accounts").diff
    assert dry is not None
    assert (dry.changed, dry.children) == (0, {"cards": ChildDiff(added=4)})
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
    _swapped_and_back(scene)


def _swapped_and_back(scene: Scene) -> None:
    """Another type of a child's column: a table beside, filled as the live one was, and exchanged."""
    old = scene.definitions
    scene.db.execute("ALTER TABLE cards ADD CONSTRAINT afford CHECK (spent < 100)")
    new = scene.write(
        3, **{"events:": CARDS["events:"].replace("spent: integer", "spent: 'numeric(8,2)'")}
    )
    dry = run_dry(scene.settings, new, "accounts")
    assert dry.why_shadow == ["column spent of cards is integer, would be numeric(8,2)"]
    assert dry.diff is not None
    assert dry.diff.children == {"cards": ChildDiff(changed=2)}
    scene.put(page([holder(7, x=7), holder(8, x=100)], number=7))
    scene.definitions = old
    with scene.applying():
        scene.settle()
    assert run_shadow(scene.settings, new, "accounts").swapped
    kinds = "SELECT pg_typeof(spent)::text, count(*), sum(spent)::int FROM {}.cards GROUP BY 1"
    assert scene.rows(kinds.format("public")) == [("numeric", 3, 18)]
    assert scene.rows(kinds.format("gapless_beside")) == [("integer", 3, 18)]
    scene.definitions = new
    with scene.applying():
        scene.put(page([holder(1, 3, y=1)], number=8))
        scene.settle()
        assert cards(scene) == [("a-1", "y", 1), ("a-7", "x", 7)]
    assert run_shadow(scene.settings, old, "accounts", back=True).swapped
    assert scene.rows(kinds.format("public")) == [("integer", 2, 8)]
