"""The stories this design comes from: what went wrong elsewhere, told again with real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.scene import Lane, Scene, account, same_account, scene
from tests.oracle.judge import Watched
from tests.workers import wait_for

DEFINITIONS = Path(__file__).parent / "stories_definitions"
ID = "crm/accounts/north"
HOUR_S = 3600
LOCK = 417_083

WATCHED = (
    Watched(
        partition_id=ID,
        tenant="north",
        collection="accounts",
        table="accounts",
        entity=account,
        row_id=lambda row: str(row["id"]),
        settle_s=0.5,
        compare=same_account,
    ),
)

# Rows wait here, one by one, once the trigger has let the ones before them pass.
BRAKE = """
CREATE FUNCTION brake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.id = TG_ARGV[0] THEN PERFORM pg_advisory_xact_lock({lock}); END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER brake BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION brake('{id}');
"""


@contextmanager
def story(lane: Lane, folder: Path, *, accounts: int = 0, **extra: str) -> Iterator[Scene]:
    with scene(
        lane,
        folder,
        accounts=accounts,
        events=0,
        partitions=1,
        definitions=DEFINITIONS,
        tables=("accounts",),
        watched=WATCHED,
        extra=extra,
    ) as at:
        yield at


@contextmanager
def stopped_at(at: Scene, record: str) -> Iterator[None]:
    """Apply is held inside its transaction exactly before it writes the row of `record`."""
    with psycopg.connect(at.lane.postgres, autocommit=True) as holder:
        holder.execute(BRAKE.format(lock=LOCK, id=record).encode())
        holder.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        yield


def waiting(at: Scene) -> bool:
    return bool(
        at.sink.rows(
            "SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
            "WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()"
        )
    )


def applied_offset(at: Scene) -> int:
    rows = at.sink.rows("SELECT next_offset_to_apply AS n FROM gapless.position")
    return int(rows[0]["n"]) if rows else 0


def died_and_went_on(at: Scene, record: str, rows_before: int) -> None:
    """Kill apply inside the page that holds `record`; nothing of that page may be visible."""
    with stopped_at(at, record):
        apply = at.workers.start("apply", "apply-1")
        wait_for(f"apply stands before {record}", lambda: waiting(at), 90)
        before = applied_offset(at)
        apply.kill()
    assert len(at.sink.table("accounts")) == rows_before
    assert applied_offset(at) == before
    at.judge_live()
    at.workers.start("apply", "apply-2")


def test_page_417_with_83_of_100_records_done(lane: Lane, tmp_path: Path) -> None:
    """The page is a transport unit: half a page is no page, and after it nothing is skipped."""
    with story(lane, tmp_path, accounts=42_000, GAPLESS_BATCH_RECORDS="100") as at:
        at.workers.start("ingest", "ingest-1")
        wait_for("420 pages are in the log", lambda: searched(at), 120, every_s=1)
        page = at.pages(ID)[416]
        assert len(page.value["records"]) == 100
        victim = account_ids(page.value)[83]
        died_and_went_on(at, victim, rows_before=41_600)
        at.judge_final(120)
        assert len(at.sink.table("accounts")) == 42_000


def searched(at: Scene) -> bool:
    """Whether the first poll is complete: something is claimed and nothing is open."""
    plan = ((at.checkpoint(ID) or {}).get("plans") or {}).get("interval")
    return bool(plan and plan["complete_before"] and not plan["open"])


def account_ids(page: dict[str, Any]) -> list[str]:
    return [json.loads(raw)["id"] for raw in page["records"]]


def test_records_a_to_j_and_the_process_dies_at_f(lane: Lane, tmp_path: Path) -> None:
    with story(lane, tmp_path) as at:
        at.provider.put_together([{"id": letter} for letter in "ABCDEFGHIJ"])
        at.workers.start("ingest", "ingest-1")
        wait_for("the page is in the log", lambda: at.pages(ID), 60)
        died_and_went_on(at, "F", rows_before=0)
        at.judge_final()
        rows = at.sink.rows("SELECT id FROM accounts ORDER BY id")
        assert [row["id"] for row in rows] == list("ABCDEFGHIJ")


def test_fifty_items_and_the_21st_fails_with_three_pages_pending(
    lane: Lane, tmp_path: Path
) -> None:
    """One bad record costs itself: with evidence, and without holding up the pages behind it."""
    with story(lane, tmp_path, accounts=300) as at:
        at.provider.put_together(
            [
                {"id": f"item-{n:02}", "fields": {"lifecycle": "haunted"} if n == 21 else {}}
                for n in range(1, 51)
            ]
        )
        at.workers.start("ingest", "ingest-1")
        at.workers.start("apply", "apply-1")
        wait_for("all others have rows", lambda: len(at.sink.table("accounts")) == 349, 60)
        bad = at.sink.rows("SELECT * FROM gapless.exception WHERE state <> 'repeated'")
        assert [row["state"] for row in bad] == ["quarantined"]  # however often it was read
        assert b"item-21" in bytes(bad[0]["raw"])
        wait_for(
            "its interval is searched, with errors",
            lambda: at.sink.rows(
                "SELECT 1 FROM gapless.coverage WHERE state = 'complete_with_errors' AND errors > 0"
            ),
            30,
        )
        at.judge_live()
        listed = at.workers.json("quarantine list")
        assert "lifecycle" in str(listed)
        assert "haunted" not in str(listed), "a value that was not declared `personal: false`"
        assert at.workers.run("audit").returncode == 0


def write_for_hours(at: Scene, hours: int, name: str) -> list[str]:
    """One account per hour while the provider's clock moves on; the ids, oldest first."""
    ids = []
    for hour in range(hours):
        ids.append(f"{name}-{hour:02}")
        at.provider.put(id=ids[-1])
        at.provider.clock(jump_s=HOUR_S)
    return ids


def test_a_day_of_memory_and_a_day_and_a_half_away(lane: Lane, tmp_path: Path) -> None:
    """What the provider forgot is a gap that is written down; what it still knows is all there."""
    with story(lane, tmp_path, accounts=50) as at:
        at.provider.settings(retention_s=24 * HOUR_S)
        ingest = at.workers.start("ingest", "ingest-1")
        at.workers.start("apply", "apply-1")
        wait_for("the first day has rows", lambda: len(at.sink.table("accounts")) == 50, 60)
        wait_for("it is claimed", lambda: (at.checkpoint(ID) or {}).get("plans"), 30)
        assert ingest.terminate() == 0
        ids = write_for_hours(at, 36, "away")
        kept = ids[13:]
        at.workers.start("ingest", "ingest-2")
        wait_for(
            "what is left has rows",
            lambda: {row["id"] for row in at.sink.table("accounts")} >= set(kept),
            60,
        )
        [gap] = wait_for(
            "the gap is written down",
            lambda: at.sink.rows(
                "SELECT g.*, p.text FROM gapless.gap g JOIN gapless.partition_id p ON p.id = g.partition_id"
            ),
            30,
        )
        assert gap["text"] == ID
        lost = (instant(gap["to_text"]) - instant(gap["from_text"])).total_seconds()
        assert 11 * HOUR_S < lost < 13 * HOUR_S
        states = {row["state"] for row in at.sink.rows("SELECT state FROM gapless.coverage")}
        assert "gap" in states
        assert "gap" in at.workers.run("coverage").stdout
        assert at.workers.run("audit").returncode in (0, 1), "the audit must be able to say it"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_an_outage_longer_than_the_lookback(lane: Lane, tmp_path: Path) -> None:
    """The next window begins where the last one ended, not at now less a constant."""
    with story(lane, tmp_path, accounts=20) as at:
        ingest = at.workers.start("ingest", "ingest-1")
        at.workers.start("apply", "apply-1")
        wait_for("the beginning has rows", lambda: len(at.sink.table("accounts")) == 20, 60)
        assert ingest.terminate() == 0
        write_for_hours(at, 5, "outage")
        at.workers.start("ingest", "ingest-2")
        at.judge_final()
        assert not at.sink.rows("SELECT * FROM gapless.gap")


def test_a_poll_slower_than_its_schedule(lane: Lane, tmp_path: Path) -> None:
    """Each page takes longer than the schedule and the session: the partition is kept, all lands."""
    with story(lane, tmp_path, accounts=350) as at:
        at.provider.faults({"path": "/t/north/accounts", "kind": "delay", "delay_s": 1.5})
        at.workers.start("ingest", "ingest-1")
        at.workers.start("apply", "apply-1")
        at.judge_final(90)
        asked = [
            entry for entry in at.provider.requests("/t/north/accounts") if entry["status"] == 200
        ]
        assert len(asked) >= 4
        records = [page.value for page in at.pages(ID)]
        assert {page["pass"] for page in records[:4]} == {records[0]["pass"]}, (
            "one undisturbed pass"
        )
