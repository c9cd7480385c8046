"""Every state under every event: what an exception can become, and what it never can."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from apply.exception_states import OPEN, TABLE, Event, State, sources, target

# the whole table once more, as a reader of the decision record draws it
_WANTED = {
    Event.FAIL: {State.RETRYABLE: State.RETRYABLE},
    Event.REFUSE: {State.RETRYABLE: State.QUARANTINED},
    Event.EXHAUST: {State.RETRYABLE: State.QUARANTINED},
    Event.LAND: {State.RETRYABLE: State.RESOLVED},
    Event.RETRY: dict.fromkeys(
        (State.RETRYABLE, State.QUARANTINED, State.REPEATED), State.RETRYABLE
    ),
    Event.DISMISS: dict.fromkeys(
        (State.RETRYABLE, State.QUARANTINED, State.REPEATED), State.DISMISSED
    ),
    Event.REMAP: dict.fromkeys((State.QUARANTINED, State.REPEATED), State.RETRYABLE),
    Event.REPEAT: dict.fromkeys((State.RETRYABLE, State.QUARANTINED), State.REPEATED),
    Event.KNOWN: dict.fromkeys((State.RETRYABLE, State.QUARANTINED), State.DISMISSED),
    Event.PROMOTE: {State.REPEATED: State.RETRYABLE},
    Event.SUPERSEDE: dict.fromkeys((State.QUARANTINED, State.REPEATED), State.RESOLVED),
    Event.REPLAY: dict.fromkeys(
        (State.RETRYABLE, State.QUARANTINED, State.REPEATED), State.DISMISSED
    ),
    Event.RECALL: {State.DISMISSED: State.QUARANTINED},
    Event.RECALL_REPEATED: {State.DISMISSED: State.REPEATED},
    Event.EXPIRE: {State.RESOLVED: State.GONE, State.DISMISSED: State.DISMISSED},
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_every_transition_is_the_declared_one(state: State, event: Event) -> None:
    assert TABLE[state][event] == _WANTED[event].get(state)
    assert (state in sources(event)) == (state in _WANTED[event])


def test_what_is_open_is_never_dropped() -> None:
    for state in (*OPEN, State.REPEATED):
        assert State.GONE not in TABLE[state].values()


def test_every_open_state_can_end_and_no_end_opens_again_but_by_a_swap_back() -> None:
    recalls = (Event.RECALL, Event.RECALL_REPEATED)
    ends = {State.RESOLVED, State.DISMISSED, State.GONE}
    for state in (*OPEN, State.REPEATED):
        assert TABLE[state][Event.DISMISS] is State.DISMISSED
    for state in ends:
        after = {to for event, to in TABLE[state].items() if to and event not in recalls}
        assert after <= ends


def test_an_event_says_where_it_leads() -> None:
    for event in Event:
        if event is Event.EXPIRE:
            with pytest.raises(ValueError, match="leads to"):
                target(event)
            assert sources(event, State.GONE) == (State.RESOLVED,)
        else:
            assert {target(event)} == set(_WANTED[event].values())


def test_no_statement_sets_a_state_beside_the_table() -> None:
    """A state is a parameter of `move`; a literal one would go past the table."""
    for file in resources.files("apply").joinpath("sql").iterdir():
        text = file.read_text("utf-8")
        for assigned in re.findall(
            r"UPDATE gapless\.exception\b.*?\bSET\b(.*?)\bWHERE\b", text, re.S
        ):
            said = re.findall(r"\bstate\s*=\s*(\S+)", assigned.split("\n  FROM")[0])
            assert set(said) <= {"%(target)s,"}, file.name
