"""Triggers that keep nothing of a row, without an error: no record counts as applied that is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apply.straight import Straight
from schemas.records import Observation
from tests.integration.apply.scene import Scene, account, page
from tests.integration.apply.test_children_applied import CARDS, cards, holder

_CHILDREN = {**CARDS, "\nevents: {": "\n# events: {"}


def _trigger(when: str, table: str, body: str) -> bytes:
    return (
        f"CREATE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;"
        f" CREATE TRIGGER odd BEFORE {when} ON {table} FOR EACH ROW EXECUTE FUNCTION odd()"
    ).encode()


def _notes(version: int, number: int, *others: dict[str, Any]) -> Observation:
    notes = [{"id": f"n-{at}", "version": version, "account": "7"} for at in range(4)]
    return page([*notes, *others], owner="crm/notes/north", number=number)


def _refused(scene: Scene) -> list[tuple[Any, ...]]:
    return scene.rows("SELECT state, reason, key->>'id' FROM gapless.exception ORDER BY 3")


@pytest.mark.parametrize("straight", [False, True])
def test_a_row_that_a_trigger_drops_is_quarantined(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, straight: bool
) -> None:
    """Its older state, which the trigger lets pass, stands as if the newer one had never come."""
    monkeypatch.setattr(Straight, "pays", lambda *_: straight)
    scene = make_scene(partitions=1)
    drops = "IF NEW.id = 'n-2' OR NEW.body = 'no' THEN RETURN NULL; END IF;"
    scene.db.execute(_trigger("INSERT OR UPDATE", "notes", drops))
    newer = {"id": "n-1", "version": 2, "account": "8", "body": "no"}
    with scene.applying():
        scene.put(_notes(1, 1, newer))
        scene.settle()
        assert scene.balance() == {"applied": 3, "quarantined": 2}
        refused = ("quarantined", "refused_by_sink")
        assert _refused(scene) == [(*refused, "n-1"), (*refused, "n-2")]
        scene.put(_notes(3, 2))
        scene.settle()
    assert scene.balance() == {"applied": 6, "quarantined": 3}
    assert scene.rows("SELECT id, source_revision FROM notes ORDER BY 1") == [
        ("n-0", 3), ("n-1", 3), ("n-3", 3),
    ]  # fmt: skip


def test_an_update_that_a_trigger_drops_is_not_superseded(scene: Scene) -> None:
    """What stands is older; and what is older than it is superseded all the same."""
    drops = "IF NEW.id = 'n-2' THEN RETURN NULL; END IF;"
    with scene.applying():
        scene.put(_notes(2, 1))
        scene.settle()
        scene.db.execute(_trigger("UPDATE", "notes", drops))
        scene.put(_notes(3, 2, {"id": "n-9", "version": 1, "account": "7"}))
        scene.settle()
        assert scene.balance() == {"applied": 8, "quarantined": 1}
        scene.put(_notes(1, 3))
        scene.settle()
    assert scene.balance() == {"applied": 8, "quarantined": 1, "superseded": 4}
    assert _refused(scene) == [("quarantined", "refused_by_sink", "n-2")]


def test_a_row_whose_child_a_trigger_drops_is_quarantined(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(partitions=1, changed=_CHILDREN)
    drops = "IF NEW.number = 'b' THEN RETURN NULL; END IF;"
    scene.db.execute(_trigger("INSERT", "cards", drops))
    with scene.applying():
        scene.put(page([holder(1, a=1), holder(2, a=1, b=2), holder(3, c=3)]))
        scene.settle()
    assert scene.balance() == {"applied": 2, "quarantined": 1}
    assert scene.rows("SELECT id FROM accounts ORDER BY 1") == [("a-1",), ("a-3",)]
    assert cards(scene) == [("a-1", "a", 1), ("a-3", "c", 3)]


def test_a_row_whose_key_a_trigger_changes_has_no_event_and_ends_no_worker(scene: Scene) -> None:
    changes = "IF NEW.id = 'a-2' THEN NEW.id := 'other'; END IF;"
    scene.db.execute(_trigger("INSERT", "accounts", changes))
    with scene.applying():
        scene.put(page([account(number) for number in range(4)]))
        scene.settle()
    assert scene.balance() == {"applied": 3, "quarantined": 1}
    assert scene.rows("SELECT id FROM accounts ORDER BY 1") == [("a-0",), ("a-1",), ("a-3",)]
    assert scene.value("SELECT count(*) FROM gapless.outbox WHERE effect = 'created'") == 3
