"""The demo's mapping: an event that names no run gets the name of the run it tells of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ops.demo
from ops.demo.provider.content import Content
from schemas.definitions.load import load_folder
from tests.unit.apply.mapped import mapped

DEFINITIONS = Path(ops.demo.__file__).parent / "definitions"
STAMP_US = 1_767_600_000_000_000
HOUR_US = 3_600_000_000


def events() -> list[dict[str, Any]]:
    content = Content(7, "north", 200)
    return [
        json.loads(
            content.render(
                "events", content.new_id("events", number), 1, STAMP_US + number * HOUR_US, 1_000
            )
        )
        for number in range(300)
    ]


def run_ids(found: list[dict[str, Any]]) -> list[str]:
    spec = load_folder(DEFINITIONS).mappings["pipeline_events"]
    pages = mapped(spec, *(json.dumps(event) for event in found), tenant="north")
    assert not pages.faults
    at = spec.key.index("run_id")
    return [row[at] for row in pages.rows]


def test_the_fallback_names_the_run_as_the_event_would() -> None:
    named = [event for event in events() if "run_id" in event["tags"]]
    nameless = [{**event, "tags": {**event["tags"]}} for event in named]
    for event in nameless:
        del event["tags"]["run_id"]
    assert run_ids(nameless) == run_ids(named) == [event["tags"]["run_id"] for event in named]
    assert len(set(run_ids(named))) > 5


def test_events_that_name_no_run_have_one_too() -> None:
    nameless = [event for event in events() if "run_id" not in event["tags"]]
    assert nameless
    assert run_ids(nameless) == [f"nightly-{event['occurred_at'][:10]}" for event in nameless]
