"""Lines of a tap as messages: bytes kept exactly, types without regard to case, nothing guessed."""

from __future__ import annotations

import pytest

from ingest.taps.messages import (
    Lines,
    OtherMessage,
    RecordMessage,
    SchemaMessage,
    StateMessage,
    TapFault,
    parse,
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"type":"RECORD","stream":"a","record":{ "x" : 1.50 , "\xc3\xa4":"\\u00e4"},"version":7}',
            RecordMessage("a", b'{ "x" : 1.50 , "\xc3\xa4":"\\u00e4"}'),
        ),
        (b'{"type": "record", "stream": "a", "record": {}}', RecordMessage("a", b"{}")),
        (b'{"value": {"b": [1 ,2]}, "type": "STATE"}', StateMessage(b'{"b": [1 ,2]}')),
        (b'{"type": "STATE", "value": null}', StateMessage(None)),
        (
            b'{"type":"SCHEMA","stream":"a","schema":{},"key_properties":["id"]}',
            SchemaMessage("a", b"{}", ("id",), ()),
        ),
        (
            b'{"type":"SCHEMA","stream":"a","schema":{},"bookmark_properties":["t"]}',
            SchemaMessage("a", b"{}", (), ("t",)),
        ),
        (b'{"type":"ACTIVATE_VERSION","stream":"a","version":1}', OtherMessage("ACTIVATE_VERSION")),
        (b'{"type":"HEARTBEAT","stream":5}', OtherMessage("HEARTBEAT")),
        # What strict decoding refuses is kept as it came: the record alone will be quarantined.
        (
            b'{"type":"RECORD","stream":"a","record":{"x":NaN}}',
            RecordMessage("a", b'{"x":NaN}'),
        ),
        (
            b'{"type":"RECORD","stream":"a","record":{"x":"\xff\xfe"}}',
            RecordMessage("a", b'{"x":"\xff\xfe"}'),
        ),
    ],
)
def test_a_message(line: bytes, message: object) -> None:
    assert parse(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"INFO starting",
        b"{}",
        b"[]",
        b'"RECORD"',
        b'{"type": 5}',
        b'{"type":"RECORD","stream":"a","record":{"x":1}} {"type":"STATE"}',
        b'{"type":"RECORD","stream":"a","record":[1]}',
        b'{"type":"RECORD","record":{}}',
        b'{"type":"RECORD","stream":"a","record":{"x":',
        b'{"type":"STATE"}',
        b'{"type":"SCHEMA","stream":"a"}',
        b'{"type":"BATCH","stream":"a","manifest":[]}',
        b"[" * 100_000,
    ],
)
def test_no_message(line: bytes) -> None:
    with pytest.raises(TapFault):
        parse(line)


def test_lines_wherever_the_output_is_cut() -> None:
    whole = b'{"a": 1}\r\n\n  \n{"b": 2}\n{"c": 3}'
    for size in range(1, len(whole) + 1):
        lines = Lines(100)
        found = []
        for at in range(0, len(whole), size):
            found += list(lines.feed(whole[at : at + size]))
        assert found == [b'{"a": 1}', b'{"b": 2}']
        assert lines.rest() == b'{"c": 3}'
        assert lines.rest() == b""


def test_a_line_that_is_too_long_comes_after_those_before_it() -> None:
    lines = Lines(10)
    found = []
    with pytest.raises(TapFault, match="longer than 10 bytes"):
        for line in lines.feed(b"short\n" + b"x" * 11):
            found.append(line)  # noqa: PERF402 - it raises behind the first
    assert found == [b"short"]


def test_a_line_that_never_ends_is_noticed_before_it_is_held() -> None:
    lines = Lines(1_000)
    with pytest.raises(TapFault):
        for _ in range(100):
            assert list(lines.feed(b"x" * 100)) == []
