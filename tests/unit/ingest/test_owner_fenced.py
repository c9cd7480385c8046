"""An owner that is fenced again and again: it stays away longer, says who writes, and once ends."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from ingest import owner as module
from ingest.faults import Fenced, Refused
from ingest.owner import Owner
from ingest.restore import Restored
from schemas.settings import Settings

Lines = list[MutableMapping[str, Any]]


class Log:
    """Takes over, and finds that another worker wrote last."""

    async def take_over(self) -> Restored:
        return Restored({}, {}, -1, -1, worker="theirs-host-77")

    def abandon(self) -> None:
        pass


class Ownership:
    """Fenced as soon as it writes; `left` more times, then it is refused for good."""

    left = 0
    unfinished: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    committed = 1

    def __init__(self, *_: object) -> None:
        pass

    async def run(self, _stop: asyncio.Event) -> None:
        if type(self).left == 0:
            raise Refused("the test ends here")
        type(self).left -= 1
        raise Fenced("producer fenced")


def run(monkeypatch: pytest.MonkeyPatch, fences: int, *, endless: bool) -> tuple[str, Lines]:
    """What ended the owner, and its lines about being fenced. It does not really wait."""
    monkeypatch.setattr(module, "Ownership", Ownership)
    monkeypatch.setattr(Ownership, "left", fences)
    around: Any = SimpleNamespace(
        settings=Settings(worker="ours-1", prefix="shop.", session_timeout_ms=10_000),
        pace=SimpleNamespace(endless=endless),
    )
    log: Any = Log()
    owner = Owner(0, around, {}, lambda: log)

    async def at_once(_wait_s: float) -> None:
        pass

    monkeypatch.setattr(owner, "_pause", at_once)
    with capture_logs() as lines, pytest.raises(Refused) as ended:
        asyncio.run(owner.run())
    return str(ended.value), [line for line in lines if line["event"] == "fenced"]


def test_a_service_stays_away_longer_and_longer_but_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, lines = run(monkeypatch, 6, endless=True)
    assert ended == "the test ends here"
    assert [line["wait_s"] for line in lines] == [10.0, 20.0, 40.0, 60.0, 60.0, 60.0]
    assert [line["log_level"] for line in lines] == ["warning", *["error"] * 5]
    assert "theirs-host-77" not in lines[0]["hint"]
    for part in ("theirs-host-77", "prefix shop. too", "GAPLESS_PREFIX of its own"):
        assert part in lines[1]["hint"], part


def test_a_run_that_must_end_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, lines = run(monkeypatch, 10, endless=False)
    assert len(lines) == 4
    assert "log partition 0: fenced 5 times in a row" in ended
    assert "theirs-host-77" in ended
    assert "GAPLESS_PREFIX of its own" in ended
