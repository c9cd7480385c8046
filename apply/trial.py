"""Which record ends the process: what is tried next, after what was in hand when it ended. Pure.

Before anything is tried, its trial is stored; who takes over finds it there, and tries less at once:
several log records, one, its value, then ever fewer of its records. A record or a value is blamed
only when it stood there alone, twice: a process may end for any reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

_ENDS = 2
_SHARE = 16
"""Into so many parts a stretch of records is cut when it is tried again."""


class Stage(StrEnum):
    """What a trial does with its log records."""

    TOGETHER = "together"  # everything with all of them, in one batch
    VALUE = "value"  # reads the value of one
    RECORDS = "records"  # maps and stores some of its records, for trial
    REST = "rest"  # everything with one, less the records that are to blame
    GIVEN_UP = "given_up"  # nothing: it is to blame as a whole


@dataclass(frozen=True, slots=True)
class Trial:
    """Log records with offsets in `[start, end)`, `count` of them.

    `first`, `last`: the stretch of records in hand, by position in the page; `narrow`: up to there
    records are tried as few at a time as the last stretch was; `poison`: positions that are to
    blame; `ended`: how often the process has ended just here.
    """

    start: int
    end: int
    count: int = 1
    stage: Stage = Stage.TOGETHER
    first: int = 0
    last: int = 0
    narrow: int = 0
    poison: tuple[int, ...] = ()
    ended: int = 0

    def stored(self, generation: int) -> dict[str, Any]:
        """As JSON has it, with the generation of the log that its offsets are of."""
        return {**asdict(self), "generation": generation}


def read(stored: Mapping[str, Any] | None, generation: int, next_offset: int) -> Trial | None:
    """What was stored, unless it has been passed since, or the log is another one."""
    if stored is None or stored["generation"] != generation:
        return None
    values = {name: value for name, value in stored.items() if name != "generation"}
    poison = tuple(values["poison"])
    found = Trial(**{**values, "stage": Stage(values["stage"]), "poison": poison})
    return found if found.end > next_offset else None


def after_end(trial: Trial) -> Trial:
    """What to try now that the process has ended over this."""
    again = replace(trial, ended=trial.ended + 1)
    match trial.stage:
        case Stage.TOGETHER if trial.count > 1:
            return again  # each of them alone
        case Stage.TOGETHER:
            return replace(trial, stage=Stage.VALUE, ended=0)
        case Stage.RECORDS if trial.last - trial.first > 1:
            width = -(-(trial.last - trial.first) // _SHARE)
            narrow = max(trial.narrow, trial.last)
            return replace(trial, last=trial.first + width, narrow=narrow, ended=0)
        case _ if again.ended < _ENDS or trial.stage is Stage.GIVEN_UP:
            return again
        case Stage.RECORDS:
            blamed = (*trial.poison, trial.first)
            return replace(trial, first=trial.last, poison=blamed, ended=0)
        case _:
            return replace(trial, stage=Stage.GIVEN_UP, ended=0)


def read_value(trial: Trial, records: int) -> Trial:
    """The value could be read, and holds so many records."""
    return _next(replace(trial, stage=Stage.RECORDS, ended=0), records)


def passed(trial: Trial, records: int) -> Trial:
    """The stretch in hand did no harm."""
    return _next(replace(trial, first=trial.last, ended=0), records)


def _next(trial: Trial, records: int) -> Trial:
    """The next stretch, or what is left once all were tried."""
    if trial.first >= records:
        return replace(trial, stage=Stage.REST)
    if trial.first < trial.narrow:
        return replace(trial, last=min(trial.first + 1, records))
    width = max(1, -(-records // _SHARE // _SHARE))
    return replace(trial, last=min(trial.first + width, records))
