"""Many apply processes on one log whose records race: `python -m tests.chaos.crowd --workers 8`.

The log is written by hand, so what must stand at the end is known without any code of the product.
Accounts pass a handle that must be unique on from tenant to tenant, which are different partitions;
notes refer to accounts of any tenant, so that batches of two mappings lock each other's rows.
"""

from __future__ import annotations

import argparse
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ops.stack import Stack
from tests.chaos.crew import Crew
from tests.chaos.faults import Fault
from tests.conftest import Lane
from tests.integration.apply.scene import Scene, account, complete, page
from tests.stack import fresh_folder
from tests.waiting import wait_until
from tests.workers import workers

TENANTS = tuple(f"t{number:02}" for number in range(12))
PARTITIONS = 8
_ROWS = 20
_RULES = """
CREATE UNIQUE INDEX one_handle ON accounts (email);
ALTER TABLE accounts ADD UNIQUE (id);
ALTER TABLE notes ADD CONSTRAINT of_an_account FOREIGN KEY (account) REFERENCES accounts (id);
"""
_FIRST = datetime(2026, 3, 1, tzinfo=UTC)
_ROUND_S = 0.25
_SLOWEST_S = 120.0
Tell = Callable[[str], None]


@dataclass(slots=True)
class Load:
    """Writes rounds of pages, and remembers the last state of everything: revision and value."""

    scene: Scene
    dice: random.Random
    round: int = 0
    records: int = 0
    accounts: dict[str, tuple[int, str]] = field(default_factory=dict)
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)

    def write(self, *, everything: bool = False) -> None:
        """One round: a page of accounts and one of notes per tenant. `everything`: all accounts."""
        self.round += 1
        start, end = (_FIRST + timedelta(minutes=self.round + n) for n in (0, 1))
        scope = f"{start:%Y-%m-%dT%H:%M:%S.%fZ}~{end:%Y-%m-%dT%H:%M:%S.%fZ}"
        pages = [
            page(records, owner=f"crm/{stream}/{tenant}", scope=scope, pass_=f"p{self.round}")
            for at, tenant in enumerate(TENANTS)
            for stream, records in (
                ("accounts", self._accounts(at, tenant, everything)),
                ("notes", self._notes(tenant)),
            )
        ]
        self.dice.shuffle(pages)
        self.records += sum(len(one.records) for one in pages)
        self.scene.put(*(record for one in pages for record in (one, complete(one))))

    def _accounts(self, at: int, tenant: str, everything: bool) -> list[dict[str, object]]:
        """The first one lets its handle go, and takes that of the next tenant."""
        version, first = 2 * self.round, f"{tenant}-0"
        handle = f"handle-{(at + self.round) % len(TENANTS)}"
        records = [
            account(first, version, email=f"none-{first}"),
            account(first, version + 1, email=handle),
        ]
        self.accounts[f"a-{first}"] = (version + 1, handle)
        numbers = range(1, _ROWS)
        for number in numbers if everything else self.dice.sample(numbers, 8):
            records.append(account(f"{tenant}-{number}", version))
            self.accounts[f"a-{tenant}-{number}"] = (version, f"{tenant}-{number}@example.org")
        return records

    def _notes(self, tenant: str) -> list[dict[str, object]]:
        records: list[dict[str, object]] = []
        for number in range(8):
            of = f"a-{self.dice.choice(TENANTS)}-{self.dice.randrange(_ROWS)}"
            name = f"n-{tenant}-{number}"
            records.append({"id": name, "version": self.round, "account": of, "body": "text"})
            self.notes[name] = (self.round, of)
        return records


@dataclass(slots=True)
class Report:
    """What a run has met. `deadlocks`: as Postgres counts them; they come late."""

    rounds: int
    records: int
    disturbances: int
    deaths: int
    waited_for_a_value: int
    waited_for_a_parent: int
    deadlocks: int


def run(
    lane: Lane, folder: Path, dice: random.Random, *, count: int, seconds: float, tell: Tell
) -> Report:
    """`count` workers under load for so long, disturbed at random; then everything is judged.

    Raises tests.chaos.faults.Fault or AssertionError if a promise is broken.
    """
    scene = Scene(lane, folder, partitions=PARTITIONS)
    scene.other_topics()
    database = scene.value("SELECT current_database()")
    scene.db.execute(f"ALTER DATABASE {database} SET deadlock_timeout = '100ms'".encode())
    scene.db.execute(_RULES.encode())
    environment = {
        **lane.environment,
        "GAPLESS_DEFINITIONS": str(scene.folder),
        "GAPLESS_PARTITIONS": str(PARTITIONS),
        "GAPLESS_SESSION_TIMEOUT_MS": "1000",
        "GAPLESS_BATCH_RECORDS": "100",
    }
    outputs = folder / "workers"
    outputs.mkdir()
    with workers(environment, outputs) as group:
        crew = Crew(group, tuple(f"apply-{number}" for number in range(count)))
        crew.begin()
        load = Load(scene, dice)
        disturbances = _disturb(crew, load, dice, seconds, tell)
        load.write(everything=True)
        crew.calm()
        _come_to_rest(scene, crew)
        _judge(scene, load)
        audit = group.run("audit --json")
        assert audit.returncode == 0, audit.stdout + audit.stderr
    waited = dict(scene.rows("SELECT reason, count(*) FROM gapless.exception GROUP BY 1"))
    deadlocks = scene.value(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    scene.close()
    return Report(
        load.round, load.records, disturbances, crew.deaths,
        waited.get("unique", 0), waited.get("foreign_key", 0), deadlocks,
    )  # fmt: skip


def _disturb(crew: Crew, load: Load, dice: random.Random, seconds: float, tell: Tell) -> int:
    """Rounds of load with a disturbance now and then. Returns how many there were."""
    until, number = time.monotonic() + seconds, 0
    next_at = time.monotonic() + min(1.0, seconds / 4)
    while (now := time.monotonic()) < until:
        load.write()
        crew.tend()
        time.sleep(_ROUND_S)  # the load is so many rounds a second
        if now >= next_at:
            number += 1
            tell(f"{number}. {_one(crew, dice)}")
            next_at = now + dice.uniform(0.3, 2.0)
    return number


def _one(crew: Crew, dice: random.Random) -> str:
    slot = dice.choice(crew.slots)
    how = dice.choice(["kill", "kill", "stop", "stop", "end", "crowd"])
    if how == "kill":
        crew.kill(slot, dice.choice([0.0, dice.uniform(0, 2)]))
        return f"kill -9 {slot}"
    if how == "stop":
        for_s = dice.choice([dice.uniform(0.1, 1), dice.uniform(1.5, 4)])
        crew.freeze(slot, for_s)
        return f"SIGSTOP {slot} for {for_s:.1f} s"
    if how == "end":
        crew.restart(slot)
        return f"SIGTERM {slot}"
    some = dice.sample(crew.slots, max(1, len(crew.slots) // 2))
    for one in some:
        crew.kill(one)
    return f"kill -9 {', '.join(some)}"


def _come_to_rest(scene: Scene, crew: Crew) -> None:
    """All is applied, and what waits for others was tried again until nothing waits."""

    def applied() -> bool:
        crew.tend()
        return scene.is_settled()

    wait_until(applied, _SLOWEST_S, "the log is applied")

    def resolved() -> bool:
        crew.tend()
        scene.db.execute(
            "UPDATE gapless.exception SET due_at = now() WHERE state = 'retryable' AND due_at > now()"
        )
        time.sleep(0.3)
        waiting = "SELECT count(*) FROM gapless.exception WHERE state = 'retryable'"
        return bool(scene.value(waiting) == 0)

    wait_until(resolved, _SLOWEST_S, "nothing waits for others any more")


def _judge(scene: Scene, load: Load) -> None:
    """Rows are the last states, every record has its outcome, nothing was given up."""
    refused = scene.rows(
        "SELECT state, reason, key, detail FROM gapless.exception WHERE state <> 'resolved'"
    )
    assert not refused, refused[:10]
    for table, column, wanted in (
        ("accounts", "email", load.accounts), ("notes", "account", load.notes),
    ):  # fmt: skip
        rows = scene.rows(f"SELECT id, source_revision, {column} FROM {table} WHERE NOT _deleted")
        found = {id_: (revision, value) for id_, revision, value in rows}
        wrong = {
            id_: (found.get(id_), wanted.get(id_))
            for id_ in found.keys() | wanted.keys()
            if found.get(id_) != wanted.get(id_)
        }
        assert not wrong, f"{table}: stands, should stand: {dict(list(wrong.items())[:10])}"
    balance = scene.balance()
    assert set(balance) <= {"applied", "superseded"}, balance
    assert sum(balance.values()) == load.records, (balance, load.records)
    coverage = scene.rows("SELECT DISTINCT state FROM gapless.coverage")
    assert coverage == [("complete",)], coverage


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.crowd", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    again = f"python -m tests.chaos.crowd --minutes {given.minutes:g} --workers {given.workers}"
    tell(f"seed {seed}; again: {again} --seed {seed}")
    stack = Stack(fresh_folder(), tell=tell)
    folder = stack.folder / "crowd"
    try:
        at = stack.start()
        folder.mkdir()
        environment = {
            "GAPLESS_KAFKA": at.kafka, "GAPLESS_POSTGRES": at.postgres, "GAPLESS_PREFIX": "own.",
        }  # fmt: skip
        lane = Lane(at.kafka, at.postgres, "own.", environment)
        seconds = given.minutes * 60
        report = run(
            lane, folder, random.Random(seed), count=given.workers, seconds=seconds, tell=tell
        )
    except (Fault, AssertionError, TimeoutError) as fault:
        stack.stop()
        tell(f"BROKEN with seed {seed}: {fault}\nkept in {stack.folder}")
        return 1
    stack.remove()
    tell(f"clean: {report}")
    return 0


def tell(text: str) -> None:
    """One line with the time of day."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
