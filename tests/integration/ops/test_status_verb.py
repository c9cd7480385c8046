"""`gapless status` on real servers, and with either of them away."""

from __future__ import annotations

import time

from schemas.records import Blocked, PlanState, SourceCheckpoint
from tests.integration.ops.verbs import read, run
from tests.integration.ops.written import DAYS, OWNER, Deployment

NOWHERE = {"GAPLESS_KAFKA": "127.0.0.1:9"}
NO_SINK = {"GAPLESS_POSTGRES": "postgresql://nobody@127.0.0.1:9/nothing"}


def test_both_checkpoints_and_what_is_blocked(deployment: Deployment) -> None:
    found = read(deployment.environment, "status")
    (one,) = found["partition_ids"]
    assert (found["kafka"], found["postgres"]) == (None, None)
    assert (one["partition_id"], one["partition"]) == (OWNER, deployment.number)
    assert one["source"]["plans"][0]["complete_before"] == DAYS[2]
    applied = one["applied"]
    assert applied["next_offset_to_apply"] == deployment.offsets[-1] + 1
    assert (applied["records_behind"], applied["lag_s"]) == (0, 0.0)
    assert one["outcomes"] == {
        "applied": 3, "superseded": 2, "ignored": 0, "quarantined": 1, "retryable": 0, "erased": 0,
    }  # fmt: skip
    assert one["horizons"]["upstream_s"] == 30 * 86_400
    assert one["horizons"]["topic_s"] is None
    kinds = {trouble["kind"]: trouble for trouble in found["troubles"]}
    assert set(kinds) == {"horizon", "quarantined"}  # 2024 is more than 30 days ago
    assert kinds["quarantined"]["unblocks"].startswith("change mappings/orders.yaml and raise")
    assert "o-3" not in str(found)


def test_what_is_not_applied_yet(deployment: Deployment) -> None:
    before = time.time()
    with deployment.database() as db:
        db.execute("UPDATE gapless.position SET next_offset_to_apply = 0, owner = NULL")
    (one,) = read(deployment.environment, "status", "shop/*")["partition_ids"]
    assert one["applied"]["records_behind"] > 0
    assert 0 < one["applied"]["lag_s"] < time.time() - before + 60
    assert "no worker holds it" in run(deployment.environment, "status").stdout
    assert read(deployment.environment, "status", "other/*")["partition_ids"] == []


def test_a_blocked_stream(deployment: Deployment) -> None:
    deployment.checkpoint(
        SourceCheckpoint(
            partition_id=OWNER, worker="w", sequence=2, written_at=1,
            blocked=Blocked("410 Gone", 5, "another URL"),
            plans={"interval": PlanState(definition_hash="h", complete_before=DAYS[2])},
        )
    )  # fmt: skip
    text = run(deployment.environment, "status").stdout
    assert "Blocked: shop/orders   blocked   410 Gone" in text
    assert "unblocks           another URL" in text


def test_postgres_away(deployment: Deployment) -> None:
    done = run({**deployment.environment, **NO_SINK}, "status")
    assert done.returncode == 0, done.stderr
    assert "Postgres cannot be asked" in done.stdout
    assert "127.0.0.1:9" in done.stdout
    assert "complete through 2024-01-03" in done.stdout
    assert "lag unknown" in done.stdout
    assert "flowing" not in done.stdout


def test_what_kafka_knows_of_apply_while_postgres_is_away(deployment: Deployment) -> None:
    deployment.mirror(deployment.offsets[0])
    environment = {**deployment.environment, **NO_SINK}
    found = read(environment, "status")
    (one,) = found["partition_ids"]
    assert one["applied"]["mirrored"] == deployment.offsets[0]
    assert (one["applied"]["next_offset_to_apply"], one["lag_s"]) == (None, None)
    assert one["applied"]["lag_at_most_s"] > 0
    assert found["troubles"][0]["kind"] == "sink"
    assert "Blocked: sink" in run(environment, "status", "shop/*").stdout


def test_kafka_away(deployment: Deployment) -> None:
    done = run({**deployment.environment, **NOWHERE}, "status")
    assert done.returncode == 0, done.stderr
    assert "Kafka cannot be asked" in done.stdout
    assert "Connection refused" in done.stdout
    assert "coverage           2024-01-01 .. 2024-01-03" in done.stdout


def test_both_away(deployment: Deployment) -> None:
    done = run({**deployment.environment, **NOWHERE, **NO_SINK}, "status", "--json")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
