"""A tap's messages under any cut: batches, read in pieces, crashes between any two messages."""

from __future__ import annotations

import itertools
import json

import hypothesis.strategies as st
from hypothesis import given, settings

from ingest.taps.batches import Batch, Batches
from ingest.taps.messages import Lines, RecordMessage, StateMessage, parse

SCHEMA = b'{"type":"SCHEMA","stream":"s","schema":{},"key_properties":["id"]}\n'


def record(number: int) -> bytes:
    return b'{"type":"RECORD","stream":"s","record":{"id":%d}}\n' % number


def state(done: int) -> bytes:
    return b'{"type":"STATE","value":{"done":%d}}\n' % done


def done(value: bytes | None) -> int:
    return 0 if value is None else int(json.loads(value)["done"])


def output(first: int, total: int, states: list[int]) -> list[bytes]:
    """What a tap says that goes on from `first`: a STATE behind the records numbered in `states`."""
    said = [SCHEMA]
    for number in range(first, total):
        said.append(record(number))
        if number in states:
            said.append(state(number + 1))
    return [*said, state(total)]


@st.composite
def cuts(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """`whole` in pieces."""
    at = draw(st.lists(st.integers(0, len(whole)), max_size=8))
    bounds = [0, *sorted(at), len(whole)]
    return [whole[a:b] for a, b in itertools.pairwise(bounds)]


class Store:
    """What is durable; `claims` a state only with everything in front of it, or says so."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.state: bytes | None = None

    def put(self, batch: Batch) -> None:
        self.ids += [json.loads(one)["id"] for one in batch.records]
        self.state = batch.state
        assert set(range(done(self.state))) <= set(self.ids), "a state claims what is not stored"


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_is_cut_or_lost_every_record_is_stored_before_it_is_claimed(
    data: st.DataObject,
) -> None:
    total = data.draw(st.integers(0, 12))
    states = data.draw(st.lists(st.integers(0, 12), max_size=4))
    most_bytes, most = data.draw(st.integers(1, 100)), data.draw(st.integers(1, 4))
    store = Store()
    for crashes in (True, True, False):
        lines = Lines(1_000)
        batches = Batches("s", store.state, bytes_max=most_bytes, records_max=most)
        whole = b"".join(output(done(store.state), total, states))
        if crashes:
            whole = whole[: data.draw(st.integers(0, len(whole)))]
        for piece in data.draw(cuts(whole)):
            for line in lines.feed(piece):
                batch = batches.take(parse(line))
                if batch is not None:
                    store.put(batch)
            if batches.held and data.draw(st.booleans()):
                store.put(batches.cut())  # it has waited long enough
        if not crashes or data.draw(st.booleans()):
            store.put(batches.cut())
        if not crashes:
            assert batches.uncovered == 0
            assert not batches.held
    assert set(store.ids) == set(range(total))
    assert done(store.state) == total


@given(
    messages=st.lists(
        st.one_of(
            st.integers(0, 99).map(lambda n: RecordMessage("s", b'{"id":%d}' % n)),
            st.integers(0, 99).map(lambda n: StateMessage(b'{"done":%d}' % n)),
        )
    ),
    at=st.sets(st.integers(0, 40)),
)
@settings(deadline=None)
def test_a_batch_has_the_last_state_that_stands_behind_its_last_record_or_before(
    messages: list[RecordMessage | StateMessage], at: set[int]
) -> None:
    """Against a plain reading: the newest STATE among all messages up to the cut."""
    batches = Batches("s", b"begin", bytes_max=10**6, records_max=3)
    records: list[bytes] = []
    for number, message in enumerate(messages):
        found = batches.take(message)
        if found is None and number in at:
            found = batches.cut()
        if found is None:
            continue
        records += found.records
        so_far = messages[: number + 1]
        assert records == [m.record for m in so_far if isinstance(m, RecordMessage)]
        told = [m.value for m in so_far if isinstance(m, StateMessage)]
        assert found.state == (told[-1] if told else b"begin")
    behind = [isinstance(m, RecordMessage) for m in messages]
    last = max((n for n, m in enumerate(messages) if isinstance(m, StateMessage)), default=-1)
    assert batches.uncovered == sum(behind[last + 1 :])
