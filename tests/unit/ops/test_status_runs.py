"""Runs of a schedule in the status: expected, started, searched, failed, overdue."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ingest.plans.ranges import to_text, to_us
from ops.monitor.metrics import PER_PARTITION_ID
from ops.status import assemble
from ops.status.as_json import to_json
from ops.status.expected import Expected, ExpectedRuns, ExpectedStream
from ops.status.model import PlanStatus, Stretch
from ops.status.runs import SHOWN, runs_of
from ops.status.text import to_text as shown
from schemas.definitions.cron import Occurrences, parse_cron
from schemas.records import Failed, OpenInterval, PlanState
from schemas.settings import Settings
from tests.unit.ops.test_status import NOW, OWNER, checkpoint, log_facts, sink_facts

S = 1_000_000
HOUR = 3_600 * S
# 2026-11-08 is a Sunday in winter: 5:30 in Berlin is 4:30 in UTC.
OCCURRENCES = Occurrences(parse_cron("30 5 * * *"), "Europe/Berlin")
ENDS = [to_us(f"2026-11-0{day}T04:30:00.000000Z") for day in (5, 6, 7, 8, 9)]
DECLARED = ExpectedRuns("shop", "orders", OCCURRENCES, 120 * S, deadline_us=2_700 * S)


def states(now: int, declared: ExpectedRuns = DECLARED, **plan: Any) -> list[str]:
    found = PlanStatus("interval", None, **plan) if plan else None
    return [run.state for run in runs_of(declared, found, now)]


def through(at: int) -> dict[str, str]:
    return {"complete_before": to_text(at)}


def test_a_run_has_its_name_its_closed_interval_and_its_deadline() -> None:
    *over, following = runs_of(DECLARED, None, NOW)
    assert len(over) == SHOWN
    assert [(run.start_at, run.end_at) for run in over] == list(pairwise(ENDS[:-1]))
    assert over[-1].run_id == "shop/orders@2026-11-08T04:30:00Z"
    assert over[-1].due_at == ENDS[3] + 2_700 * S
    assert (following.start_at, following.end_at, following.state) == (*ENDS[3:], "expected")


@pytest.mark.parametrize(
    ("after_s", "plan", "state"),
    [
        (60, through(ENDS[2]), "expected"),  # it has not settled yet
        (180, through(ENDS[2]), "expected"),
        (180, {**through(ENDS[2]), "open": (ENDS[2], ENDS[3])}, "started"),
        (180, {**through(ENDS[2] + HOUR), "open": (ENDS[2] + HOUR, ENDS[3])}, "started"),
        (180, through(ENDS[3]), "searched"),
        (180, {**through(ENDS[2] + HOUR), "done": (ENDS[2] + HOUR, ENDS[3])}, "searched"),
        (180, {**through(ENDS[2]), "done": (ENDS[2] + HOUR, ENDS[3])}, "started"),
        (180, {**through(ENDS[2]), "failed": (ENDS[3] - HOUR, ENDS[3])}, "failed"),
        (2_701, {**through(ENDS[2]), "open": (ENDS[2], ENDS[3])}, "overdue"),
        (2_701, {}, "overdue"),
        (2_701, through(ENDS[3]), "searched"),
        (86_000, through(ENDS[3] - S), "overdue"),
    ],
)
def test_the_state_of_the_last_run(after_s: int, plan: dict[str, Any], state: str) -> None:
    stretches = {
        name: (Stretch(to_text(span[0]), to_text(span[1])),)
        for name, span in plan.items()
        if name != "complete_before"
    }
    assert states(ENDS[3] + after_s * S, **{**plan, **stretches})[-2] == state


@pytest.mark.parametrize(
    ("after_s", "plan", "state"),
    [
        (60, {"polled_at": ENDS[3] + 5 * S}, "searched"),
        (60, {"polled_at": ENDS[3] - S}, "expected"),
        (180, {"polled_at": ENDS[3] - S, "walk_pages": 2}, "started"),
        (2_701, {"polled_at": ENDS[3] - S, "walk_pages": 2}, "overdue"),
    ],
)
def test_a_run_of_a_feed_is_searched_by_a_poll_behind_it(
    after_s: int, plan: dict[str, Any], state: str
) -> None:
    feed = PlanStatus("cursor", None, **plan)
    assert runs_of(DECLARED, feed, ENDS[3] + after_s * S)[-2].state == state


def test_runs_before_the_past_begins_are_nobodys() -> None:
    late = ExpectedRuns("shop", "orders", OCCURRENCES, 0, start_us=ENDS[2] + HOUR)
    last, following = runs_of(late, None, NOW)
    assert (last.start_at, last.end_at, last.due_at) == (ENDS[2] + HOUR, ENDS[3], None)
    assert following.end_at == ENDS[4]


@given(st.integers(ENDS[0], ENDS[4]), st.integers(ENDS[0], ENDS[4]))
def test_a_run_is_searched_only_below_what_is_complete(now: int, complete: int) -> None:
    plan = PlanStatus("interval", None, complete_before=to_text(complete))
    for run in runs_of(DECLARED, plan, now):
        assert (run.state == "searched") == (run.end_at <= complete)
        assert run.state != "overdue" or (run.due_at is not None and now > run.due_at)


def test_an_overdue_run_is_said_in_text_json_metrics_and_waits_for_somebody() -> None:
    stream = ExpectedStream(86_400.0, 120.0, None, None, None, DECLARED)
    known = Expected({("shop", "orders"): stream}, (OWNER,))
    plan = PlanState(
        definition_hash="h",
        complete_before=to_text(ENDS[2]),
        open=[OpenInterval(start=to_text(ENDS[2]), end=to_text(ENDS[3]), reason="changes")],
    )
    facts = log_facts(checkpoint(plans={"interval": plan}))
    found = assemble(Settings(partitions=8), NOW, facts, sink_facts(), known)
    [trouble] = found.troubles
    assert (trouble.kind, trouble.since) == ("overdue run", ENDS[3] + 2_700 * S)
    assert trouble.what.startswith("shop/orders@2026-11-08T04:30:00Z was to be searched")
    text = shown(found)
    assert "run                2026-11-07 04:30 .. 04:30:00         overdue, due 05:15:00" in text
    assert "run                2026-11-06 04:30 .. 2026-11-07 04:30 searched\n" in text
    run = to_json(found)["partition_ids"][0]["runs"][-2]
    assert (run["state"], run["due_at"]) == ("overdue", "2026-11-08T05:15:00.000000Z")
    assert {"gapless_overdue_runs", "gapless_failed_runs"} <= set(PER_PARTITION_ID)
    away = assemble(Settings(partitions=8), NOW, "not reachable", sink_facts(), known)
    assert away.partition_ids[0].runs == ()


def test_the_stages_of_the_observed_pipeline_stand_beside_its_runs() -> None:
    declared = replace(DECLARED, stages=("extract", "load"))
    stream = ExpectedStream(86_400.0, 120.0, None, None, None, declared)
    known = Expected({("shop", "orders"): stream}, (OWNER,))
    plan = PlanState(definition_hash="h", complete_before=to_text(ENDS[3]))
    facts = log_facts(checkpoint(plans={"interval": plan}))
    found = assemble(Settings(partitions=8), NOW, facts, sink_facts(), known)
    assert "\n  stages of a run    extract, load\n" in shown(found)
    assert to_json(found)["partition_ids"][0]["stages"] == ["extract", "load"]


def test_a_failed_run_is_no_overdue_one_too() -> None:
    stream = ExpectedStream(86_400.0, 120.0, None, None, None, DECLARED)
    known = Expected({("shop", "orders"): stream}, (OWNER,))
    failed = [Failed(to_text(ENDS[3] - HOUR), to_text(ENDS[3]), "too wide")]
    plan = PlanState(definition_hash="h", complete_before=to_text(ENDS[3] - HOUR), failed=failed)
    facts = log_facts(checkpoint(plans={"interval": plan}))
    found = assemble(Settings(partitions=8), NOW, facts, sink_facts(), known)
    assert [run.state for run in found.partition_ids[0].runs[-2:]] == ["failed", "expected"]
    assert [trouble.kind for trouble in found.troubles] == ["failed interval"]
