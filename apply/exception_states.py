"""What an exception can become: every state under every event, decided here and nowhere else. Pure.

Invariant: an open exception ends only by a try, by a decision of somebody, because a newer state of
its entity is known, or because another version speaks for its record, for as long as that one is live. Absent on purpose: SQL; `apply.exceptions` asks this table before it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """What `exception.state` says; GONE is no row at all."""

    RETRYABLE = "retryable"  # tried again when it is due
    QUARANTINED = "quarantined"  # waits for a mapping or for somebody
    REPEATED = "repeated"  # an open row of a later observation of the record stands for it
    RESOLVED = "resolved"  # its record became a row, or was beaten by one
    DISMISSED = "dismissed"  # somebody has decided that it stays out
    GONE = "gone"


class Event(StrEnum):
    """What can happen to an exception."""

    FAIL = "failed"  # a try failed, and waiting may cure it
    REFUSE = "refused"  # a try failed, and waiting cures nothing
    EXHAUST = "exhausted"  # the last of its tries failed
    LAND = "landed"  # a try became a row, or was beaten by one
    RETRY = "retry"  # an operator wants it tried again
    DISMISS = "dismissed"  # an operator decides that it stays out
    REMAP = "new mapping"  # a newer version of its mapping is in use
    REPEAT = "seen again"  # a later observation of its record stands for it now
    KNOWN = "known"  # the very same record was dismissed before
    PROMOTE = "uncovered"  # what stood for it ended, and its own content is another
    SUPERSEDE = "superseded"  # the row of its entity is newer
    REPLAY = "replayed"  # a replay of a newer version has judged its record
    RECALL = "recalled"  # the version that refused it is live again: a swap was taken back
    RECALL_REPEATED = "recalled as seen again"  # the same, where another row stood for it
    EXPIRE = "expired"  # its evidence is older than it has to be kept


OPEN = (State.QUARANTINED, State.RETRYABLE)
"""What somebody or something still has to decide about."""

_RETRYABLE: Mapping[Event, State | None] = {
    Event.FAIL: State.RETRYABLE,
    Event.REFUSE: State.QUARANTINED,
    Event.EXHAUST: State.QUARANTINED,
    Event.LAND: State.RESOLVED,
    Event.RETRY: State.RETRYABLE,
    Event.DISMISS: State.DISMISSED,
    Event.REMAP: None,  # its next try uses the newest version anyway
    Event.REPEAT: State.REPEATED,
    Event.KNOWN: State.DISMISSED,
    Event.PROMOTE: None,
    Event.SUPERSEDE: None,  # its next try finds that out
    Event.REPLAY: State.DISMISSED,
    Event.RECALL: None,
    Event.RECALL_REPEATED: None,
    Event.EXPIRE: None,
}
_QUARANTINED: Mapping[Event, State | None] = {
    Event.FAIL: None,  # nothing in quarantine is tried before it is due again
    Event.REFUSE: None,
    Event.EXHAUST: None,
    Event.LAND: None,
    Event.RETRY: State.RETRYABLE,
    Event.DISMISS: State.DISMISSED,
    Event.REMAP: State.RETRYABLE,
    Event.REPEAT: State.REPEATED,
    Event.KNOWN: State.DISMISSED,
    Event.PROMOTE: None,
    Event.SUPERSEDE: State.RESOLVED,
    Event.REPLAY: State.DISMISSED,
    Event.RECALL: None,
    Event.RECALL_REPEATED: None,
    Event.EXPIRE: None,  # what is open is never dropped
}
_REPEATED: Mapping[Event, State | None] = {
    Event.FAIL: None,
    Event.REFUSE: None,
    Event.EXHAUST: None,
    Event.LAND: None,
    Event.RETRY: State.RETRYABLE,
    Event.DISMISS: State.DISMISSED,
    Event.REMAP: State.RETRYABLE,
    Event.REPEAT: None,
    Event.KNOWN: None,
    Event.PROMOTE: State.RETRYABLE,
    Event.SUPERSEDE: State.RESOLVED,
    Event.REPLAY: State.DISMISSED,
    Event.RECALL: None,
    Event.RECALL_REPEATED: None,
    Event.EXPIRE: None,
}
_ENDED: Mapping[Event, State | None] = dict.fromkeys(Event)
TABLE: Mapping[State, Mapping[Event, State | None]] = {
    State.RETRYABLE: _RETRYABLE,
    State.QUARANTINED: _QUARANTINED,
    State.REPEATED: _REPEATED,
    State.RESOLVED: {**_ENDED, Event.EXPIRE: State.GONE},
    # the row stays as the proof of its record's outcome; only the evidence goes
    State.DISMISSED: {
        **_ENDED,
        Event.RECALL: State.QUARANTINED,
        Event.RECALL_REPEATED: State.REPEATED,
        Event.EXPIRE: State.DISMISSED,
    },
    State.GONE: _ENDED,
}
"""The state after each event; None: refused, nothing changes."""


def sources(event: Event, target: State | None = None) -> tuple[State, ...]:
    """The states in which an event is taken; with `target`, only those that it leads there from."""
    return tuple(
        state
        for state in State
        if (after := TABLE[state][event]) is not None and target in (None, after)
    )


def target(event: Event) -> State:
    """Where an event leads that leads to one state only. Raises ValueError for EXPIRE."""
    found = {after for row in TABLE.values() if (after := row[event]) is not None}
    if len(found) != 1:
        raise ValueError(f"{event} leads to {sorted(found)}")
    return found.pop()
