"""A whole probe against a provider in memory: each habit has its verdict, and what it would lose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ops.probe.conclude_pages import shifted
from ops.probe.model import Answer, Finding, Pause, Question, Refused
from ops.probe.trial import Trial
from schemas.definitions.source import Bounds, Order, Turn
from tests.unit.ops.probe_world import MS, Fact, S, World, probed, run, stream


def found(world: World, budget: int = 80, **declared: Any) -> dict[str, Finding]:
    if not world.facts:
        world.fill(90, MS)
    return probed(world, stream(world, **declared), budget)


def writes(world: World) -> None:
    """A new record every second, found only after the world's lag."""
    while world.facts[-1].stamp < world.now - S:
        at = world.facts[-1].stamp + S
        world.facts.append(Fact(f"{len(world.facts):010d}", at - at % MS, at + world.lag))


def living(**habits: Any) -> World:
    world = World(**habits)
    world.fill(60, MS)
    at = world.now - 90 * S
    world.facts.append(Fact("0000000000", at - at % MS, at))
    world.write = writes
    return world


@pytest.mark.parametrize(
    ("habits", "said"),
    [
        ({"start_ignored": True}, "{start} ignored"),
        ({"end_ignored": True}, "{end} ignored"),
        ({"start_ignored": True, "end_ignored": True}, "{start} and {end} ignored"),
        ({}, "works"),
    ],
)
def test_a_filter_that_is_ignored(habits: dict[str, Any], said: str) -> None:
    finding = found(World(**habits))["filter, direction"]
    assert finding.observed == said
    assert finding.loses == "nothing"


def test_a_filter_by_another_field_loses_changes() -> None:
    finding = found(World(by_other_field=True))["filter, direction"]
    assert finding.observed == "by another field or zone"
    assert finding.loses.startswith("changes:")


def test_ends_that_are_exchanged() -> None:
    world = World()
    world.fill(50, MS)
    exchanged = world.answer

    def answer(question: Question) -> Answer:
        values = dict(question.values)
        ends = {"start": values.pop("end", None), "end": values.pop("start", None)}
        return exchanged(replace(question, values={**values, **ends}))

    world.answer = answer  # type: ignore[method-assign]
    finding = found(world)["filter, direction"]
    assert finding.observed == "reversed"
    assert finding.loses.startswith("everything")


@pytest.mark.parametrize(("order", "said"), [("asc", "asc"), ("desc", "desc"), ("id", "none")])
def test_the_order(order: str, said: str) -> None:
    finding = found(World(order=order))["order"]
    assert finding.observed == said
    assert finding.write == ({} if said == "none" else {("order",): said})


def test_an_order_that_may_be_that_of_the_ids_is_not_written() -> None:
    world = World()
    world.fill(60, MS, ids_cross=False)
    finding = found(world)["order"]
    assert finding.observed == "asc, as the ids"
    assert finding.write == {}


def test_a_declared_order_that_is_not_kept_loses_rows_where_a_walk_stops() -> None:
    world = World(order="id")
    finding = found(world, order=Order.ASC, sends=("start",))["order"]
    assert finding.observed == "none"
    assert finding.loses.startswith("rows behind the page on which a walk stops")


@pytest.mark.parametrize(
    ("ties", "said"), [("id", "by id"), ("falling", "by id, falling"), ("random", "changes")]
)
def test_the_order_of_ties(ties: str, said: str) -> None:
    world = World(ties=ties)
    world.fill(90, MS)
    for fact in world.facts:
        fact.stamp -= fact.stamp % (3_600 * S)
    finding = found(world, stable=True)["order of ties"]
    assert finding.observed == said
    assert (finding.loses == "nothing") is (ties != "random")


@pytest.mark.parametrize("cap", [7, 12])
def test_the_real_page_cap(cap: int) -> None:
    finding = found(World(cap=cap))["page cap"]
    assert (finding.declared, finding.observed) == ("asked 40", str(cap))
    assert finding.write == {("pages", "cap"): cap}
    assert found(World(cap=cap), cap=cap)["page cap"].write == {}


def test_a_cap_above_what_is_asked() -> None:
    world = World(cap=60)
    world.fill(200, MS)
    finding = found(world)["page cap"]
    assert finding.observed == "60"


def test_few_records_say_what_is_needed() -> None:
    world = World()
    world.fill(10, MS)
    finding = found(world)["page cap"]
    assert finding.observed == "at least 10"
    assert finding.needs is not None


def test_a_page_that_only_repeats_the_last_record_does_not_follow() -> None:
    """Where `{last.id}` is inclusive, a page holds everything, and the next one its last record."""
    world = World(turn=Turn.LAST_ID)
    world.fill(90, MS)
    listing = replace(stream(world, snapshot=True), changes=None)
    trial = run(world, listing)
    (finding,) = [finding for _, finding in trial.findings() if finding.name == "page cap"]
    assert (finding.observed, finding.write) == ("at least 90", {})


def test_a_last_record_that_is_repeated_as_declared_does_not_shift() -> None:
    world = World(turn=Turn.LAST_ID)
    world.fill(90, MS)
    world.write = lambda at: at.facts.append(Fact(f"00000{at.asked:05}", at.now - at.now % MS, 0))
    trial = run(world, replace(stream(world, snapshot=True, stable=True), changes=None))
    (finding,) = [finding for _, finding in trial.findings() if finding.name == "same walk again"]
    assert finding.observed == "same but for what changed"


def test_page_numbers_that_count_what_was_asked_lose_rows() -> None:
    finding = found(World(turn=Turn.PAGE, cap=10, counts_asked=True))["page cap"]
    assert finding.loses.startswith("rows between pages")
    assert found(World(turn=Turn.PAGE, cap=10))["page cap"].loses == "nothing"


def test_walks_that_shift() -> None:
    steady = found(World(), stable=True)["same walk again"]
    assert (steady.observed, steady.loses) == ("same, 3 of 3", "nothing")
    shifting = found(World(shifts=True), stable=True)["same walk again"]
    assert shifting.loses == "rows that shift from one page to another"
    assert found(World(shifts=True))["same walk again"].loses == "nothing"


def test_walks_of_a_collection_that_is_written_to_do_not_shift() -> None:
    world = World(order="desc", token="snapshot")
    world.fill(90, MS)

    def write(at: World) -> None:
        at.facts.append(Fact(f"{len(at.facts):010d}", at.now - at.now % MS, 0))

    world.write = write
    finding = found(world, stable=True)["same walk again"]
    assert finding.observed == "same but for what changed"
    assert finding.loses == "nothing"


@pytest.mark.parametrize(
    ("walks", "said"),
    [
        (("abcd", "abcd"), None),
        (("abcd", "xabc"), None),  # a new one at the front
        (("abcd", "acd"), None),  # one is gone
        (("abcd", "acd", "abcd"), "misses 1 rows"),
        (("abcd", "bcd", "abcd"), None),  # at the edge of what was walked
        (("abcd", "abbc"), "a row twice in one walk"),
        (("abcd", "acbd"), "in another order"),
    ],
)
def test_what_shows_that_rows_shift(walks: tuple[str, ...], said: str | None) -> None:
    assert shifted([[(row, 0) for row in one] for one in walks]) == said


@pytest.mark.parametrize(
    ("token", "said", "loses"),
    [
        ("live", "same page", "nothing"),
        ("once", "refused", "nothing: the walk begins again"),
        ("moves", "another page", "the page whose answer was lost in a crash"),
    ],
)
def test_a_token_used_twice(token: str, said: str, loses: str) -> None:
    finding = found(World(token=token))["token, used twice"]
    assert (finding.observed, finding.loses) == (said, loses)


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("query", "keeps its own query"),
        ("refuses", "refused"),
        ("mixes", "takes the new window"),
    ],
)
def test_a_token_with_another_window(bound: str, said: str) -> None:
    assert found(World(bound=bound))["token, other window"].observed == said


@pytest.mark.parametrize(
    ("token", "said"), [("snapshot", "a snapshot"), ("live", "the live collection")]
)
def test_what_a_token_shows(token: str, said: str) -> None:
    """Every record is changed, once the token was given and used for the first time."""
    world = World(token=token)
    world.fill(60, MS)
    spec = stream(world)
    trial = Trial(spec, world.now, 80)
    changed = False
    while (step := trial.next) is not None:
        if isinstance(step, Pause):
            world.now += int(step.seconds * S)
            if not changed:
                for fact in world.facts:
                    fact.stamp, fact.version = world.now - world.now % MS, 2
                changed = True
            trial.take(None)
            continue
        trial.take(world.answer(step))
    said_of = {finding.name: finding for _, finding in trial.findings()}
    assert changed
    assert said_of["token, shows"].observed == said


def test_rows_that_show_late() -> None:
    late = found(living(lag=4 * S), settle_us=S, lookback_us=None)["visible after"]
    assert late.observed.startswith("up to ")
    assert 4.0 <= float(late.observed.split()[2]) < 7.0
    assert late.loses == "rows that show later than `settle`"
    kept = found(living(lag=4 * S), settle_us=S)["visible after"]
    assert kept.loses.startswith("nothing: `lookback`")
    assert found(living(lag=4 * S))["visible after"].loses == "nothing"


@pytest.mark.parametrize("ahead", [-3_600 * S, 0, 3_600 * S])
def test_rows_that_show_at_once(ahead: int) -> None:
    finding = found(living(ahead=ahead))["visible after"]
    assert finding.observed.startswith("at once")


def test_rows_that_show_at_once_by_page_numbers() -> None:
    """Every walk ends with an empty page, which takes nothing away."""
    finding = found(living(turn=Turn.PAGE), size=200)["visible after"]
    assert finding.observed.startswith("at once")
    late = found(living(turn=Turn.PAGE, lag=4 * S), size=200, settle_us=S)["visible after"]
    assert late.observed.startswith("up to ")


def test_looks_that_cannot_tell_do_not_speak_of_writes() -> None:
    """A first page that may have been full: what slipped to it from the second would look late."""
    habits = {"cap": 9, "order": "id"}
    finding = found(living(turn=Turn.PAGE, **habits), settle_us=S)["visible after"]
    assert finding.observed == "unknown"
    assert finding.needs is not None
    assert finding.needs.startswith("looks that certainly show all of the newest records")


def test_a_quiet_collection_does_not_tell_how_late_it_is() -> None:
    finding = found(World())["visible after"]
    assert finding.observed == "unknown"
    assert finding.needs == "a collection that is written to while it is probed"


def test_deletes_that_show_and_that_do_not() -> None:
    world = World()
    world.fill(60, MS)
    world.facts[5].gone = world.facts[9].gone = True
    assert found(world)["deletes"].observed == "shown, 2 seen"
    finding = found(World())["deletes"]
    assert finding.loses == "deletes: they are never noticed"
    world = World()
    world.fill(60, MS)
    trial = run(world, stream(world, snapshot=True))
    (deletes,) = [f for _, f in trial.findings() if f.name == "deletes"]
    assert deletes.loses == "found by snapshot"


@pytest.mark.parametrize(
    ("listed", "said", "loses"),
    [
        (None, "all 40", "nothing"),
        (30, "lacks 10 of 40", "live rows: absence would delete them"),
        (0, "unknown", "unknown"),
    ],
)
def test_a_listing_that_lacks_what_lives(listed: int | None, said: str, loses: str) -> None:
    """As one that shows open issues only, unless it is asked for all."""
    world = World(listed=listed, turn=Turn.PAGE)
    world.fill(60, MS)
    trial = run(world, stream(world, snapshot=True))
    (finding,) = [finding for _, finding in trial.findings() if finding.name == "lists all"]
    assert (finding.observed, finding.loses) == (said, loses)


def test_an_empty_collection_is_unknown_and_says_so() -> None:
    world = World()
    trial = run(world, stream(world))
    assert trial.unanswered is None
    for _, finding in trial.findings():
        assert finding.observed == "unknown"
        assert finding.needs


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(1, True)
@given(st.integers(1, 70), st.booleans())
def test_no_budget_is_ever_exceeded(budget: int, snapshot: bool) -> None:
    world = World()
    world.fill(90, MS)
    trial = run(world, stream(world, snapshot=snapshot), budget)
    assert world.asked <= budget
    for _, finding in trial.findings():
        assert finding.observed != "unknown" or finding.needs


def test_an_end_of_the_budget_names_itself() -> None:
    world = World()
    world.fill(90, MS)
    trial = run(world, stream(world), 8)
    said = {finding.name: finding for _, finding in trial.findings()}
    assert said["same walk again"].needs == "a larger --requests"


def test_a_walk_that_the_budget_cuts_short_is_no_other_walk() -> None:
    """Nothing changes here: wherever the questions end, no difference may be seen."""
    said = set()
    for budget in range(1, 70):
        world = World()
        world.fill(90, MS)
        trial = run(world, stream(world, snapshot=True), budget)
        for _, finding in trial.findings():
            if finding.name == "same walk again":
                said.add(finding.observed)
    assert said == {"unknown", "same, 2 of 2", "same, 3 of 3"}


def test_what_was_never_asked_needs_more_requests() -> None:
    world = World()
    world.fill(90, MS)
    trial = run(world, stream(world, snapshot=True), 1)
    listing = [finding for plan, finding in trial.findings() if plan == "snapshot"]
    assert {finding.name for finding in listing} >= {"lists all", "page cap", "same walk again"}
    assert {finding.needs for finding in listing} == {"a larger --requests"}


def test_a_provider_that_answers_nothing_is_trouble() -> None:
    trial = Trial(stream(World()), 0, 50)
    while trial.next is not None:
        trial.take(Refused("the provider answered 500, which no rule names"))
    assert trial.unanswered == "the provider answered 500, which no rule names"


def test_what_is_declared_rightly_is_not_written_again() -> None:
    finding = found(World(), bounds=Bounds.CLOSED_OPEN)["bounds"]
    assert (finding.observed, finding.write) == ("[)", {})
