"""A key that some index cannot hold is one record's fault, wherever that index stands."""

from __future__ import annotations

import json
import string
from random import Random
from typing import Any

from tests.integration.apply.scene import Scene, account, begin, complete, page

# Nothing that Postgres could compress, in which every other character takes two bytes in JSON.
_DICE = Random(7)
_ODD = "".join(_DICE.choice('"\\\n\t') + _DICE.choice(string.ascii_letters) for _ in range(3_000))


def _named(name: str) -> dict[str, Any]:
    return {**account(0), "id": name}


def test_keys_that_the_indexes_of_presence_and_events_cannot_hold(scene: Scene) -> None:
    longest = _ODD[:1_332]
    assert len(json.dumps(longest)) == 2_000
    longer = [_ODD[1:1_801], _ODD[:2_600], _ODD, longest + "x"]
    listed = page(
        [_named(longest), *map(_named, longer), account(1)], plan="snapshot", scope="s1", pass_="s"
    )
    with scene.applying():
        scene.put(page([account(1), *map(_named, longer), _named(longest)]))
        scene.put(begin("s1"), listed, complete(listed, kind="snapshot_complete"))
        scene.settle()
        scene.put(page([{**_named(longest), "version": 2, "balance": "7"}], number=2))
        scene.settle()
    assert scene.rows("SELECT length(id), source_revision FROM accounts ORDER BY 1") == [
        (3, 1), (1_332, 2),
    ]  # fmt: skip
    assert scene.rows("SELECT DISTINCT reason FROM gapless.exception") == [("too_long",)]
    assert scene.value("SELECT count(*) FROM gapless.outbox WHERE topic = 'changes'") == 3
    assert scene.rows("SELECT state FROM gapless.snapshot") == [("kept",)]
