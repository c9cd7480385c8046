"""What tests of apply start from: topics, tables, two mappings, and a hand that writes the log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from apply.functions.outside import Surroundings
from apply.mapping.types import CompiledMapping
from apply.service import Service
from apply.tables import migrate_mappings
from apply.versions import registered
from ops.migrate import migrate
from schemas import codec, failpoints, keys
from schemas.definitions.load import Definitions, load_folder
from schemas.log import config
from schemas.records import Mark, Observation, PassRange, Record
from schemas.routing import route
from schemas.settings import Settings
from tests.conftest import Lane
from tests.waiting import wait_until

SOURCE = """
gapless: 1
source: crm
base_url: https://crm.example
tenants: {list: [{id: north}, {id: south}, {id: harbour}]}
streams:
  accounts:
    get: /accounts
    params: {since: "{start}", until: "{end}", token: "{token}"}
    records: body.items
    pages: {next: body.next}
    deletes: shown
    plan:
      interval: {time: updated_at, start: 2026-01-01}
      snapshot: {every: 1d, params: {since: null, until: null}}
  notes:
    get: /notes
    params: {since: "{start}", until: "{end}", token: "{token}"}
    records: body.items
    pages: {next: body.next}
    deletes: shown
    plan:
      interval: {time: updated_at, start: 2026-01-01}
  unread:
    get: /unread
    params: {since: "{start}", until: "{end}", token: "{token}"}
    records: body.items
    pages: {next: body.next}
    deletes: shown
    plan:
      interval: {time: updated_at, start: 2026-01-01}
"""
ACCOUNTS = """
gapless: 1
mapping: accounts
version: VERSION
from: crm/accounts
table: accounts
key: id
revision: {path: version, type: bigint, kind: KIND}
deleted: {deleted: true}
columns:
  id: text
  lifecycle: {type: text, values: [active, closed]}
  balance: numeric(20,2)
  email: {type: text, personal: keep}
  updated_at: timestamptz
events: {to: {topic: changes}, created: account.opened, changed: account.changed, deleted: account.gone}
"""
NOTES = """
gapless: 1
mapping: notes
version: 1
from: crm/notes
table: notes
key: id
revision: {path: version, type: bigint, kind: coarse}
columns:
  id: text
  account: text
  body: text
"""
AT_US = 1_780_000_000_000_000


class Scene:
    """One deployment in a lane, with `partitions` log partitions."""

    def __init__(
        self,
        lane: Lane,
        folder: Path,
        *,
        partitions: int = 2,
        kind: str = "coarse",
        version: int = 1,
        changed: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.lane, self.folder, self.kind = lane, folder, kind
        self.settings = Settings(
            **{
                "kafka": lane.kafka, "postgres": lane.postgres, "prefix": lane.prefix,
                "partitions": partitions, "session_timeout_ms": 2_000, "worker": "one",
                "definitions": folder, **settings,
            }
        )  # fmt: skip
        self.outside = Surroundings(folder)
        self.db = psycopg.connect(lane.postgres, autocommit=True)
        self.db.execute("SET TimeZone TO 'UTC'")
        self._topics(partitions)
        self.producer = Producer({**config.client(self.settings, "test"), "linger.ms": 1})
        migrate(lane.postgres)
        self.define(version, **(changed or {}))

    @property
    def environment(self) -> dict[str, str]:
        """What a verb of this deployment needs."""
        return {
            "GAPLESS_KAFKA": self.settings.kafka, "GAPLESS_POSTGRES": self.settings.postgres,
            "GAPLESS_PREFIX": self.settings.prefix,
            "GAPLESS_PARTITIONS": str(self.settings.partitions),
            "GAPLESS_DEFINITIONS": str(self.folder),
        }  # fmt: skip

    def _topics(self, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.lane.kafka, "log_level": 0})
        of = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
        topic = NewTopic(self.settings.observations, partitions, 1, config=of)
        admin.create_topics([topic])[self.settings.observations].result(30)

    def other_topics(self) -> None:
        """What an audit looks at beside the observations."""
        admin = AdminClient({"bootstrap.servers": self.lane.kafka, "log_level": 0})
        of = {"cleanup.policy": "compact"}
        topics = [
            NewTopic(self.settings.checkpoints, self.settings.partitions, 1, config=of),
            NewTopic(self.settings.control, 1, 1, config=of),
        ]
        for made in admin.create_topics(topics).values():
            made.result(30)

    def define(self, version: int, **changed: str) -> Definitions:
        """Write definitions, register their mappings. `changed`: pieces of text to replace."""
        self.write(version, **changed)
        migrate_mappings(self.db, self.definitions)
        return self.definitions

    def write(self, version: int, **changed: str) -> Definitions:
        """The same, without registering them."""
        mapping = ACCOUNTS.replace("VERSION", str(version)).replace("KIND", self.kind)
        for old, new in changed.items():
            mapping = mapping.replace(old, new)
        for name, text in (
            ("sources/crm.yaml", SOURCE),
            ("mappings/accounts.yaml", mapping),
            ("mappings/notes.yaml", NOTES),
        ):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        self.definitions = load_folder(self.folder).check()
        return self.definitions

    def mappings(self) -> list[CompiledMapping]:
        """Compiled under their registered numbers."""
        with psycopg.connect(self.lane.postgres) as connection:
            return registered(connection, self.definitions.mappings.values(), self.outside)

    # the log

    def put(
        self, *records: Record | tuple[str, bytes | None], partition: int | None = None
    ) -> list[int]:
        """Write records where they belong; returns their offsets once they are acknowledged."""
        offsets: dict[int, int] = {}
        for number, record in enumerate(records):

            def delivered(error: Any, message: Any, number: int = number) -> None:
                assert error is None, error
                offsets[number] = message.offset()

            key, value, where = self._framed(record, partition)
            self.producer.produce(
                self.settings.observations, value, key, partition=where, on_delivery=delivered
            )
        assert self.producer.flush(30) == 0
        return [offsets[number] for number in range(len(records))]

    def _framed(
        self, record: Record | tuple[str, bytes | None], partition: int | None
    ) -> tuple[str, bytes | None, int]:
        if isinstance(record, tuple):
            return record[0], record[1], partition or 0
        if isinstance(record, Observation):
            key = keys.page_key(record)
        else:
            assert isinstance(record, Mark)
            key = keys.mark_key(record)
        where = route(record.partition_id, self.settings.partitions)
        return key, codec.encode(record), where if partition is None else partition

    def partition(self, partition_id: str) -> int:
        return route(partition_id, self.settings.partitions)

    # apply

    def service(
        self, *, hit: failpoints.Hit = failpoints.none, worker: str | None = None
    ) -> Service:
        """A service of this deployment, not started."""
        settings = self.settings
        if worker is not None:
            settings = settings.model_copy(update={"worker": worker})
        return Service(settings, self.mappings(), threading.Event(), hit=hit)

    @contextmanager
    def applying(
        self, *, hit: failpoints.Hit = failpoints.none, worker: str | None = None
    ) -> Iterator[Service]:
        """A running worker in this process; stopped gracefully at the end."""
        service = self.service(hit=hit, worker=worker)
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(service.run()), daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.stop()
            thread.join(60)
        assert codes == [0]

    def settle(self, timeout_s: float = 90) -> None:
        """Wait until everything that is in the log was applied."""
        ends = self.ends()
        reader = psycopg.connect(self.lane.postgres, autocommit=True)
        try:
            wait_until(lambda: _settled(reader, ends), timeout_s, f"applied up to {ends}")
        finally:
            reader.close()

    def is_settled(self) -> bool:
        """Whether everything that is in the log was applied."""
        return _settled(self.db, self.ends())

    def ends(self) -> dict[int, int]:
        """The end of every partition of the log."""
        from schemas.log.reader import bounds

        return {
            number: bounds(self.settings, self.settings.observations, number).end
            for number in range(self.settings.partitions)
        }

    # Postgres

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.db.execute(query.encode(), parameters or None).fetchall()

    def value(self, query: str, *parameters: Any) -> Any:
        found = self.rows(query, *parameters)
        return found[0][0] if found else None

    def until(self, query: str, wanted: Any, *parameters: Any, timeout_s: float = 60) -> None:
        """Wait until a query's first value is as wanted."""
        wait_until(
            lambda: self.value(query, *parameters) == wanted,
            timeout_s,
            f"{query} = {wanted!r}, is {self.value(query, *parameters)!r}",
        )

    def balance(self) -> dict[str, int]:
        """Records by outcome; asserts that every ledger row sums to its records."""
        total = [0] * 6
        for records, counts, outcomes in self.rows(
            "SELECT records, counts, outcomes FROM gapless.page_ledger"
        ):
            assert sum(counts) == records == len(outcomes)
            assert counts == [outcomes.count(number) for number in range(1, 7)]
            total = [a + b for a, b in zip(total, counts, strict=True)]
        names = ("applied", "superseded", "ignored", "quarantined", "retryable", "erased")
        return {name: count for name, count in zip(names, total, strict=True) if count}

    def close(self) -> None:
        self.outside.close()
        self.db.close()


def _settled(connection: psycopg.Connection[Any], ends: Mapping[int, int]) -> bool:
    found = connection.execute(
        "SELECT partition, next_offset_to_apply FROM gapless.position WHERE pipeline = 'live'"
    )
    at: dict[int, int] = dict(found.fetchall())
    return all(at.get(number, 0) >= end for number, end in ends.items())


def account(number: int | str, version: int = 1, **more: Any) -> dict[str, Any]:
    """A record of crm/accounts."""
    return {
        "id": f"a-{number}", "version": version, "lifecycle": "active", "balance": "10.50",
        "email": f"{number}@example.org", "updated_at": "2026-03-01T10:00:00Z", **more,
    }  # fmt: skip


def page(
    records: Sequence[Mapping[str, Any] | bytes],
    *,
    owner: str = "crm/accounts/north",
    scope: str = "2026-03-01T00:00:00.000000Z~2026-03-02T00:00:00.000000Z",
    pass_: str = "p1",
    number: int = 1,
    plan: str = "interval",
    **more: Any,
) -> Observation:
    """One observation with these records."""
    raw = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in records]
    observation = Observation(
        partition_id=owner, plan=plan, scope=scope, pass_=pass_, page=number, reason="test",
        method="GET", url="https://crm.example/accounts", definition_hash="h", status=200,
        requested_at=AT_US, received_at=AT_US + number, as_of=AT_US, records=raw,
    )  # fmt: skip
    return msgspec.structs.replace(observation, **more)


def complete(
    *pages: Observation, kind: str = "interval_complete", stable: bool = True, **more: Any
) -> Mark:
    """The mark that names these pages, all of one scope and pass."""
    first = pages[0]
    start, _, end = first.scope.partition("~")
    ranges = [
        PassRange(
            pass_=first.pass_, first=min(p.page for p in pages), last=max(p.page for p in pages),
            parts=len(pages), records=sum(len(p.records) for p in pages),
        )
    ]  # fmt: skip
    mark = Mark(
        kind=kind, partition_id=first.partition_id, plan=first.plan, scope=first.scope,  # type: ignore[arg-type]
        start=start if end else None, end=end or None, passes=ranges, stable=stable, at=AT_US,
    )  # fmt: skip
    return msgspec.structs.replace(mark, **more)


def begin(snapshot: str, owner: str = "crm/accounts/north") -> Mark:
    """The mark that opens a snapshot."""
    return Mark(
        kind="snapshot_begin", partition_id=owner, plan="snapshot", scope=snapshot, at=AT_US
    )
