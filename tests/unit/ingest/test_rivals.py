"""Being fenced: once is a take-over; again and again it is another deployment on the same prefix."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.restore import last_worker
from ingest.rivals import LAST_WAIT_S, QUIET_S, Rivals
from schemas.records import SourceCheckpoint


def rivals(first_wait_s: float = 10.0) -> Rivals:
    return Rivals("ours-1", "gapless.", first_wait_s)


def test_the_first_fence_is_a_take_over() -> None:
    ours = rivals()
    assert ours.fenced(0.0) == 10.0
    assert not ours.lasting
    assert "took this partition over" in ours.hint()
    assert "GAPLESS_PREFIX" not in ours.hint()


def test_the_next_names_the_other_worker_the_prefix_and_what_to_do() -> None:
    ours = rivals()
    ours.fenced(0.0)
    ours.found("theirs-host-77")
    ours.fenced(30.0)
    hint = ours.hint()
    assert ours.lasting
    for part in ("theirs-host-77", "prefix gapless. too", "GAPLESS_PREFIX of its own", "2 times"):
        assert part in hint, part


def test_our_own_checkpoints_accuse_nobody() -> None:
    ours = rivals()
    ours.found("ours-1")
    ours.found(None)
    ours.fenced(0.0)
    ours.fenced(1.0)
    assert "not known yet" in ours.hint()


def test_the_wait_doubles_up_to_a_minute() -> None:
    ours = rivals()
    assert [ours.fenced(float(at)) for at in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_a_quiet_time_makes_it_begin_again() -> None:
    ours = rivals()
    ours.fenced(0.0)
    ours.fenced(1.0)
    assert ours.fenced(2.0 + QUIET_S) == 10.0
    assert not ours.lasting


@given(st.floats(1.0, 300.0), st.lists(st.floats(0.0, 2000.0), max_size=40))
def test_never_less_than_a_session_never_more_than_a_minute_or_a_session(
    session_s: float, pauses: list[float]
) -> None:
    ours, now_s = rivals(session_s), 0.0
    for pause_s in pauses:
        now_s += pause_s
        assert session_s <= ours.fenced(now_s) <= max(LAST_WAIT_S, session_s)


def checkpoint(worker: str, written_at: int) -> SourceCheckpoint:
    return SourceCheckpoint(
        partition_id="s/a", worker=worker, sequence=1, written_at=written_at, plans={}
    )


def test_the_last_worker_is_the_one_of_the_newest_checkpoint() -> None:
    assert last_worker([]) is None
    assert last_worker([checkpoint("a", 5), checkpoint("b", 9), checkpoint("c", 7)]) == "b"
