"""A whole probe of a keyset against a provider in memory: positions, ties, bounds, stored stamps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ops.probe.model import UNKNOWN, Finding
from schemas.definitions.source import Turn
from tests.unit.ops.probe_world import MS, Fact, S, World, probed, run, stream

TIES = "rows of one time at the edge of two pages"
CIRCLE = "nothing, but its pages go in a circle"


def found(world: World, *, stored: int = MS, **declared: Any) -> dict[str, Finding]:
    world.fill(90, stored)
    return probed(world, stream(world, **declared))


def keyset(**habits: Any) -> World:
    return World(turn=Turn.KEYSET, **habits)


def test_a_server_that_keeps_everything() -> None:
    findings = found(keyset())
    observed = {name: finding.observed for name, finding in findings.items()}
    assert observed["filter, direction"] == "works"
    assert observed["bounds"] == "[)"
    assert observed["granularity"] == "1ms, stored 1ms"
    assert observed["order"] == "asc"
    assert observed["order of ties"] == "by id"
    assert observed["position"] == "goes on"
    assert observed["same walk again"] == "same, 3 of 3"
    lost = {name: finding.loses for name, finding in findings.items() if name != "deletes"}
    assert set(lost.values()) <= {"nothing", UNKNOWN}
    assert findings["bounds"].write == {("bounds",): "[)"}


@pytest.mark.parametrize(
    ("behind", "said", "loses"),
    [
        ("time_only", "passes over 2 ties", TIES),
        ("inclusive", "goes on, 3 again", CIRCLE),
        ("ignored", "begins again", CIRCLE),
    ],
)
def test_a_position_that_is_not_what_it_says(behind: str, said: str, loses: str) -> None:
    finding = found(keyset(behind=behind))["position"]
    assert (finding.observed, finding.loses) == (said, loses)


def test_a_position_among_no_ties_is_not_proven() -> None:
    world = keyset(behind="time_only")
    world.fill(90, MS)
    for number, fact in enumerate(world.facts):
        fact.stamp += number * MS
    finding = probed(world, stream(world))["position"]
    assert finding.observed == "goes on, no ties seen"
    assert finding.needs == "records that share a time"


def test_ends_that_are_ignored_have_the_names_of_a_keyset() -> None:
    finding = found(keyset(behind="ignored"))["filter, direction"]
    assert (finding.observed, finding.loses) == ("{after.time} ignored", CIRCLE)
    finding = found(keyset(end_ignored=True))["filter, direction"]
    assert (finding.observed, finding.loses) == ("{until} ignored", "nothing")


def test_stamps_that_are_stored_finer_than_shown_show_a_record_behind_itself() -> None:
    findings = found(keyset(), stored=1)
    assert findings["position"].loses == CIRCLE
    assert findings["granularity"].observed != "1ms, stored 1ms"


def test_a_server_that_sorts_otherwise() -> None:
    finding = found(keyset(order="id"))["order"]
    assert finding.loses == "rows behind the last one of a page; the stream stalls"
    finding = found(keyset(ties="falling"))["order of ties"]
    assert (finding.observed, finding.loses) == (
        "by id, falling",
        f"{TIES}; the stream stalls",
    )


def test_a_busy_collection_is_looked_at_from_a_later_time_on() -> None:
    """Of the last two minutes there is more than a look can see."""
    world = keyset(lag=4 * S)
    for number in range(240):
        at = world.now - 119 * S + number * S // 2
        world.facts.append(Fact(f"{number:010d}", at - at % MS, at))

    def write(at: World) -> None:
        while at.facts[-1].stamp < at.now - S:
            stamp = at.facts[-1].stamp + S
            at.facts.append(Fact(f"{len(at.facts):010d}", stamp, stamp + at.lag))

    world.write = write
    spec = stream(world, settle_us=S, lookback_us=None)
    late = probed(world, spec, 120)["visible after"]
    assert late.observed.startswith("up to ")
    assert late.loses == "rows that show later than `settle`"


def test_a_page_that_changes_while_it_is_asked_is_no_evidence() -> None:
    world = keyset()

    def write(at: World) -> None:
        for fact in at.facts:
            fact.stamp += MS

    world.write = write
    finding = found(world)["position"]
    assert finding.observed == UNKNOWN
    assert finding.needs == "records that do not change while they are asked for"


habits = st.fixed_dictionaries(
    {
        "bounds": st.sampled_from(("[)", "[]")),
        "shown": st.sampled_from((MS, S)),
        "unit": st.sampled_from((MS, S)),
        "reads_fine": st.sampled_from(("exact", "cut", "refused")),
        "behind": st.sampled_from(("right", "time_only", "inclusive", "ignored")),
        "end_ignored": st.booleans(),
        "cap": st.sampled_from((9, 25, 60, 1_000)),
        "seed": st.integers(0, 10_000),
    }
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
@given(habits, st.integers(5, 80))
def test_no_verdict_is_false(chosen: dict[str, Any], budget: int) -> None:
    world = keyset(**chosen)
    world.fill(90, world.shown)
    trial = run(world, stream(world), budget)
    assert world.asked <= budget
    findings = {finding.name: finding for _, finding in trial.findings()}
    position = findings["position"]
    wanted = {"right": "goes on", "time_only": "passes over", "inclusive": "goes on, "}
    if position.observed != UNKNOWN and not position.needs:
        assert position.observed.startswith(wanted.get(world.behind, "begins again"))
    if position.loses == TIES:
        assert world.behind == "time_only"
    bounds = findings["bounds"].observed
    if bounds != UNKNOWN and world.shown <= world.unit:
        assert bounds[0] in ("(?" if world.behind == "time_only" else "[?")
        assert bounds[1] in f"{world.bounds[1]}?"
