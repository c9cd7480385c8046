"""Values of the log: round trips, damage, and every version ever written stays readable."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from schemas.records import Control, Mark, MissingRecord, Observation, Record, SourceCheckpoint

EXAMPLES = Path(codec.__file__).parent / "avro" / "examples"
NAMES = sorted(file.stem for file in EXAMPLES.glob("*.bin"))

PAGE = Observation(
    partition_id="s/t", plan="interval", scope="a~b", pass_="p", page=1, reason="changes",
    method="GET", url="/", definition_hash="h", status=200, requested_at=0, received_at=1,
)  # fmt: skip

micros = st.integers(-(2**62), 2**62)
text = st.text(max_size=30)

missing = st.builds(
    MissingRecord,
    st.integers(0, 1_000),
    st.sampled_from(["erased", "oversized", "unsplittable"]),
    st.integers(0, 2**40),
    st.none() | st.binary(max_size=32),
)


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
        missing=draw(st.lists(missing, max_size=2)),
        first_index=draw(st.integers(0, 2**31 - 1)),
    )


@given(observations())
def test_observation_round_trip(record: Observation) -> None:
    assert codec.decode(codec.encode(record)) == record


def by_the_library(record: Observation) -> bytes:
    writer, out = codec._writer(Observation), io.BytesIO()
    fastavro.schemaless_writer(out, writer.schema, codec._builtins(record))
    return writer.header + out.getvalue()


@given(observations())
def test_pages_are_written_as_the_library_writes_them(record: Observation) -> None:
    assert codec.encode(record) == by_the_library(record)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 8_191, 8_192, 1_048_575, 1_048_576])
def test_lengths_at_the_edges_of_their_encoding(length: int) -> None:
    page = msgspec.structs.replace(PAGE, records=[b"x" * length] * 65)
    value = codec.encode(page)
    assert value == by_the_library(page) and codec.decode(value) == page


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
