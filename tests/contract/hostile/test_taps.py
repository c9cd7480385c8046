"""A tap whose STATE says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ingest.taps.tapping import run


@pytest.mark.parametrize("value", ["{}", "null"])
def test_an_empty_state_in_the_middle_skips_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The tap forgets where it is, gives some more and breaks: it is asked for everything again."""
    monkeypatch.setattr("ingest.taps.poller.backoff_s", lambda attempt, share: 0.0)
    empty = f'say:{{"type": "STATE", "value": {value}}}'
    tapped = run(tmp_path, {"state_every": 3, "faults": {"7": empty, "8": "exit:1"}})
    assert tapped.claims_too_much() == []
    assert [one["from"] for one in tapped.runs] == [0, 0]
    assert (tapped.blocked, tapped.done) == ("", 10)
    assert set(tapped.numbers) == set(range(10))


@pytest.mark.parametrize("value", ["{}", "null"])
def test_an_empty_state_as_the_last_word_reads_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr("ingest.taps.poller.backoff_s", lambda attempt, share: 0.0)
    empty = f'say:{{"type": "STATE", "value": {value}}}'
    config = {"state_every": 3, "ends": False, "faults": {"9": empty}}
    tapped = run(tmp_path, config)
    assert tapped.claims_too_much() == []
    assert set(tapped.numbers) == set(range(10))
    # The last record had no STATE behind it, so another run was made, from nothing.
    assert [one["from"] for one in tapped.runs][:2] == [0, 0]
