"""All habits at once: whatever a provider combines, no verdict of a probe is false."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ops.probe.model import UNKNOWN, Finding
from schemas.definitions.source import Bounds, IntervalSpec, Order, Turn
from tests.unit.ops.probe_world import MS, S, World, probed, stream

habits = st.fixed_dictionaries(
    {
        "bounds": st.sampled_from(("[)", "[]", "()", "(]")),
        "step": st.sampled_from((1, MS, S)),
        "shown": st.sampled_from((MS, S)),
        "unit": st.sampled_from((MS, S)),
        "reads_fine": st.sampled_from(("exact", "cut", "refused")),
        "start_ignored": st.booleans(),
        "end_ignored": st.booleans(),
        "by_other_field": st.sampled_from((False, False, True)),
        "order": st.sampled_from(("asc", "desc", "id")),
        "ties": st.sampled_from(("id", "falling", "random")),
        "cap": st.sampled_from((9, 25, 60, 1_000)),
        "counts_asked": st.booleans(),
        "token": st.sampled_from(("live", "snapshot", "once", "moves")),
        "bound": st.sampled_from(("query", "refuses", "mixes")),
        "turn": st.sampled_from((Turn.TOKEN, Turn.TOKEN, Turn.PAGE)),
        "seed": st.integers(0, 10_000),
    }
)
declared = st.fixed_dictionaries(
    {
        "bounds": st.sampled_from(tuple(Bounds)),
        "order": st.sampled_from(tuple(Order)),
        "stable": st.booleans(),
        "sends": st.sampled_from((("start", "end"), ("start",), ("end",))),
    }
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
@given(habits, declared)
def test_no_verdict_is_false(chosen: dict[str, Any], said: dict[str, Any]) -> None:
    world = World(**chosen)
    world.fill(90, world.shown)
    spec = stream(world, **said)
    found = probed(world, spec)
    assert isinstance(spec.changes, IntervalSpec)
    sends = spec.changes.request.params
    check_filter(world, found["filter, direction"], sends)
    check_pages(world, found)
    check_tokens(world, found)
    order = found["order"]
    if order.write:
        assert order.write == {("order",): world.order}
    ties = found["order of ties"].observed
    if ties.startswith("by id") and world.order != "id":
        assert ties == {"id": "by id", "falling": "by id, falling"}[world.ties]


def check_filter(world: World, finding: Finding, sends: Any) -> None:
    ignored = [
        f"{{{end}}}"
        for end in ("start", "end")
        if end in sends and getattr(world, f"{end}_ignored")
    ]
    if finding.observed in (UNKNOWN, "obeyed"):
        assert finding.needs
        assert finding.loses == UNKNOWN
    elif ignored:
        assert finding.observed == f"{' and '.join(ignored)} ignored"
    else:
        assert finding.observed == ("by another field or zone" if world.by_other_field else "works")


def check_pages(world: World, found: dict[str, Finding]) -> None:
    cap = found["page cap"]
    if cap.write:
        assert cap.write == {("pages", "cap"): world.cap}
    skips = world.counts_asked and world.turn is Turn.PAGE and world.cap < 40
    assert cap.loses == UNKNOWN or cap.loses.startswith("rows between pages") is skips
    again = found["same walk again"]
    if again.observed.startswith("same"):
        assert world.ties != "random" or world.order == "id" or world.shown < S
    elif again.observed != UNKNOWN:
        # Nothing changes in this world but the order of what shares a time, and tokens that move.
        assert world.ties == "random" or world.token in ("moves", "once")


def check_tokens(world: World, found: dict[str, Finding]) -> None:
    if world.turn is Turn.PAGE:
        assert not [name for name in found if name.startswith("token")]
        return
    twice = found.get("token, used twice")
    if twice is not None and world.ties != "random":
        wanted = {"once": ("refused",), "moves": ("another page", "nothing")}
        assert twice.observed in (*wanted.get(world.token, ("same page",)), UNKNOWN)
    other = found.get("token, other window")
    if other is not None and world.token in ("live", "snapshot"):
        said = {"refuses": "refused", "query": "keeps its own query"}.get(world.bound)
        assert said is None or world.ties == "random" or other.observed in (said, UNKNOWN)
