"""The promises as checks; each returns what is wrong as sentences, so an empty list is a pass.

`live` holds at any moment, also in the middle of a run; `final` once everything has drained.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tests.oracle import log
from tests.oracle.sink import Row, Sink


class Fact(Protocol):
    """One state of one entity, as the provider's own ledger has it; times are RFC 3339 text."""

    @property
    def id(self) -> str: ...
    @property
    def updated_at(self) -> str: ...
    @property
    def visible_at(self) -> str: ...
    @property
    def replaced_at(self) -> str | None: ...
    @property
    def deleted(self) -> bool: ...
    @property
    def body(self) -> Any: ...


class Upstream(Protocol):
    """What the judge asks of the fake provider: its own ledger of facts."""

    def ledger(self, tenant: str, collection: str) -> Sequence[Fact]: ...

    def state(self, tenant: str, collection: str) -> Mapping[str, Fact]: ...

    def counts(self) -> Mapping[str, Mapping[str, int]]: ...


@dataclass(frozen=True, slots=True)
class Watched:
    """One partition id and the table its records become.

    `entity` finds (id, revision) in a raw record, `row_id` the same id in a row; `compare` says
    what differs between a record of the provider and its row. `deletes`: whether rows of deleted
    entities must be marked deleted once all has drained. A fact that became visible later than
    `settle_s` after its stamp is promised only by the end, not by each `complete_before`.
    """

    partition_id: str
    tenant: str
    collection: str
    table: str
    entity: Callable[[dict[str, Any]], tuple[str, Any]]
    row_id: Callable[[Row], str]
    settle_s: float = 1.0
    deletes: bool = False
    compare: Callable[[dict[str, Any], Row], str | None] = field(default=lambda record, row: None)


@dataclass(slots=True)
class Judge:
    """Judges one lane (topics under `prefix`, one database) against the provider's ledger."""

    kafka: str
    prefix: str
    sink: Sink
    upstream: Upstream
    watched: tuple[Watched, ...]

    def live(self) -> list[str]:
        """Checkpoints never ahead, counts balance, no revision ever fell."""
        checkpoints = self._checkpoints()
        positions, ledger = self.sink.positions_and_ledger()
        records = list(log.read(self.kafka, f"{self.prefix}observations"))
        faults = list(self._checkpoints_behind_log(checkpoints, records))
        faults += self._claims_are_true(checkpoints, records)
        faults += applied_behind_outcomes(positions, ledger, records)
        faults += [
            f"revision fell in {f['table_name']}: {f['old']} -> {f['new']}"
            for f in self.sink.falls()
        ]
        return faults

    def final(self) -> list[str]:
        """`live`, and every eligible fact is in the log and its newest state in the table."""
        faults = self.live()
        records = list(log.read(self.kafka, f"{self.prefix}observations"))
        for watched in self.watched:
            faults += self._facts_in_log(watched, records)
            faults += self.differences(watched)
        return faults

    def _checkpoints(self) -> dict[str, log.Raw]:
        last: dict[str, log.Raw] = {}
        for record in log.read(self.kafka, f"{self.prefix}checkpoints"):
            if record.type is None:
                last.pop(record.key, None)  # cleared: nothing is known, and it begins again
                continue
            before = last.get(record.key)
            if before is not None:
                assert record.value["sequence"] > before.value["sequence"], (
                    f"{record.key}: the checkpoint does not rise: {before}, and then {record}"
                )
            last[record.key] = record
        return last

    def _checkpoints_behind_log(
        self, checkpoints: dict[str, log.Raw], records: list[log.Raw]
    ) -> Iterable[str]:
        at = {(r.partition, r.offset): r.key for r in records}
        for owner, checkpoint in checkpoints.items():
            named = checkpoint.value["named"]
            if named is None:
                continue
            found = at.get((checkpoint.partition, named["offset"]))
            if found != named["key"]:
                yield f"{owner}: checkpoint names {named}, the log has {found!r} there"

    def _claims_are_true(
        self, checkpoints: dict[str, log.Raw], records: list[log.Raw]
    ) -> Iterable[str]:
        """What `complete_before` claims: no older fact is missing from the log."""
        for watched in self.watched:
            checkpoint = checkpoints.get(watched.partition_id)
            plan = plan_by_time(checkpoint.value["plans"]) if checkpoint else None
            if not plan or plan["complete_before"] is None:
                continue
            before = micros(plan["complete_before"])
            logged = seen(watched, records)
            written_at = checkpoint.value["written_at"] if checkpoint else 0
            facts = readable_before(self.upstream, watched, before, written_at)
            for name, version in facts.items():
                if not any(v >= version for v in logged.get(name, ())):
                    yield (
                        f"{watched.partition_id}: complete before {plan['complete_before']}, but "
                        f"{name} at {version} (older) is not in the log; it has {logged.get(name)}"
                    )

    def _facts_in_log(self, watched: Watched, records: list[log.Raw]) -> Iterable[str]:
        logged = seen(watched, records)
        for name, fact in self.upstream.state(watched.tenant, watched.collection).items():
            _, version = watched.entity(fact.body)
            if version not in logged.get(name, set()):
                yield f"{watched.partition_id}: {name} at {version} never reached the log"

    def drained(self) -> bool:
        """Whether the tables hold the provider's state of now; counts first, they cost little."""
        live = self.upstream.counts()
        for watched in self.watched:
            wanted = live[f"{watched.tenant}/{watched.collection}"]["live"]
            found = self.sink.living(watched.table, watched.tenant)
            if found < wanted or (watched.deletes and found != wanted):
                return False
        return not any(True for watched in self.watched for _ in self.differences(watched))

    def differences(self, watched: Watched) -> Iterable[str]:
        """Where the table differs from the provider's state of now."""
        rows = {
            watched.row_id(row): row
            for row in self.sink.table(watched.table)
            if row.get("tenant_id", watched.tenant) == watched.tenant
        }
        state = self.upstream.state(watched.tenant, watched.collection)
        for name, fact in state.items():
            row = rows.get(name)
            if row is None:
                yield f"{watched.table}: no row for {name}"
            elif row["_deleted"]:
                yield f"{watched.table}: {name} is marked deleted, the provider has it"
            elif difference := watched.compare(fact.body, row):
                yield f"{watched.table}: {name}: {difference}"
        for name, row in rows.items():
            if watched.deletes and name not in state and not row["_deleted"]:
                yield f"{watched.table}: {name} was deleted at the provider, its row lives"


def plan_by_time(plans: Mapping[str, Any]) -> Any:
    """The state of the plan that claims a stretch of the source's time, if there is one."""
    return plans.get("interval") or plans.get("keyset")


def applied_behind_outcomes(
    positions: list[Row], ledger: list[Row], records: list[log.Raw]
) -> Iterable[str]:
    """Below the applied offset every record of every page has one outcome, and counts balance."""
    outcomes: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in ledger:
        outcomes[(row["partition"], row["offset"])].append(row)
    following = {p["partition"]: p["next_offset_to_apply"] for p in positions}
    pages = [r for r in records if r.type == "Observation"]
    for page in pages:
        rows = outcomes.pop((page.partition, page.offset), [])
        if page.offset >= following.get(page.partition, 0):
            if rows:
                yield f"{page.key} at {page.offset} has outcomes but is not below the applied offset"
            continue
        if not rows:
            yield f"{page.key} at {page.partition}/{page.offset} is applied without any outcome"
        for row in rows:
            count = len(page.value["records"])
            if not (row["records"] == count == sum(row["counts"]) == len(row["outcomes"])):
                yield f"{page.key}: {count} records, ledger says {row['records']}, {row['counts']}"
            elif 0 in row["outcomes"]:
                yield f"{page.key}: a record without an outcome"
    for partition, offset in outcomes:
        yield f"outcomes for {partition}/{offset}, where the log has no page"


def seen(watched: Watched, records: Iterable[log.Raw]) -> dict[str, set[Any]]:
    """id → every revision of it that stands in the log for this partition id."""
    found: dict[str, set[Any]] = defaultdict(set)
    for record in records:
        if record.type != "Observation" or record.value["partition_id"] != watched.partition_id:
            continue
        for raw in record.value["records"]:
            try:
                name, version = watched.entity(json.loads(raw))
            except (ValueError, KeyError, TypeError):
                continue  # poison on purpose; its outcome is judged elsewhere
            found[name].add(version)
    return found


def readable_before(
    upstream: Upstream, watched: Watched, before: int, written_at: int
) -> dict[str, Any]:
    """id → revision of each state stamped before `before` that could still be read at `written_at`.

    A state that was overwritten before the checkpoint was written may never have been shown to
    anybody; its successor carries a later stamp, which the next checkpoint will claim.
    """
    found: dict[str, Any] = {}
    for fact in upstream.ledger(watched.tenant, watched.collection):
        stamp = micros(fact.updated_at)
        late = micros(fact.visible_at) - stamp > watched.settle_s * 1_000_000
        gone = fact.replaced_at is not None and micros(fact.replaced_at) <= written_at
        if not fact.deleted and stamp < before and not late and not gone:
            found[fact.id] = watched.entity(fact.body)[1]
    return found


def micros(text: str) -> int:
    """ISO 8601 text as microseconds since the epoch."""
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)
