"""However often a record is read, one row stands for it, and no content is lost behind it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from apply.exception_states import OPEN, Event, State
from apply.same_record import Where, digest, fingerprint
from apply.sightings import Standing, Verdict, judge

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CONTENTS = [digest(b"one"), digest(b"two"), None]
_STATES = (State.RETRYABLE, State.QUARANTINED, State.DISMISSED)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Standing], set[Where]]:
    """Rows of one group as the query returns them, and which are new."""
    rows, new = [], set()
    for offset in draw(st.lists(st.integers(0, 30), unique=True, max_size=6)):
        state = draw(st.sampled_from(_STATES))
        where = Where(1, 0, 0, offset, draw(st.integers(0, 2)))
        fresh = state in OPEN and draw(st.booleans())
        due = NOW + timedelta(seconds=draw(st.sampled_from((-5, 5))))
        seen = NOW - timedelta(hours=draw(st.integers(0, 9)))
        rows.append(
            Standing(
                where, state, draw(st.sampled_from(CONTENTS)), 1 if fresh else draw(st.integers(1, 5)),
                seen, seen + timedelta(minutes=1), draw(st.integers(0, 9)),
                due if state is State.RETRYABLE else None,
                draw(st.sampled_from((None, NOW))),
            )
        )  # fmt: skip
        if fresh:
            new.add(where)
    return rows, new


def _after(rows: list[Standing], verdict: Verdict) -> list[Standing]:
    """The rows as the verdict leaves them."""
    reached = {
        Event.REPEAT: State.REPEATED, Event.KNOWN: State.DISMISSED,
        Event.RETRY: State.RETRYABLE, Event.EXHAUST: State.QUARANTINED,
    }  # fmt: skip
    found = {one.where: one for one in rows}
    for event, where in verdict.events:
        found[where] = replace(found[where], state=reached[event])
    for where, _ in verdict.covered:
        found[where] = replace(found[where], sightings=0)
    for one in verdict.stands:
        assert found[one.where].state is one.state
        found[one.where] = one
    return list(found.values())


@given(groups())
def test_one_row_stands_for_all_and_no_sighting_is_lost(
    given_: tuple[list[Standing], set[Where]],
) -> None:
    rows, new = given_
    verdict = judge(rows, new, NOW)
    after = _after(rows, verdict)
    assert sum(one.sightings for one in after) == sum(one.sightings for one in rows)
    due = [one for one in rows if one.where not in new and one.due_at and one.due_at <= NOW]
    opened = [one for one in after if one.state in OPEN and one.where not in {d.where for d in due}]
    assert len(opened) <= 1
    repeated = [one for one in after if one.state is State.REPEATED]
    if repeated:
        (head,) = opened
        assert head.order == max(one.order for one in (head, *repeated))
        assert head.first_seen_at <= min(one.first_seen_at for one in repeated)
    same = dict(verdict.covered)
    for one in repeated:  # bytes go only where the row that stands for them has the same
        assert same[one.where] == (one.content == opened[0].content)


@given(groups())
def test_what_was_dismissed_stays_dismissed_and_what_changed_is_shown(
    given_: tuple[list[Standing], set[Where]],
) -> None:
    rows, new = given_
    known = {one.content for one in rows if one.state is State.DISMISSED} - {None}
    after = {one.where: one for one in _after(rows, judge(rows, new, NOW))}
    for where in new:
        dismissed = after[where].state is State.DISMISSED
        assert dismissed == (after[where].content in known)


@given(groups())
def test_a_group_keeps_the_state_it_had(given_: tuple[list[Standing], set[Where]]) -> None:
    rows, new = given_
    verdict = judge(rows, new, NOW)
    known = [one for one in rows if one.state in OPEN and one.where not in new]
    known = [one for one in known if one.due_at is None or one.due_at > NOW]
    heads = [one for one in verdict.stands if one.state in OPEN]
    if known and heads:
        latest = max(known, key=lambda one: one.order)
        assert (heads[0].state, heads[0].due_at) == (latest.state, latest.due_at)


def test_a_record_is_its_key_or_else_its_bytes() -> None:
    assert fingerprint({"a": 1, "b": "x"}, b"1") == fingerprint({"b": "x", "a": 1}, b"2")
    assert fingerprint({"a": 1}, b"1") != fingerprint({"a": "1"}, b"1")
    assert fingerprint(None, digest(b"raw")) == digest(b"raw")
    assert fingerprint(None, None) is None
