"""The note beside a mirrored offset: read as it was written, whatever else may stand there."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.log.pause import Pause, of_note, to_note

texts = st.text(max_size=200)


@given(st.builds(Pause, texts, st.integers(0, 1 << 62), texts))
def test_a_note_says_what_was_meant(pause: Pause) -> None:
    assert of_note(to_note(pause)) == pause


@given(st.builds(Pause, st.text(), st.integers(0, 1 << 62), st.text(min_size=2000)))
def test_it_stays_below_what_brokers_keep(pause: Pause) -> None:
    note = to_note(pause)
    assert len(note) < 4096
    assert of_note(note) is not None


def test_nothing_to_say() -> None:
    assert to_note(None) == ""
    assert of_note(None) is None
    assert of_note("") is None


@pytest.mark.parametrize(
    "text",
    ["x", "[]", "1", "{}", '{"reason": "r", "since": 1, "worker": "w"}',
     json.dumps({"form": "gapless-pause-1", "reason": "r", "since": True, "worker": "w"}),
     json.dumps({"form": "gapless-pause-1", "reason": None, "since": 1, "worker": "w"})],
)  # fmt: skip
def test_what_others_wrote_is_nothing(text: str) -> None:
    assert of_note(text) is None
