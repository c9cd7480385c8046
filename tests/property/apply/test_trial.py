"""However a process ends, its poison records are found, and nobody else is blamed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from apply.trial import Stage, Trial, after_end, passed, read, read_value

_PAGES = st.integers(1, 600).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=4))
)


def _life(trial: Trial, records: int, kills: set[int]) -> tuple[Trial, bool]:
    """One process from its start: how far it comes, and whether it comes through."""
    if trial.stage is Stage.TOGETHER:
        return trial, not kills
    if trial.stage is Stage.VALUE:
        trial = read_value(trial, records)
    elif trial.stage is Stage.RECORDS and trial.last <= trial.first:
        trial = passed(trial, records)
    while trial.stage is Stage.RECORDS:
        if kills & set(range(trial.first, trial.last)):
            return trial, False
        trial = passed(trial, records)
    return trial, trial.stage is Stage.GIVEN_UP or not kills - set(trial.poison)


def _stored(trial: Trial) -> Trial:
    found = read(trial.stored(3), 3, trial.start)
    assert found is not None
    return found


@settings(max_examples=300)
@given(page=_PAGES)
def test_exactly_the_poison_is_found(page: tuple[int, set[int]]) -> None:
    records, kills = page
    trial, through = _life(Trial(7, 8), records, kills)
    ends = 0
    while not through:
        ends += 1
        trial, through = _life(after_end(_stored(trial)), records, kills)
    assert set(trial.poison) == kills
    assert trial.stage is not Stage.GIVEN_UP
    assert ends <= 1 + 5 * len(kills)


@given(records=st.integers(0, 50))
def test_what_kills_only_as_a_whole_is_given_up(records: int) -> None:
    """Every record alone does no harm, but the page does."""
    trial, ends = Trial(7, 8), 0
    while trial.stage is not Stage.GIVEN_UP:
        trial = after_end(_stored(trial))
        ends += 1
        if trial.stage is not Stage.GIVEN_UP:
            trial, _ = _life(trial, records, set())
    assert trial.first == records, "so it can be read"
    assert not trial.poison
    assert ends == 3


def test_a_value_that_cannot_be_read_is_given_up() -> None:
    trial = after_end(Trial(7, 8))
    assert trial.stage is Stage.VALUE
    assert after_end(trial).stage is Stage.VALUE, "once is chance"
    assert after_end(after_end(trial)) == Trial(7, 8, stage=Stage.GIVEN_UP)


def test_one_end_blames_nobody() -> None:
    alone = Trial(7, 8, stage=Stage.RECORDS, first=4, last=5)
    assert after_end(alone).poison == ()
    assert after_end(after_end(alone)).poison == (4,)
    assert passed(after_end(alone), 9).ended == 0


def test_several_log_records_are_tried_one_by_one() -> None:
    assert after_end(Trial(7, 20, count=9)).count == 9


def test_what_was_passed_or_is_of_another_log_is_forgotten() -> None:
    stored = Trial(7, 20, count=9).stored(1)
    assert read(stored, 1, 19) == Trial(7, 20, count=9)
    assert read(stored, 1, 20) is None
    assert read(stored, 2, 8) is None
    assert read(None, 1, 0) is None
