"""`gapless replay`: what it tells while it runs, and a name that it does not know."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from apply.replay import Progress
from ops import problems
from ops.cli import replay


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _progress(done: int) -> Progress:
    return Progress(done=done, total=1_000, pages=done // 2, outcomes=())


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    tell = replay.Teller(out)
    for second in range(25):
        now[0] = float(second)
        tell(_progress(second * 40))
    tell.end()
    assert out.getvalue() == (
        " 40%  400 of 1,000 offsets, 200 pages\n 80%  800 of 1,000 offsets, 400 pages\n"
    )


def test_one_line_that_changes_on_a_terminal() -> None:
    out = Terminal()
    tell = replay.Teller(out)
    tell(_progress(500))
    tell.end()
    assert out.getvalue() == "\r\x1b[K 50%  500 of 1,000 offsets, 250 pages\r\x1b[K"


def test_a_mapping_that_is_not_there_is_a_wrong_argument() -> None:
    folder = Path(__file__).parents[3] / "ops/demo/definitions"
    with pytest.raises(problems.Stop) as stopped:
        replay.replay("normalised_accounts", definitions=folder)
    assert stopped.value.problem == problems.Problem(
        "There is no mapping normalised_accounts; known: normalized_accounts, pipeline_events.",
        problems.USAGE,
    )
