"""Splitting keeps every record's bytes exactly, whatever stands in them."""

from __future__ import annotations

import hashlib
import json
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import scan
from ingest.split import NoRecords, Split, Unsplittable, parts, split

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
raw_values = st.builds(
    lambda value, indent, ascii_only: json.dumps(
        value, indent=indent, ensure_ascii=ascii_only
    ).encode(),
    values,
    st.none() | st.integers(0, 2),
    st.booleans(),
)
spaces = st.sampled_from([b"", b" ", b"\n", b"\t \r\n"])


def body_of(records: list[bytes], space: bytes, before: bytes) -> bytes:
    listed = b"[" + space + (space + b"," + space).join(records) + space + b"]"
    return (
        b'{"before":'
        + before
        + b","
        + space
        + b'"data":{"items":'
        + space
        + listed
        + b'},"next":"t"}'
    )


@given(st.lists(raw_values, max_size=6), spaces, raw_values)
def test_records_are_exactly_the_bytes_of_the_body(
    records: list[bytes], space: bytes, before: bytes
) -> None:
    body = body_of(records, space, before)
    found = split(body, ("data", "items"))
    assert found.records == records
    envelope = json.loads(found.envelope)
    assert envelope["next"] == "t"
    assert envelope["data"]["items"] == []


@given(st.lists(raw_values, max_size=6), spaces, raw_values)
def test_the_tolerant_scanner_finds_the_same(
    records: list[bytes], space: bytes, before: bytes
) -> None:
    body = body_of(records, space, before)
    span = scan.locate(body, ("data", "items"))
    assert span is not None
    assert [body[a:b] for a, b in scan.elements(body, span[0])] == records


@pytest.mark.parametrize(
    "bad",
    [
        b'{"n":NaN}',
        b'{"s":"a\x01b"}',
        b'{"s":"\xff\xfe"}',
        b'{"s":"\\ud800"}',
        b"[" * 3000 + b"]" * 3000,
        b'{"n":123456789012345678901234567890}',
        b'{"a":1,"a":2}',
    ],
    ids=["nan", "control", "utf8", "surrogate", "deep", "big", "twice"],
)
def test_a_bad_record_costs_itself_and_not_its_page(bad: bytes) -> None:
    good = b'{"id":1}'
    body = b'{"items":[' + b",".join([good, bad, good]) + b'],"next":"t"}'
    found = split(body, ("items",))
    assert found.records == [good, bad, good]
    assert found.envelope == b'{"items":[],"next":"t"}'


def test_a_bare_list_and_a_byte_order_mark() -> None:
    assert split(b"\xef\xbb\xbf[1, 2]", ()) == Split(b"[]", [b"1", b"2"])
    assert split(b" [] ", ()).records == []


def test_an_index_on_the_way() -> None:
    assert split(b'[{"x":[]},{"x":[7]}]', (1, "x")).records == [b"7"]


@pytest.mark.parametrize(
    ("body", "steps", "envelope"),
    [
        (b'{"copy":[1],"items":[1]}', ("items",), b'{"copy":[1],"items":[]}'),
        (b'{"items":[2],"items":[1]}', ("items",), b'{"items":[2],"items":[]}'),
        (b'{"x":{"items":[1]},"items":[1]}', ("items",), b'{"x":{"items":[1]},"items":[]}'),
        (b'[{"x":[1]},{"x":[1]}]', (1, "x"), b'[{"x":[1]},{"x":[]}]'),
        (
            b'{"a\\"b":[1], "a" : {"items":[1]}}',
            ("a", "items"),
            b'{"a\\"b":[1], "a" : {"items":[]}}',
        ),
    ],
)
def test_only_the_declared_list_is_emptied(
    body: bytes, steps: tuple[str | int, ...], envelope: bytes
) -> None:
    assert split(body, steps) == Split(envelope, [b"1"])


def test_ndjson_is_a_record_a_line() -> None:
    assert split(b'{"a":1}\r\n\n{"a":2}', (), "ndjson").records == [b'{"a":1}', b'{"a":2}']


@pytest.mark.parametrize(
    ("body", "steps"),
    [
        (b"{}", ("items",)),
        (b'{"items":null}', ("items",)),
        (b'{"items":{}}', ("items",)),
        (b'{"items":"text"}', ("items",)),
        (b"[]", ("items",)),
        (b'{"items":NaN}', ("items",)),
        (b'{"error":NaN}', ("items",)),
    ],
)
def test_missing_records_are_no_empty_page(body: bytes, steps: tuple[str, ...]) -> None:
    with pytest.raises(NoRecords):
        split(body, steps)


@pytest.mark.parametrize(
    "body", [b"", b"<html></html>", b'{"items":[{"a":1}', b'{"items":[1]}}', b'{"items":["x]}']
)
def test_what_cannot_be_split_is_said(body: bytes) -> None:
    with pytest.raises(Unsplittable):
        split(body, ("items",))


def test_a_long_text_costs_no_memory_beside_itself() -> None:
    """A pattern that keeps a way back for every character takes a hundred times the text."""
    record = b'{"x":"' + b"a" * 2_000_000 + b'","y":NaN}'
    limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + 64 * 1024
    assert split(b'{"items":[' + record + b"]}", ("items",)).records == [record]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < limit


@given(st.lists(st.binary(max_size=60), max_size=30), st.integers(40, 200))
def test_parts_hold_every_record_once_and_fit(records: list[bytes], limit: int) -> None:
    found = list(parts(Split(b"", records), limit))
    assert [r for part in found for r in part.records] == [
        record if len(record) + 8 <= limit else b"" for record in records
    ]
    at = 0
    for part in found:
        assert part.first_index == at
        assert sum(len(record) + 8 for record in part.records) <= limit
        at += len(part.records)
    missing = {m.index: m for part in found for m in part.missing}
    for index, record in enumerate(records):
        assert (index in missing) == (len(record) + 8 > limit)
        if index in missing:
            assert missing[index].size == len(record)
            assert missing[index].sha256 == hashlib.sha256(record).digest()
    for part in found:
        for each in part.missing:
            assert part.first_index <= each.index < part.first_index + len(part.records)
