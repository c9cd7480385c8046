"""How the keyset plan turns pages: ties, order, positions that do not move, long walks."""

from __future__ import annotations

import pytest

from ingest.plans.opaque import give, keep
from ingest.plans.positions import out_of_order, position_fault
from ingest.plans.protocol import Ask, Page
from ingest.plans.ranges import to_text, to_us
from tests.property.plan_keyset import SIZE, Impatient, Keyed, driver_of, id_of
from tests.property.plan_source import EPOCH, Fact, S, Source, page_of

AT = EPOCH - 100 * S


def test_ties_across_every_page_boundary_are_read_once_each() -> None:
    source = Source(pages=None)
    for _ in range(4 * SIZE):
        source.add(AT)
    driver = driver_of(Keyed(source))
    driver.poll()
    read = [f.number for e in driver.all for f in e.facts]
    assert sorted(read) == list(range(4 * SIZE))
    first, second = driver.asked[:2]
    assert first.values["after.id"] == ""
    assert second.values["after.id"] == keep(sorted(map(id_of, source.facts))[SIZE - 1])


def test_a_tie_at_the_watermark_that_shows_after_the_crash_is_not_lost() -> None:
    """Its id is smaller than the last one read: only a stretch that settled before is claimed."""
    source = Source(pages=None)
    source.add(EPOCH - 20 * S)
    smaller = source.add(EPOCH - 20 * S, 23 * S)
    driver = driver_of(Keyed(source))
    driver.poll()
    driver.keep()
    driver.crash()
    source.now += 10 * S
    driver.poll()
    assert smaller.number in driver.seen(), "within lookback"


def test_the_position_survives_a_crash_at_the_precision_of_the_provider() -> None:
    source = Source(pages=None)
    for n in range(2 * SIZE):
        source.add(AT + n)
    driver = driver_of(Keyed(source))
    driver.step()
    driver.keep()
    driver.crash()
    driver.step()
    time = driver.asked[-1].values["after.time"]
    assert to_us(give(str(time))) == AT + SIZE - 1
    driver.poll()
    assert len([f for e in driver.all for f in e.facts]) == 2 * SIZE, "nothing was read twice"


def test_a_filter_that_the_provider_ignores_stalls_on_the_second_page() -> None:
    source = Source(pages=None)
    rows = [source.add(AT + n * S) for n in range(SIZE)]

    def answer(ask: Ask) -> tuple[list[Fact], Page]:
        return rows, page_of(
            rows,
            source.clock(),
            times=[f.stamp for f in rows],
            positions=[(to_text(f.stamp), str(f.number)) for f in rows],
        )

    driver = driver_of(Keyed(source))
    driver._answer = answer
    driver.poll()
    assert "order of (time, id)" in driver.stalls[0].reason
    assert not driver.marks("interval_complete")


def test_an_inclusive_filter_without_an_end_for_it_stalls_and_says_so() -> None:
    source = Source(pages=None)
    source.add(AT)
    keyed = Keyed(source)
    driver = driver_of(keyed)
    keyed.inclusive = True
    driver.poll()
    assert "go in a circle" in driver.stalls[0].reason
    assert "nothing_new" in driver.stalls[0].unblocked_by


def test_a_long_walk_is_completed_as_it_goes() -> None:
    source = Source(pages=None)
    for n in range(20 * SIZE):
        source.add(AT - n * S)
    driver = driver_of(Keyed(source), of=Impatient)
    while not driver.marks("interval_complete"):
        assert driver.step()
    [mark] = driver.marks("interval_complete")
    assert mark.passes[0].last < 20, "not all was read yet"
    assert driver.state.complete_before == mark.end
    driver.poll()
    assert driver.seen() == {f.number for f in source.facts}
    driver.check_named()


def test_a_bulk_import_at_one_moment_is_read_through() -> None:
    source = Source(pages=None)
    for _ in range(20 * SIZE):
        source.add(AT)
    source.add(AT + S)
    driver = driver_of(Keyed(source), of=Impatient)
    driver.poll()
    assert driver.seen() == {f.number for f in source.facts}
    assert len(driver.asked) < 60


@pytest.mark.parametrize(
    ("ids", "in_order"),
    [
        ([1, 2, 10], True),
        (["9", "10"], True),
        (["a", "B"], True),
        (["B", "a"], True),
        (["a-b", "ab", "ac"], True),
        (["abc", "abd", "abd"], True),
        ([3, 2], False),
        (["b", "a"], False),
        (["a", "c", "b"], False),
        ([1, "x", None], True),
    ],
)
def test_equal_times_ascend_by_id_in_some_order_that_servers_have(
    ids: list[object], in_order: bool
) -> None:
    positions = [("t", None if one is None else keep(one)) for one in ids]
    found = out_of_order(positions, [AT] * len(ids), (None, None), None)
    assert (found is None) is in_order


def test_times_beyond_our_precision_say_nothing_about_ids() -> None:
    positions = [("00.1234561Z", keep(9)), ("00.1234569Z", keep(3))]
    assert out_of_order(positions, [AT, AT], (None, None), None) is None


def test_a_page_is_compared_with_the_position_it_was_asked_behind() -> None:
    found = out_of_order([("b", keep(1))], [AT], ("c", keep(9)), AT + 1)
    assert found is not None
    assert out_of_order([("c", keep(9))], [AT], ("c", keep(9)), AT) is None


@pytest.mark.parametrize(
    ("last", "said"),
    [((None, "x"), "no time"), (("t", None), "no id"), (("t", "i" * 5000), "longer than")],
)
def test_a_last_record_without_a_position_stalls(
    last: tuple[str | None, str | None], said: str
) -> None:
    found = position_fault(last, (None, None))
    assert found is not None and said in found.reason


def test_a_cut_claims_no_part_of_the_moment_that_its_position_lies_in() -> None:
    source = Source(pages=None)
    for n in range(SIZE):
        source.add(AT - 10 * S + n)
    for n in range(3 * SIZE):
        source.add(AT + n)
    driver = driver_of(Keyed(source), of=Impatient)
    while not driver.marks("interval_complete"):
        assert driver.step()
    assert driver.stretches("interval_complete")[0][1] == AT
    assert len(driver.seen()) == 2 * SIZE, "the rest of this moment is not read yet"
