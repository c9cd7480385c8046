"""Operators' decisions on real servers: control, accept-gap, release-sweep."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from ops.facts import log
from ops.facts.deployment import read_log
from schemas.records import Control, Failed, PlanState, SourceCheckpoint
from tests.integration.ops.verbs import read, run
from tests.integration.ops.written import DAYS, OWNER, Deployment


def decisions(deployment: Deployment) -> list[Control]:
    admin = log.connect(deployment.settings)
    ends = log.ends(admin, deployment.settings.control, 1)
    return [control for _, control in log.controls(deployment.settings, ends)]


def test_pause_and_resume_reach_the_control_topic(deployment: Deployment) -> None:
    environment = deployment.environment
    done = run(environment, "control", "pause", "shop", "--note", "provider asked for it")
    assert done.returncode == 0, done.stderr
    assert "(1 partition id)" in done.stdout
    (one,) = read(environment, "status")["partition_ids"]
    assert one["state"] == "paused"
    assert run(environment, "control", "resume", "shop").returncode == 0
    pause, resume = decisions(deployment)
    assert (pause.action, pause.about, pause.by) == ("pause", "shop", "tester")
    assert (pause.note, resume.action) == ("provider asked for it", "resume")
    (one,) = read(environment, "status")["partition_ids"]
    assert one["state"] != "paused"


def test_a_decision_about_nothing_is_refused(deployment: Deployment) -> None:
    done = run(deployment.environment, "control", "pause", "shop/order")
    assert done.returncode == 2
    assert "Did you mean shop/orders?" in done.stderr
    done = run(deployment.environment, "control", "snapshot-now", "shop")
    assert done.returncode == 2
    assert "shop has no snapshot" in done.stderr
    assert decisions(deployment) == []


def test_a_failed_interval_is_accepted_by_its_name_only(deployment: Deployment) -> None:
    environment = deployment.environment
    words = ("control", "accept-failed", OWNER)
    done = run(environment, *words, "--note", "x")
    assert done.returncode == 2
    assert "has failed" in done.stderr
    plan = PlanState(
        definition_hash="h", complete_before=DAYS[2], failed=[Failed(DAYS[2], DAYS[3], "too wide")]
    )
    deployment.checkpoint(
        SourceCheckpoint(
            partition_id=OWNER, worker="w", sequence=2, written_at=1, plans={"interval": plan}
        )
    )
    done = run(environment, *words, "--note", "x")
    assert done.returncode == 2
    assert f"--start {DAYS[2]} --end {DAYS[3]}   too wide" in done.stderr
    named = (*words, "--start", DAYS[2], "--end", DAYS[3])
    assert run(environment, *named).returncode == 2  # without saying why
    assert run(environment, *named, "--note", "known outage").returncode == 0
    (decision,) = decisions(deployment)
    assert (decision.action, decision.start, decision.end) == ("accept_failed", DAYS[2], DAYS[3])
    assert read_log(deployment.settings).controls[0][1] == decision


@pytest.mark.parametrize("cause", ["truncated", "topic_recreated", "deleted_by_retention"])
def test_a_halted_partition_goes_on_once_its_loss_is_accepted(
    deployment: Deployment, cause: str
) -> None:
    environment, number, at = deployment.environment, deployment.number, deployment.offsets
    # behind the last page that both agree on; anew; where it stood
    generation, following = {
        "truncated": (1, at[3] + 1), "topic_recreated": (1, 0),
        "deleted_by_retention": (0, at[4] + 1),
    }[cause]  # fmt: skip
    halted = {
        "cause": cause, "detail": "as found", "since": "2024-01-01T00:00:00+00:00",
        "first_lost": 3, "first_kept": 9, "unblocked_by": f"gapless accept-gap --partition {number}",
    }  # fmt: skip
    with deployment.database() as db:
        db.execute("UPDATE gapless.position SET halted = %s", (Jsonb(halted),))
        db.execute(
            'INSERT INTO gapless.gap (partition, generation, "offset", from_text, to_text, cause)'
            " VALUES (%s, 0, 3, '3', '9', %s)",
            (number, cause),
        )
        db.execute(
            "INSERT INTO gapless.log_generation VALUES (%s, 0, 'old', 0, NULL, now())", (number,)
        )
    assert read(environment, "status")["partition_ids"][0]["state"] == "halted"
    words = ("accept-gap", "--partition", str(number))
    assert run(environment, *words).returncode == 2  # without saying why
    done = run(environment, *words, "--note", "broker lost its disk")
    assert done.returncode == 0, done.stderr
    assert f"goes on at offset {following}, log generation {generation}" in done.stdout
    with deployment.database() as db:
        position = db.execute(
            "SELECT halted, generation, next_offset_to_apply FROM gapless.position"
        ).fetchone()
        assert position == (None, generation, following)
        assert db.execute("SELECT accepted_by FROM gapless.gap").fetchone() == ("tester",)
    done = run(environment, *words, "--note", "again")
    assert done.returncode == 2
    assert f"partition {number} is not halted" in done.stderr


def test_a_recorded_gap_is_accepted_by_its_number(deployment: Deployment) -> None:
    with deployment.database() as db:
        db.execute(
            "INSERT INTO gapless.gap (partition, partition_id, from_text, to_text, cause)"
            " VALUES (%s, 1, 'a', 'b', 'older than the provider keeps')",
            (deployment.number,),
        )
    environment = deployment.environment
    assert read(environment, "audit")["totals"]["open_gaps"] == 1
    done = run(environment, "accept-gap", "1", "--note", "told the customer")
    assert "older than the provider keeps: a to b" in done.stdout, done.stderr
    assert read(environment, "audit")["totals"]["open_gaps"] == 0
    assert run(environment, "accept-gap", "1", "--note", "x").returncode == 2
    assert run(environment, "accept-gap", "--note", "x").returncode == 2


def test_a_held_sweep_is_released_by_its_name(deployment: Deployment) -> None:
    with deployment.database() as db:
        db.execute(
            "INSERT INTO gapless.snapshot (mapping_version, partition_id, snapshot, generation,"
            " began, completed, state) VALUES (1, 1, 's-1', 0, 1, 2, 'held')"
        )
    environment = deployment.environment
    words = ("release-sweep", OWNER, "s-1")
    assert run(environment, *words).returncode == 2
    assert run(environment, "release-sweep", OWNER, "s-2", "--note", "x").returncode == 2
    done = run(environment, *words, "--note", "they left")
    assert done.returncode == 0, done.stderr
    with deployment.database() as db:
        row = db.execute("SELECT state, note FROM gapless.snapshot").fetchone()
        assert row == ("released", "released by tester: they left")
