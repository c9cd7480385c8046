"""Words of the status: what became of a listing, and what a server that answered lacks."""

from __future__ import annotations

import pytest

from apply.snapshots import FIRST_OF_TWO
from ops.facts.ask import Unprepared
from ops.monitor.page import page
from ops.status import assemble
from ops.status.text import to_text
from schemas.settings import Settings
from tests.unit.ops.test_status import (
    EXPECTED,
    MOMENT,
    NOW,
    OWNER,
    log_facts,
    only_trouble,
    sink_facts,
    status,
)


@pytest.mark.parametrize(
    ("state", "note", "said"),
    [
        (
            "kept",
            FIRST_OF_TWO,
            "complete, nothing deleted yet: first of two listings, since this one can shift",
        ),
        ("kept", None, "complete, absence deletes nothing"),
        ("swept", None, "swept, 3 deleted"),
    ],
)
def test_what_became_of_a_listing(state: str, note: str | None, said: str) -> None:
    snapshot = {
        "partition_id": OWNER, "mapping": "shop_orders", "snapshot": "s-1", "state": state,
        "listed": 10, "swept": 3, "unreadable": 0, "note": note, "at": MOMENT, "completed": 5,
    }  # fmt: skip
    text = to_text(status(sink=sink_facts(snapshots=[snapshot])))
    assert f"  snapshot           10:42:10 {said}" in text
    assert "kept" not in text


def test_topics_and_tables_that_are_missing_are_no_server_that_is_away() -> None:
    topics = Unprepared("The topics are missing: `gapless topics`.\ntopics are missing: a, b")
    tables = Unprepared("The tables are missing: `gapless migrate`.")
    found = assemble(Settings(), NOW, topics, tables, EXPECTED)
    assert (found.topics_missing, found.tables_missing) == (True, True)
    text, shown = to_text(found), page(found, 5)
    assert text.splitlines()[:3] == [
        "The topics are missing: `gapless topics`.",
        "  topics are missing: a, b",
        "The tables are missing: `gapless migrate`.",
    ]
    assert "The tables are missing: `gapless migrate`." in shown
    for told in (text, shown):
        assert "cannot be asked" not in told
    trouble = only_trouble(assemble(Settings(), NOW, log_facts(), tables, EXPECTED))
    assert (trouble.kind, trouble.unblocks) == ("sink", "gapless migrate")
