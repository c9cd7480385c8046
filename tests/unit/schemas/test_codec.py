"""Values of the log: round trips, damage, and every version ever written stays readable."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from schemas.records import Control, Mark, Observation, Record, SourceCheckpoint

EXAMPLES = Path(codec.__file__).parent / "avro" / "examples"
NAMES = sorted(file.stem for file in EXAMPLES.glob("*.bin"))

micros = st.integers(-(2**62), 2**62)
text = st.text(max_size=30)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    return Observation(
        partition_id=draw(text),
        plan="interval",
        scope=draw(text),
        pass_=draw(text),
        page=draw(st.integers(1, 2**31 - 1)),
        source_epoch=draw(st.integers(0, 100)),
        original_offset=draw(st.none() | st.integers(0, 2**62)),
        reason=draw(text),
        method="GET",
        url=draw(text),
        definition_hash=draw(text),
        status=draw(st.integers(100, 599)),
        requested_at=draw(micros),
        received_at=draw(micros),
        headers=draw(st.dictionaries(text, text, max_size=3)),
        envelope=draw(st.binary(max_size=50)),
        records=draw(st.lists(st.binary(max_size=50), max_size=5)),
    )


@given(observations())
def test_observation_round_trip(record: Observation) -> None:
    assert codec.decode(codec.encode(record)) == record


@given(observations(), st.data())
def test_a_cut_value_is_refused_not_guessed(record: Observation, data: st.DataObject) -> None:
    value = codec.encode(record)
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    try:
        found = codec.decode(cut)
    except codec.UnreadableValue:
        return
    assert found == record  # only trailing defaults could be absent, and Avro has none


@pytest.mark.parametrize("value", [b"", b"\xc3\x01", b'{"a": 1}', b"\x00" * 40])
def test_foreign_values_are_named(value: bytes) -> None:
    with pytest.raises(codec.UnreadableValue, match="not a framed record"):
        codec.decode(value)


def test_an_unknown_schema_says_to_upgrade() -> None:
    with pytest.raises(codec.UnreadableValue, match="does not know; upgrade"):
        codec.decode(b"\xc3\x01" + b"\x07" * 8 + b"x")


def test_there_is_an_example_of_every_type() -> None:
    assert {name.split(".")[0] for name in NAMES} == {
        "observation",
        "mark",
        "source_checkpoint",
        "control",
    }


@pytest.mark.parametrize("name", NAMES)
def test_committed_examples_stay_readable(name: str) -> None:
    """The bytes were written by the version in the name; today's reader must find the same."""
    found = codec.decode((EXAMPLES / f"{name}.bin").read_bytes())
    wanted = json.loads((EXAMPLES / f"{name}.json").read_text("utf-8"))
    plain = msgspec.to_builtins(found)  # bytes as base64 text, as in the JSON beside it
    for field, value in wanted.items():
        assert plain[field] == value, field


@pytest.mark.parametrize("of", [Observation, Mark, SourceCheckpoint, Control])
def test_avro_files_and_types_have_the_same_fields(of: type[Record]) -> None:
    file = Path(codec.__file__).parent / "avro" / codec._FILES[of]
    fields = [field["name"] for field in json.loads(file.read_text("utf-8"))["fields"]]
    assert sorted(fields) == sorted(f.encode_name for f in msgspec.structs.fields(of))
