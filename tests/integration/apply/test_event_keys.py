"""One entity has one key in all its events, however its number is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.apply.scene import Scene, account, begin, complete, page

_NUMBERED = {"  id: text\n": "  id: numeric\n"}


def _numbered(number: str, version: int, **more: Any) -> dict[str, Any]:
    return {**account("", version, **more), "id": number}


def test_equal_numbers_are_one_entity_in_events(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(partitions=1, changed=_NUMBERED)
    forms = ("100", "1E+2", "100.0", "1000e-1")
    with scene.applying():
        for version, form in enumerate(forms, 1):
            scene.put(page([_numbered(form, version, balance=str(version))], number=version))
            scene.settle()
        others = [_numbered("7.50", 1), _numbered("-0", 1), _numbered("0.00000001", 1)]
        scene.put(page(others, number=9))
        listed = page(
            [_numbered("7.5", 1), _numbered("1e-8", 1), _numbered("0", 1)],
            plan="snapshot", scope="s1", pass_="s", number=1,
        )  # fmt: skip
        scene.put(begin("s1"), listed, complete(listed, kind="snapshot_complete"))
        scene.settle()
    found = scene.rows("SELECT key, array_agg(effect ORDER BY id) FROM gapless.outbox GROUP BY 1")
    assert dict(found) == {
        '["100","north"]': ["created", "changed", "changed", "changed", "deleted"],
        '["7.5","north"]': ["created"],
        '["0","north"]': ["created"],
        '["0.00000001","north"]': ["created"],
    }


def test_a_text_that_postgres_fills_up_is_one_entity_in_events(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(partitions=1, changed={"  id: text\n": "  id: char(5)\n"})
    kept, gone = (_numbered(name, 1) for name in ("a b", "c  "))
    with scene.applying():
        scene.put(page([kept, gone]))
        listed = page([kept], plan="snapshot", scope="s1", pass_="s", number=1)
        scene.put(begin("s1"), listed, complete(listed, kind="snapshot_complete"))
        scene.settle()
    found = scene.rows("SELECT key, effect FROM gapless.outbox ORDER BY id")
    assert found == [
        ('["a b","north"]', "created"), ('["c","north"]', "created"), ('["c","north"]', "deleted"),
    ]  # fmt: skip
