"""One open exception per record: the latest observation of it stands for the earlier ones.

Every observation keeps a row of its own, as the proof of its outcome; only one of a group is open.
`judge` is pure, `merge` runs inside the batch's transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from apply.exception_states import OPEN, Event, State
from apply.exceptions import Said, arrays, move
from apply.queries import load
from apply.same_record import Group, Where
from apply.sink import Connection

_SQL = load("exceptions")


@dataclass(frozen=True, slots=True)
class Standing:
    """One exception of a group. `sightings` counts the observations that it stands for."""

    where: Where
    state: State
    content: bytes | None
    sightings: int
    first_seen_at: datetime
    last_seen_at: datetime
    attempts: int
    due_at: datetime | None
    copied_at: datetime | None

    @property
    def order(self) -> tuple[int, int, int]:
        """Which observation is later; all of a group lie in one partition."""
        return (self.where.generation, self.where.offset, self.where.index)


@dataclass(slots=True)
class Verdict:
    """What to write about one group. `stands`: rows as they are to be, each with its new counts.

    `covered`: rows that another one stands for, and whether that has the same bytes.
    """

    stands: list[Standing] = field(default_factory=list)
    events: list[tuple[Event, Where]] = field(default_factory=list)
    covered: list[tuple[Where, bool]] = field(default_factory=list)


def judge(rows: Sequence[Standing], new: Collection[Where], now: datetime) -> Verdict:
    """What becomes of the rows of one group: open ones, and dismissed ones that stand for some.

    `new`: those that were written just now. A new row with the very bytes of a dismissed one is
    dismissed with it. Of the others the latest stands for all, in the state that the group had;
    but a row whose try is due now is left alone until it was tried.
    """
    found = Verdict()
    dismissed: dict[bytes | None, Standing] = {
        one.content: one
        for one in sorted(rows, key=lambda one: one.order)
        if one.state is State.DISMISSED and one.content is not None
    }
    opened = []
    for one in sorted((one for one in rows if one.state in OPEN), key=lambda one: one.order):
        if one.where not in new and one.due_at is not None and one.due_at <= now:
            continue
        known = dismissed.get(one.content) if one.where in new else None
        if known is None:
            opened.append(one)
            continue
        dismissed[one.content] = _stands(known, [known, one], known)
        found.events.append((Event.KNOWN, one.where))
        found.covered.append((one.where, True))
    found.stands = [one for one in dismissed.values() if one not in rows]
    if len(opened) > 1:
        _latest_stands(found, opened, new)
    return found


def _latest_stands(found: Verdict, opened: list[Standing], new: Collection[Where]) -> None:
    latest, earlier = opened[-1], opened[:-1]
    known = [one for one in opened if one.where not in new]
    before = known[-1] if known else latest
    if before.state is not latest.state:
        event = Event.RETRY if before.state is State.RETRYABLE else Event.EXHAUST
        found.events.append((event, latest.where))
    found.stands.append(_stands(latest, opened, before))
    for one in earlier:
        found.events.append((Event.REPEAT, one.where))
        found.covered.append((one.where, one.content == latest.content))


def _stands(row: Standing, of: Sequence[Standing], before: Standing) -> Standing:
    """The row with the counts of all that it stands for, and the tries that the group had."""
    copied = [one.copied_at for one in of if one.copied_at is not None]
    return Standing(
        where=row.where,
        state=before.state,
        content=row.content,
        sightings=sum(one.sightings for one in of),
        first_seen_at=min(one.first_seen_at for one in of),
        last_seen_at=max(one.last_seen_at for one in of),
        attempts=max(one.attempts for one in of),
        due_at=before.due_at,
        copied_at=min(copied) if copied else None,
    )


def date_back(connection: Connection, new: Sequence[Where]) -> None:
    """Let new exceptions say since when their records are refused; to ask before they are merged."""
    if new:
        connection.execute(_SQL["since"], arrays(new))


def merge(
    connection: Connection, groups: Iterable[Group], new: Collection[Where], now: datetime
) -> None:
    """Let one row stand for each of these groups."""
    verdicts = [judge(rows, new, now) for rows in _found(connection, set(groups))]
    by_event: dict[Event, list[Where]] = defaultdict(list)
    for verdict in verdicts:
        for event, where in verdict.events:
            by_event[event].append(where)
    for event, places in by_event.items():
        move(connection, event, places, _said(event, now))
    stands = [one for verdict in verdicts for one in verdict.stands]
    if stands:
        connection.cursor().executemany(_SQL["stand"], [_counts(one) for one in stands])
    covered = [one for verdict in verdicts for one in verdict.covered]
    if covered:
        values = [{**asdict(where), "same": same} for where, same in covered]
        connection.cursor().executemany(_SQL["cover"], values)


def _said(event: Event, now: datetime) -> Said:
    if event is Event.KNOWN:
        return Said(now, "apply", "the same record was dismissed before")
    return Said(now)


def _counts(one: Standing) -> dict[str, object]:
    return {
        **asdict(one.where), "sightings": one.sightings, "first_seen_at": one.first_seen_at,
        "last_seen_at": one.last_seen_at, "attempts": one.attempts, "due_at": one.due_at,
        "copied_at": one.copied_at,
    }  # fmt: skip


def _found(connection: Connection, groups: Collection[Group]) -> list[list[Standing]]:
    if not groups:
        return []
    asked = {
        "partition_ids": [one.partition_id_no for one in groups],
        "mapping_versions": [one.mapping_version for one in groups],
        "fingerprints": [one.fingerprint for one in groups],
        "reasons": [one.reason for one in groups],
    }
    found: dict[Group, list[Standing]] = defaultdict(list)
    for row in connection.execute(_SQL["same"], asked):
        group = Group(row[5], row[0], bytes(row[6]), row[7])
        content = None if row[9] is None else bytes(row[9])
        found[group].append(Standing(Where(*row[:5]), State(row[8]), content, *row[10:]))
    return list(found.values())
