"""What a probe says of the ends of windows, against providers with every combination of habits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ingest.plans.window import asked
from ops.probe.losses import edge_is_missed
from ops.probe.servers import Beliefs, Mark, Server
from schemas.definitions.durations import parse_duration_us
from schemas.definitions.source import Bounds, IntervalSpec
from tests.unit.ops.probe_world import MS, NOW, Fact, S, World, probed, stream

BOUNDS = ("[)", "[]", "()", "(]")
DECLARED = tuple(Bounds)
BRIEF = (Phase.explicit, Phase.generate)  # a whole probe is long, and its seed tells all

worlds = st.fixed_dictionaries(
    {
        "bounds": st.sampled_from(BOUNDS),
        "step": st.sampled_from((1, MS, S, 60 * S, 3_600 * S)),
        "cuts_stamps": st.booleans(),
        "shown": st.sampled_from((1, MS, S)),
        "unit": st.sampled_from((MS, S)),
        "reads_fine": st.sampled_from(("exact", "cut", "refused")),
        "order": st.sampled_from(("asc", "desc", "id")),
        "seed": st.integers(0, 10_000),
    }
)
stored = st.sampled_from((1, MS, S))
habits = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=BRIEF,
)


def world_of(chosen: dict[str, Any], step: int) -> World:
    """A provider with records; it never shows more than it stores."""
    if chosen["step"] == 1:
        chosen = {**chosen, "cuts_stamps": False}
    world = World(**{**chosen, "shown": max(chosen["shown"], step)})
    world.fill(40, step)
    return world


def missed(world: World, spec: IntervalSpec, stored_us: int) -> bool:
    """Whether a stamp lies in neither of two adjacent windows, as the plan would ask for them."""
    unit, step = max(spec.granularity_us, spec.format.unit_us), world.step
    base, wide = NOW - NOW % (86_400 * S), 50 * 3_600 * S
    for offset in {0, unit, 2 * unit, step // 2, step - unit}:
        edge = base + max(0, offset - offset % unit)
        older, newer = (
            asked((edge - wide, edge), spec.bounds, unit),
            asked((edge, edge + wide), spec.bounds, unit),
        )
        ends = (edge, older[1], newer[0])
        near = {end - end % step + d for end in ends for d in (-1, 0, 1, step - 1, step, step + 1)}
        for stamp in {edge, *near}:
            fact = Fact("x", stamp - stamp % stored_us, 0)
            if not any(world.includes(fact, *window, False) for window in (older, newer)):
                return True
    return False


@habits
@given(worlds, stored)
def test_what_is_said_of_the_ends_is_true(chosen: dict[str, Any], step: int) -> None:
    world = world_of(chosen, step)
    found = probed(world, stream(world))["bounds"]
    for said, true in zip(found.observed, world.bounds, strict=False):
        assert said in (true, "?") or found.observed == "unknown"


@habits
@given(worlds, stored)
def test_what_would_be_written_loses_no_row(chosen: dict[str, Any], step: int) -> None:
    world = world_of(chosen, step)
    spec = stream(world)
    found = probed(world, spec)
    assert isinstance(spec.changes, IntervalSpec)
    changes = spec.changes
    if value := found["bounds"].write.get(("bounds",)):
        changes = replace(changes, bounds=Bounds(str(value)))
    if value := found["granularity"].write.get(("granularity",)):
        changes = replace(changes, granularity_us=parse_duration_us(str(value)))
    if changes.bounds is not Bounds.UNKNOWN:
        assert not missed(world, changes, step)


@settings(max_examples=25, deadline=None, derandomize=True, phases=BRIEF)
@given(st.sampled_from(BOUNDS), st.sampled_from(("asc", "desc")), st.integers(0, 1000))
def test_an_exact_server_is_known_for_certain(bounds: str, order: str, seed: int) -> None:
    world = World(bounds=bounds, order=order, seed=seed)
    world.fill(40, MS)
    found = probed(world, stream(world))
    assert found["bounds"].observed == bounds
    assert found["bounds"].write == {("bounds",): bounds}
    assert found["granularity"].observed.startswith("1ms, ")
    assert found["filter, direction"].observed == "works"


def test_a_coarse_step_is_found_and_written() -> None:
    world = World(bounds="()", step=S)
    world.fill(40, MS)
    found = probed(world, stream(world))
    assert found["bounds"].observed == "()"
    assert found["granularity"].observed.startswith("1s")
    assert found["granularity"].write == {("granularity",): "1s"}
    assert found["granularity"].loses == "rows of the 1s where two windows meet"


def test_seconds_that_hide_finer_stamps_prove_nothing() -> None:
    """GitHub's habit: `since` may leave out what is stored exactly at a second, or not."""
    world = World(bounds="()", shown=S, unit=S, reads_fine="refused")
    world.fill(40, MS)
    found = probed(world, stream(world))["bounds"]
    assert found.observed[0] == "?"
    assert found.write == {}
    assert found.needs is not None


@given(
    st.sampled_from(DECLARED),
    st.sampled_from(BOUNDS),
    st.sampled_from((1, 2, 3, 6, 10)),
    st.sampled_from((1, 2, 3)),
    st.booleans(),
)
def test_a_missed_edge_is_what_it_is_said_to_be(
    declared: Bounds, bounds: str, factor: int, unit: int, cuts: bool
) -> None:
    """Every edge on the grid and every stamp around it, against the formula."""
    step = factor * unit
    server = Server(bounds[0] == "[", bounds[1] == "]", step, cuts, False, True)
    lost = False
    for edge in range(100 * step, 104 * step, unit):
        older = server.admits((0, asked((0, edge), declared, unit)[1]), 1)
        newer = server.admits((asked((edge, 10**6), declared, unit)[0], 10**6), 1)
        for stamp in range(edge - 3 * step - 6, edge + 3 * step + 6):
            lost |= not (older[0] <= stamp < older[1] or newer[0] <= stamp < newer[1])
    assert lost == edge_is_missed(server, declared, unit, by_start=True, by_end=True)


@given(st.data())
def test_an_answer_never_rules_out_the_truth(data: st.DataObject) -> None:
    """Whatever is asked, the server that answered stays possible."""
    unit = data.draw(st.sampled_from((MS, S)))
    beliefs = Beliefs.all(unit, finer=True)
    server = data.draw(st.sampled_from(beliefs.servers))
    shown = data.draw(st.sampled_from((MS, S)))
    time = NOW - NOW % shown
    stamp = time + (data.draw(st.integers(0, shown - 1)) if server.finer else 0)
    here = beliefs.at(Mark(time, shown))
    for _ in range(data.draw(st.integers(1, 6))):
        start = time + data.draw(st.integers(-3 * S, 3 * S))
        end = start + data.draw(st.integers(0, 3 * S))
        low, high = server.admits((start, end), unit)
        here = here.after((start, end), low <= stamp < high)
    # What is stored finer than shown may become improbable; what is not, never.
    assert server in here.held or server.finer
    assert server.finer or here.held[server].now == 1.0
