"""How many records are in quarantine and since when, as people are told: whatever reads them again."""

from __future__ import annotations

from datetime import datetime

import pytest

from apply import chores
from apply.replay import run_dry, run_replay
from apply.shadow import run_shadow
from ops import quarantine
from ops.facts.sink import read_sink
from tests.integration.apply.scene import Scene, account, complete, page
from tests.integration.apply.test_quarantine import CAN_BE_ODD, ODD, OPEN


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner looks about every second, so that no test waits for it."""
    monkeypatch.setattr(chores, "_LOOK_S", 0.5)


def test_a_record_is_one_and_as_old_as_its_first_refusal_under_every_version(scene: Scene) -> None:
    """Read again by each look back, tried by a new version, replayed: since when, and how many."""

    def seen(number: int) -> None:
        scene.put(page([account(1, 3, **ODD), account(2, 3, **ODD)], number=number))
        scene.settle()

    def since() -> list[datetime]:
        rows = "SELECT DISTINCT first_seen_at FROM gapless.exception WHERE state IN {}"
        return [row[0] for row in scene.rows(rows.format("('quarantined', 'retryable')"))]

    def told() -> tuple[set[int], set[int], str]:
        facts = read_sink(scene.lane.postgres).exceptions
        chosen = quarantine.Chosen()
        counted = quarantine.counted(scene.lane.postgres, chosen)
        listed = quarantine.to_lines(quarantine.listed(scene.lane.postgres, chosen))
        return {row["count"] for row in facts}, {row["count"] for row in counted}, listed

    with scene.applying():
        for number in (1, 2, 3):
            seen(number)
    [first] = since()
    definitions = scene.write(2, **CAN_BE_ODD)
    dry = run_dry(scene.settings, definitions, "accounts").diff
    assert dry is not None and (dry.healed, dry.newly_quarantined) == ({"unknown_value": 2}, {})
    stricter = {"lifecycle: {type: text, values: [active, closed]}": "lifecycle: {type: bigint}"}
    other = run_dry(scene.settings, scene.write(2, **stricter), "accounts").diff
    assert other is not None and (other.healed, other.newly_quarantined) == ({}, {})

    definitions = scene.define(2, **{"[active, closed]": "[active, closed, else]"})
    with scene.applying():
        scene.until("SELECT count(*) FROM gapless.exception WHERE tried_version = 3", 2)
        scene.until("SELECT count(*) FROM gapless.exception WHERE state = 'retryable'", 0)
        assert since() == [first], "a retry does not make it younger"
        seen(4)
        assert len(scene.rows(OPEN)) == 4, "each version asks for itself"
        assert since() == [first]
        records, counted, listed = told()
        assert (records, counted) == ({2}, {2})
        assert "      2 records  accounts quarantined unknown_value" in listed
    run_replay(scene.settings, definitions, "accounts")
    assert [row[1:] for row in scene.rows(OPEN)] == [("quarantined", 4, "unknown_value")] * 2
    assert since() == [first], "and neither does a replay"
    scene.balance()
    # what lands is done with: refused later, it is refused since then
    with scene.applying():
        scene.put(page([account(1, 4)], number=5))
        scene.until("SELECT count(*) FROM accounts", 1)
        scene.until(f"SELECT count(*) FROM ({OPEN}) o", 1, timeout_s=30)
        scene.put(page([account(1, 5, **ODD)], number=6))
        scene.settle()
    assert len(since()) == 2 and min(since()) == first


def test_a_table_beside_the_live_one_knows_since_when_its_records_are_refused(scene: Scene) -> None:
    scene.put(page([account(1, **ODD), account(2)]))
    with scene.applying():
        scene.settle()
    first = scene.value("SELECT first_seen_at FROM gapless.exception")
    shown = {"  id: text": "  id: {type: text, personal: false}"}
    definitions = scene.write(2, **{"[active, closed]": "[closed]"}, **shown)
    run_shadow(scene.settings, definitions, "accounts", swap=False)
    [(counted,)] = [(row["count"],) for row in read_sink(scene.lane.postgres).exceptions]
    assert counted == 1, "what stands beside says nothing of the live table"
    listed = quarantine.to_lines(quarantine.listed(scene.lane.postgres, quarantine.Chosen()))
    assert "      2 records  accounts beside live quarantined unknown_value" in listed
    assert "v1  quarantined  unknown_value" in listed, "its key may not be shown"
    assert "v2  beside live  quarantined  id a-1, tenant_id north  unknown_value" in listed
    report = run_shadow(scene.settings, definitions, "accounts")
    assert report.swapped and report.diff is not None
    assert report.diff.newly_quarantined == {"unknown_value": 1}
    found = scene.rows(
        "SELECT index, first_seen_at = %s FROM gapless.exception WHERE state = 'quarantined'"
        " ORDER BY index",
        first,
    )
    assert found == [(0, True), (1, False)]


def test_coverage_heals_where_a_later_search_has_replaced_a_part_of_it(scene: Scene) -> None:
    def span(start: int, end: int) -> str:
        return f"2026-03-01T{start:02}:00:00.000000Z~2026-03-01T{end:02}:00:00.000000Z"

    covered = "SELECT state, errors FROM gapless.coverage ORDER BY start_at"
    bad = page([account(1, **ODD), account(2, **ODD)], scope=span(0, 10))
    again = page([account(1, 2), account(2, 2)], scope=span(8, 12), pass_="p2", number=2)
    with scene.applying():
        scene.put(bad, complete(bad))
        scene.settle()
        assert scene.rows(covered) == [("complete_with_errors", 2)]
        scene.put(again, complete(again))
        scene.until("SELECT count(*) FROM accounts", 2)
        scene.until(f"SELECT count(*) FROM ({OPEN}) o", 0, timeout_s=30)
    assert set(scene.rows(covered)) == {("complete", 0)}
