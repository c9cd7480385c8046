"""The main job in about two minutes: everything real, workers killed again and again, then the audit.

Exit code 0 only if every worker that was asked to stop did so, the audit is clean, and the tables
hold exactly what the provider's own books say.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import psycopg
from psycopg import sql

from ops.demo.crew import Crew
from ops.demo.progress import Progress, Tail, look, utc_now
from ops.demo.upstream import Upstream
from ops.stack import Stack, running
from ops.status.words import duration
from schemas.settings import Settings

DEFINITIONS = Path(__file__).parent / "definitions"
TENANTS = ("north", "south")
# collection of the provider → (table it becomes, column that holds the provider's id)
TABLES = {
    "accounts": ("normalized_accounts", "external_id"),
    "events": ("pipeline_events", "source_id"),
}
RATE = 25.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the workers are killed for, and how much there is to read. `seconds` of wall time."""

    seconds: float = 80.0
    accounts: int = 6_000
    events: int = 6_000
    seed: int = 7


def run(folder: Path, plan: Plan, tell: Tell) -> int:
    """The whole demo in `folder`, which is its own: what is there is removed first."""
    stack = Stack(folder / "stack", tell=tell)
    if (folder / "stack").exists():
        stack.remove()
    tell("Starting Apache Kafka and PostgreSQL (downloads them the first time)")
    with (
        stack,
        Upstream(
            seed=plan.seed, tenants=len(TENANTS), accounts=plan.accounts, events=plan.events
        ) as upstream,
    ):
        addresses = running(stack.folder)
        assert addresses is not None, "the stack has just been started"
        environment = _environment(addresses.kafka, addresses.postgres, upstream.url)
        with Crew(environment, folder / "logs") as crew:
            return _Show(crew, upstream, environment, plan, tell).run()


def _environment(kafka: str, postgres: str, url: str) -> dict[str, str]:
    return {
        "GAPLESS_KAFKA": kafka,
        "GAPLESS_POSTGRES": postgres,
        "GAPLESS_DEFINITIONS": str(DEFINITIONS),
        "GAPLESS_PARTITIONS": "4",
        "GAPLESS_SESSION_TIMEOUT_MS": "2000",
        "GAPLESS_TRANSACTION_TIMEOUT_MS": "10000",
        "GAPLESS_MESSAGE_TIMEOUT_MS": "5000",
        "DEMO_URL": url,
    }


class _Show:
    """One run of the demo on servers that are up."""

    def __init__(
        self, crew: Crew, upstream: Upstream, environment: dict[str, str], plan: Plan, tell: Tell
    ) -> None:
        self._crew, self._upstream, self._plan, self._tell = crew, upstream, plan, tell
        self._environment = environment
        self._settings = Settings(
            kafka=environment["GAPLESS_KAFKA"],
            postgres=environment["GAPLESS_POSTGRES"],
            partitions=int(environment["GAPLESS_PARTITIONS"]),
        )
        self._dsn = environment["GAPLESS_POSTGRES"]
        self._tables = tuple(table for table, _ in TABLES.values())

    def run(self) -> int:
        for verb in ("topics", "migrate"):
            if code := self._gapless(verb, quiet=True):
                return code
        for name in ("ingest-1", "ingest-2", "apply-1", "apply-2"):
            self._crew.start(name)
        self._upstream.traffic(RATE)
        tail = Tail(self._settings)
        try:
            self._kill_again_and_again(tail)
            self._upstream.traffic(0)
            self._tell("The provider is quiet now; waiting until everything has landed")
            landed = self._drain(tail)
        finally:
            tail.close()
        unclean = [f"{n} ended with {c}" for n, c in self._crew.stop().items() if c != 0]
        differing = self._differences()
        self._tell("")
        audit = self._gapless("audit")
        for fault in [*unclean, *differing]:
            self._tell(f"  FAULT  {fault}")
        return self._verdict(landed and not unclean and not differing, audit)

    def _verdict(self, good: bool, audit: int) -> int:
        killed = f"{self._crew.kills} workers were killed with kill -9 in the middle of a page"
        if good and audit == 0:
            self._tell(f"\n{killed}. Nothing was lost; the audit balances and")
            self._tell("every row equals what the provider's own books say.")
            return 0
        self._tell(f"\n{killed}. The result is NOT clean: see above and the workers' logs.")
        return 1

    def _kill_again_and_again(self, tail: Tail) -> None:
        """Alternately an ingest worker with half a page received, and an apply worker in a transaction."""
        end = time.monotonic() + self._plan.seconds
        victims = cycle(self._victims())
        printed = 0.0
        next_kill = time.monotonic() + 6
        while time.monotonic() < end:
            now = time.monotonic()
            if now - printed >= 2:
                printed = now
                self._show(tail)
            if now >= next_kill:
                next(victims)()
                next_kill = time.monotonic() + 6
            for name in self._crew.dead():
                self._tell(f"  {name} ended by itself; see its log")
                self._crew.start(name)
            time.sleep(0.1)

    def _victims(self) -> Iterator[Callable[[], None]]:
        for number in (1, 2):
            yield partial(self._kill_ingest, f"ingest-{number}")
            yield partial(self._kill_apply, f"apply-{number}")

    def _kill_ingest(self, name: str) -> None:
        """Half of an answer has been sent, the rest is held back: now."""
        hold = self._upstream.hold("/t/")
        held = self._upstream.held(hold, 10)
        self._crew.kill(name)
        self._upstream.release(hold)
        self._tell(f"  kill -9 {name}" + (", half a page received" if held else ""))
        self._crew.start(name)

    def _kill_apply(self, name: str) -> None:
        """Its transaction is open, some rows are written, nothing is committed: now."""
        inside = self._inside_transaction(name, 10)
        self._crew.kill(name)
        self._tell(f"  kill -9 {name}" + (", inside its transaction" if inside else ""))
        self._crew.start(name)

    def _inside_transaction(self, name: str, timeout_s: float) -> bool:
        query = (
            "SELECT 1 FROM gapless.position p JOIN pg_stat_activity a ON a.pid = p.backend_pid "
            "WHERE p.owner = %s AND a.xact_start IS NOT NULL AND a.backend_xid IS NOT NULL"
        )
        deadline = time.monotonic() + timeout_s
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while time.monotonic() < deadline:
                if connection.execute(query, [name]).fetchone():
                    return True
        return False

    def _show(self, tail: Tail) -> Progress:
        seen = look(tail, self._dsn, self._tables, utc_now())
        claim = f"{seen.complete_before[:19]}" if seen.complete_before else "nothing yet"
        lag = "–" if seen.lag_s is None else f"{seen.lag_s:.1f} s"
        if seen.lag_s is not None and seen.lag_s >= 600:  # the past is being read
            lag = duration(seen.lag_s)
        end = max(seen.log_end, seen.next_to_apply)  # which is looked at a moment later
        self._tell(
            f"{seen.pages:6,} pages  {seen.records:8,} observations  {seen.rows:7,} rows   "
            f"source checkpoint {claim:<19}  lag {lag:>6}   "
            f"applied offset {seen.next_to_apply:,} of {end:,}"
        )
        return seen

    def _drain(self, tail: Tail, timeout_s: float = 90) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self._differences():
                self._show(tail)
                return True
            time.sleep(1)
        self._tell(f"  FAULT  not everything landed within {timeout_s:.0f} s")
        return False

    def _differences(self) -> list[str]:
        """Where the tables differ from the provider's own books; empty is right."""
        found = []
        for collection, (table, column) in TABLES.items():
            for tenant in TENANTS:
                wanted = self._upstream.live(tenant, collection)
                rows = self._rows(table, column, tenant)
                missing, surplus = wanted.keys() - rows.keys(), rows.keys() - wanted.keys()
                stale = [k for k in wanted.keys() & rows.keys() if rows[k] not in (None, wanted[k])]
                if missing or surplus or stale:
                    found.append(
                        f"{table} of {tenant}: {len(missing)} missing, {len(surplus)} surplus, "
                        f"{len(stale)} stale of {len(wanted)}"
                    )
        return found

    def _rows(self, table: str, column: str, tenant: str) -> dict[str, int | None]:
        query = sql.SQL(
            "SELECT {}::text, CASE WHEN pg_typeof(source_revision) = 'bigint'::regtype "
            "THEN source_revision::text::bigint END FROM {} WHERE tenant_id = %s AND NOT _deleted"
        ).format(sql.Identifier(column), sql.Identifier(table))
        with psycopg.connect(self._dsn) as connection:
            return dict(connection.execute(query, [tenant]).fetchall())

    def _gapless(self, *verb: str, quiet: bool = False) -> int:
        done = subprocess.run(
            [sys.executable, "-m", "ops.cli.main", *verb],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if not quiet or done.returncode:
            self._tell((done.stdout + done.stderr).rstrip())
        return done.returncode
