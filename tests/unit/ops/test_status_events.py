"""What the status says of events that are not published."""

from __future__ import annotations

from datetime import timedelta

from ops.status.text import to_text
from tests.unit.ops.test_status import MOMENT, sink_facts, status


def test_events_that_wait_too_long_say_why_unless_a_dead_one_is_before_them() -> None:
    late = {"state": "unsent", "count": 7, "since": MOMENT - timedelta(hours=1), "error": "429"}
    dead = {"state": "dead", "count": 1, "since": MOMENT, "error": "422"}
    for rows, wanted in (
        ([late], ["7 events are not published: 429"]),
        ([{**late, "error": None}], ["7 events are not published: no relay has tried"]),
        ([{**late, "since": MOMENT - timedelta(minutes=1)}], []),
        ([late, dead], []),
    ):
        found = status(sink=sink_facts(outbox=rows))
        assert [one.what for one in found.troubles if one.kind == "events wait"] == wanted
        assert found.unsent_events == 7


def test_the_text_tells_the_age_of_the_oldest() -> None:
    late = {"state": "unsent", "count": 7, "since": MOMENT - timedelta(hours=1), "error": None}
    assert "7 to publish, the oldest for 60 min" in to_text(status(sink=sink_facts(outbox=[late])))


def test_copies_where_no_relay_runs_are_no_events_to_publish() -> None:
    copies = {"state": "unrelayed", "count": 5, "since": MOMENT - timedelta(days=3), "error": None}
    found = status(sink=sink_facts(outbox=[copies]))
    assert (found.unsent_events, found.unrelayed_copies, found.unsent_since) == (0, 5, None)
    assert [one for one in found.troubles if one.kind == "events wait"] == []
    said = to_text(found)
    assert "Copies             5 copies of quarantined records, which nobody has to publish" in said
    assert "gapless relay does" in said and "GAPLESS_QUARANTINE_COPIES=false" in said
    assert "Events" not in said


def test_copies_that_wait_for_a_relay_are_no_events_either() -> None:
    copies = {"state": "copies", "count": 1, "since": MOMENT - timedelta(minutes=4), "error": None}
    found = status(sink=sink_facts(outbox=[copies]))
    assert (found.unsent_events, found.unsent_copies, found.unrelayed_copies) == (0, 1, 0)
    assert found.troubles == ()
    said = to_text(found)
    assert (
        "Copies             1 copy of a quarantined record to publish, the oldest for 4 min" in said
    )
    assert "Events" not in said
    late = {**copies, "count": 2, "since": MOMENT - timedelta(hours=1)}
    (trouble,) = status(sink=sink_facts(outbox=[late])).troubles
    assert trouble.kind == "copies wait"
    assert trouble.what == ("2 copies of quarantined records are not published: no relay has tried")
    assert "GAPLESS_QUARANTINE_COPIES=false" in trouble.unblocks
