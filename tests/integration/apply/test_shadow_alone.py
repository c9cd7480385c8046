"""One replay beside live at a time, and the next one soon after the one before has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from apply import shadow
from apply.replay_report import ReplayRefused
from apply.shadow import run_shadow
from tests.integration.apply.scene import Scene
from tests.integration.apply.test_shadow import TO_TEXT, fill
from tests.waiting import wait_until

_HELD = "SELECT pg_advisory_lock(hashtextextended('gapless beside accounts', 0))"
_WAITS = (
    "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
    " WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database())"
)


def test_one_replay_beside_live_waits_for_the_end_of_the_one_before(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make_scene(partitions=1)
    with scene.applying():
        fill(scene)
        scene.settle()
    definitions = scene.write(2, **TO_TEXT)
    with psycopg.connect(scene.lane.postgres, autocommit=True) as before:
        before.execute(_HELD)
        with monkeypatch.context() as patched:
            patched.setattr(shadow, "_OTHER_ENDS_MS", 100)
            with pytest.raises(ReplayRefused, match="another process replays accounts"):
                run_shadow(scene.settings, definitions, "accounts")

        def end() -> None:
            wait_until(lambda: scene.value(_WAITS), 60, "the next one waits")
            before.close()

        ending = threading.Thread(target=end)
        ending.start()
        run_shadow(scene.settings, definitions, "accounts", swap=False)
        ending.join()
    assert scene.value("SELECT count(*) FROM gapless_beside.accounts") > 0
