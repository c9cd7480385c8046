"""What was sent long ago leaves the outbox; nothing else does, and no sequence goes back for it."""

from __future__ import annotations

import threading
from contextlib import closing

from apply.outbox import Outbox
from ops.relay import outbox
from ops.relay.pruning import BATCH, NEWEST_KEPT, Pruning
from ops.relay.service import Relay
from tests.integration.ops.verbs import run
from tests.integration.ops.written import Deployment
from tests.waiting import wait_until

WEEK_S = 7 * 86_400.0


def fill(deployment: Deployment, count: int, state: str = "sent", *, days: float = 8) -> None:
    """Events of one age; each of a key of its own. Their sequence is their number."""
    with deployment.database() as db:
        db.execute(
            "INSERT INTO gapless.outbox (mapping, key, sequence, effect, type, topic,"
            " idempotency_key, payload, state, created_at, sent_at)"
            " SELECT 'orders', %(state)s || n, n, 'changed', 'order.changed', 'elsewhere',"
            " gen_random_uuid()::text, '{}', %(state)s, now() - %(days)s * interval '1 day',"
            " CASE WHEN %(state)s = 'sent' THEN now() - %(days)s * interval '1 day' END"
            " FROM generate_series(1, %(count)s) n",
            {"state": state, "count": count, "days": days},
        )


def left(deployment: Deployment) -> dict[str, int]:
    with deployment.database() as db:
        rows = db.execute("SELECT state, count(*) FROM gapless.outbox GROUP BY state").fetchall()
    return dict(rows)


def prune(deployment: Deployment, keep_s: float = WEEK_S) -> None:
    Pruning(deployment.settings.postgres, keep_s, hold_s=60).all(threading.Event())


def test_only_what_was_sent_long_ago_goes(deployment: Deployment) -> None:
    for state in ("dead", "unsent", "skipped"):
        fill(deployment, 3, state, days=90)
    fill(deployment, 2 * BATCH + 200)
    fill(deployment, 5, "dead")
    fill(deployment, 7)
    fill(deployment, NEWEST_KEPT + 10, days=6)
    prune(deployment)
    kept = {"dead": 8, "unsent": 3, "skipped": 3, "sent": NEWEST_KEPT + 10}
    assert left(deployment) == kept
    prune(deployment, keep_s=0)  # for ever
    assert left(deployment) == kept


def test_the_newest_stay_so_that_no_sequence_goes_back(deployment: Deployment) -> None:
    fill(deployment, NEWEST_KEPT + 400)
    future = 2**62
    with deployment.database() as db:
        db.execute(
            "UPDATE gapless.outbox SET sequence = %s WHERE id = (SELECT max(id) FROM gapless.outbox)",
            (future,),
        )
    prune(deployment)
    assert left(deployment) == {"sent": NEWEST_KEPT}
    issued = Outbox()
    with deployment.database() as db:
        issued.took_over(db)
    assert issued._last == future


def test_what_lies_between_others_is_met_in_the_next_batch(deployment: Deployment) -> None:
    fill(deployment, BATCH, "dead")
    fill(deployment, 30)
    fill(deployment, NEWEST_KEPT)
    pruning = Pruning(deployment.settings.postgres, WEEK_S, hold_s=60)
    with closing(outbox.connect(deployment.settings.postgres, 60)) as connection:
        steps = [pruning.step(connection) for _ in range(3)]
    assert [(one.pruned, one.more) for one in steps] == [(0, True), (30, False), (0, True)]


def test_two_relays_do_it_one_at_a_time(deployment: Deployment) -> None:
    fill(deployment, NEWEST_KEPT + 10)
    pruning = Pruning(deployment.settings.postgres, WEEK_S, hold_s=60)
    dsn = deployment.settings.postgres
    with closing(outbox.connect(dsn, 60)) as one, closing(outbox.connect(dsn, 60)) as other:
        with one.transaction():
            assert pruning.step(one).pruned == 10
            assert pruning.step(other).pruned == 0
        assert not pruning.step(other).more


def test_a_relay_does_it_running_and_once(deployment: Deployment) -> None:
    fill(deployment, NEWEST_KEPT + 20)
    settings = deployment.settings.model_copy(update={"outbox_keep_s": 30 * 86_400.0})
    Relay(settings).run(threading.Event(), once=True)
    assert left(deployment) == {"sent": NEWEST_KEPT + 20}
    environment = {**deployment.environment, "GAPLESS_OUTBOX_KEEP_S": "3600"}
    done = run(environment, "relay", "--once")
    assert done.returncode == 0, done.stderr
    assert left(deployment) == {"sent": NEWEST_KEPT}
    fill(deployment, 20)
    stop = threading.Event()
    relay = Relay(deployment.settings)
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        wait_until(
            lambda: left(deployment) == {"sent": NEWEST_KEPT}, 20, "pruned by a running relay"
        )
    finally:
        stop.set()
        thread.join(30)
