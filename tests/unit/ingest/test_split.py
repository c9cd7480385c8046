"""Splitting keeps every record's bytes exactly, whatever stands in them."""

from __future__ import annotations

import hashlib
import json
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import scan
from ingest.bounds import LARGE_BYTES, RECORDS_MAX, TooMany, check_elements
from ingest.decode import parsed, value_at
from ingest.split import NoRecords, Split, Unsplittable, parts, split
from schemas.definitions.paths import find

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


MANY = 10 * RECORDS_MAX


@pytest.mark.parametrize(
    ("body", "read_as"),
    [
        (b'{"items":[' + b"0," * MANY + b"0]}", "json"),
        (b'{"items":[' + b'{"a":1},' * 2 * RECORDS_MAX + b"{}]}", "json"),
        (b'{"items":[' + b"{}," * 2 * RECORDS_MAX + b"NaN]}", "json"),
        (b'{"items":[' + b"0," * MANY + b"NaN]}", "json"),
        (b"{}\n" * 2 * RECORDS_MAX, "ndjson"),
        (b'{"items":[[' + b"[]," * MANY + b"[]]]}", "json"),
        (b'{"pages":[' + b"0," * MANY + b'[]],"items":[]}', "json"),
    ],
    ids=["numbers", "objects", "beside_nan", "numbers_beside_nan", "lines", "one_record", "index"],
)
def test_an_answer_of_too_many_records_is_refused_before_they_are_made(
    body: bytes, read_as: str
) -> None:
    """Each of them took a hundred bytes; ten million of them fit an answer of 32 MB."""
    steps = ("pages", -1) if b"pages" in body[:10] else ("items",)
    limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + 160 * 1024
    with pytest.raises(TooMany, match="more than a page may hold"):
        split(body, steps, read_as)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < limit


def test_as_many_records_as_a_page_may_hold_are_split() -> None:
    records = [b'{"id":%d}' % n for n in range(RECORDS_MAX)]
    body = b'{"items":[' + b",".join(records) + b'],"next":"t"}'
    found = split(body, ("items",))
    assert found.records == records
    assert json.loads(found.envelope) == {"items": [], "next": "t"}


@pytest.mark.parametrize(
    "filler",
    [b"[" + b"[]," * 600_000 + b"[]]", b'"' + b"a" * 1_500_000 + b'"'],
    ids=["lists", "text"],
)
@pytest.mark.parametrize(
    ("records", "twin"),
    [([b"1", b"[2]"], b"[1,[2]]"), ([], b"[]"), ([b'{"n":NaN}', b"3"], b"[1]")],
    ids=["like_its_neighbour", "empty", "no_json"],
)
def test_a_large_answer_is_split_as_a_small_one(
    filler: bytes, records: list[bytes], twin: bytes
) -> None:
    body = b'{"twin":%s,"filler":%s,"data":{"items":[%s]}}' % (twin, filler, b",".join(records))
    assert len(body) > LARGE_BYTES
    found = split(body, ("data", "items"))
    assert found.records == records
    envelope = json.loads(found.envelope)
    assert (envelope["twin"], envelope["data"]) == (json.loads(twin), {"items": []})
    for missing in (("data", "rows"), ("items",), ("filler", "items")):
        with pytest.raises(NoRecords):
            split(body, missing)


def test_elements_are_counted_only_where_there_could_be_too_many() -> None:
    check_elements(b"[" + b"1," * (RECORDS_MAX - 1) + b"1 ]")
    with pytest.raises(TooMany):
        check_elements(b"[" + b"1," * RECORDS_MAX + b"1]")


paths = st.lists(st.sampled_from(["a", "b", "data", 0, -1]), max_size=3).map(tuple)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "data"]), values, max_size=3)
    | st.lists(values, max_size=2),
    paths,
    st.sampled_from([b"", b"NaN", b'"\xff"']),
)
def test_one_value_is_read_as_from_the_whole(
    value: object, steps: tuple[str | int, ...], odd: bytes
) -> None:
    body = json.dumps(value).encode()
    if odd and body.startswith(b"{") and body != b"{}":
        body = body[:-1] + b',"odd":' + odd + b"}"
    found, expected = value_at(body, steps), find(steps, parsed(body))
    assert repr(found) == repr(expected)


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
