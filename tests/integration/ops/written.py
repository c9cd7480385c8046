"""A deployment whose log and tables a test writes itself: real topics, real rows, no stage running.

`Deployment.example` is consistent; tests break one thing in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psycopg
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.cimpl import Message
from psycopg.types.json import Jsonb

from ops.migrate import migrate
from ops.topics import ensure_topics
from schemas.codec import encode
from schemas.keys import mark_key, page_key, split_partition_id
from schemas.log import config
from schemas.records import Mark, Named, Observation, PassRange, PlanState, SourceCheckpoint
from schemas.routing import route
from schemas.settings import Settings
from tests.conftest import Lane

OWNER = "shop/orders"
DAYS = [f"2024-01-0{day}T00:00:00.000000Z" for day in range(1, 6)]
NOW = datetime(2024, 1, 9, tzinfo=UTC)
MAPPING = """gapless: 1
mapping: orders
version: 1
from: shop/orders
table: orders
key: id
revision: version::bigint
columns:
  id: text
  status: {type: text, personal: false}
  email: {type: text, personal: keep}
children:
  order_lines:
    path: lines[*]
    key: line_no
    columns: {line_no: integer}
"""
SOURCE = """gapless: 1
source: shop
base_url: http://127.0.0.1:9
streams:
  orders:
    get: /orders
    params: {from: "{start}", to: "{end}", token: "{token}"}
    records: body.items
    pages: {next: body.next, end: no_next}
    upstream_retention: 30d
    plan:
      interval: {time: updated_at, start: 2024-01-01}
"""
TABLE = """
CREATE TABLE public.orders (
  id text COLLATE "C", status text, email text, source_revision bigint, deleted_at timestamptz,
  _source_epoch int2, _generation int2, _partition_id int, _offset int8, _index int4,
  _mapping_version int4, _deleted bool, _content_hash int8, _observed_at timestamptz, _began int8,
  PRIMARY KEY (id)) WITH (fillfactor = 80);
CREATE TABLE public.order_lines (
  parent_id text COLLATE "C", line_no int, position int, _generation int2, _partition_id int,
  _offset int8, _index int4, _mapping_version int4, PRIMARY KEY (parent_id, line_no))
"""
DEFINITION = {"key": ["id"], "children": {"order_lines": {"table": "order_lines"}}}


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def record(name: str, version: int, status: str = "open") -> bytes:
    return json.dumps(
        {"id": name, "version": version, "status": status, "email": f"{name}@mail.example"}
    ).encode()


def page(scope: str, pass_: str, number: int, records: Sequence[bytes]) -> Observation:
    at = micros(NOW - timedelta(days=2))
    return Observation(
        partition_id=OWNER, plan="interval", scope=scope, pass_=pass_, page=number,
        reason="changes", method="GET", url="http://127.0.0.1:9/orders", definition_hash="h",
        status=200, requested_at=at, received_at=at + 50_000, records=list(records),
    )  # fmt: skip


def complete(start: str, end: str, pass_: str, pages: Sequence[Observation]) -> Mark:
    named = PassRange(
        pass_=pass_, first=1, last=len(pages), parts=len(pages),
        records=sum(len(p.records) for p in pages),
    )  # fmt: skip
    return Mark(
        kind="interval_complete", partition_id=OWNER, plan="interval", scope=f"{start}~{end}",
        start=start, end=end, passes=[named], at=micros(NOW),
    )  # fmt: skip


class Deployment:
    """Topics and tables of one lane. `number`: the log partition of OWNER."""

    def __init__(self, lane: Lane, folder: Path) -> None:
        self.lane = lane
        self.settings = Settings(
            kafka=lane.kafka, postgres=lane.postgres, prefix=lane.prefix, partitions=2,
            definitions=folder,
        )  # fmt: skip
        self.environment = {
            **lane.environment, "GAPLESS_PARTITIONS": "2", "GAPLESS_DEFINITIONS": str(folder),
            "GAPLESS_OPERATOR": "tester",
        }  # fmt: skip
        self.number = route(OWNER, 2)
        self.offsets: list[int] = []
        self._producer: Producer | None = None
        for name, text in (("sources/shop", SOURCE), ("mappings/orders", MAPPING)):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / f"{name}.yaml").write_text(text)
        ensure_topics(self.settings)
        migrate(lane.postgres)
        with self.database() as db:
            db.execute(TABLE.encode())
            db.execute(
                "INSERT INTO gapless.mapping_version"
                " (mapping, version, hash, definition, source, stream, table_name, state)"
                " VALUES ('orders', 1, 'h', %s, 'shop', 'orders', 'orders', 'live')",
                (Jsonb(DEFINITION),),
            )
            source, stream, tenant = split_partition_id(OWNER)
            db.execute(
                "INSERT INTO gapless.partition_id (text, source, stream, tenant, partition)"
                " VALUES (%s, %s, %s, %s, %s)",
                (OWNER, source, stream, tenant, self.number),
            )

    def database(self) -> psycopg.Connection:
        return psycopg.connect(self.settings.postgres, autocommit=True)

    def log(self, *records: Observation | Mark | tuple[str, bytes | None]) -> list[int]:
        """Append in one transaction; returns the offsets."""
        pairs = [self._pair(item) for item in records]
        return self._send([(self.settings.observations, key, value) for key, value in pairs])

    def checkpoint(self, checkpoint: SourceCheckpoint) -> int:
        key = checkpoint.partition_id
        return self._send([(self.settings.checkpoints, key, encode(checkpoint))])[0]

    def _pair(
        self, item: Observation | Mark | tuple[str, bytes | None]
    ) -> tuple[str, bytes | None]:
        if isinstance(item, Observation):
            return page_key(item), encode(item)
        return (mark_key(item), encode(item)) if isinstance(item, Mark) else item

    def _send(self, records: list[tuple[str, str, bytes | None]]) -> list[int]:
        found: list[int] = []

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            found.append(offset)

        if self._producer is None:
            self._producer = Producer(config.transactional(self.settings, self.number))
            self._producer.init_transactions(30)
        self._producer.begin_transaction()
        for topic, key, value in records:
            self._producer.produce(topic, value, key, partition=self.number, on_delivery=delivered)
        self._producer.commit_transaction(30)
        return found

    def account_for(
        self, offset: int, of: Observation, outcomes: bytes, mapping_version: int = 1
    ) -> None:
        """A ledger row, as apply writes it."""
        counts = [outcomes.count(bytes([number])) for number in range(1, 7)]
        with self.database() as db:
            db.execute(
                'INSERT INTO gapless.page_ledger (mapping_version, partition, generation, "offset",'
                " partition_id, plan, scope, pass, page, part, parts, original_offset, records,"
                " counts, outcomes, fetched_at) VALUES (%s, %s, 0, %s, 1, %s, %s, %s, %s, %s, %s,"
                " %s, %s, %s, %s, %s)",
                (
                    mapping_version, self.number, offset, of.plan, of.scope, of.pass_, of.page,
                    of.part, of.parts, offset, len(outcomes), counts, outcomes,
                    datetime.fromtimestamp(of.received_at / 1e6, UTC),
                ),
            )  # fmt: skip

    def example(self) -> None:
        """Two days: three pages of two records with every outcome, marks, checkpoint, rows."""
        one, two = f"{DAYS[0]}~{DAYS[1]}", f"{DAYS[1]}~{DAYS[2]}"
        first = page(one, "a", 1, [record("o-1", 1), record("o-2", 1)])
        second = page(one, "a", 2, [record("o-3", 1, "refunded"), record("o-1", 2)])
        third = page(two, "b", 1, [record("o-2", 1), record("o-4", 1)])
        marks = (
            complete(DAYS[0], DAYS[1], "a", [first, second]),
            complete(DAYS[1], DAYS[2], "b", [third]),
        )
        self.offsets = self.log(first, second, marks[0]) + self.log(third, marks[1])
        at = self.offsets
        self.account_for(at[0], first, b"\x02\x01")
        self.account_for(at[1], second, b"\x04\x01")
        self.account_for(at[3], third, b"\x02\x01")
        with self.database() as db:
            self._rows(db, at, second.records[0], marks)
        self.checkpoint(
            SourceCheckpoint(
                partition_id=OWNER, worker="w", sequence=1, written_at=micros(NOW),
                named=Named(at[4], mark_key(marks[1])),
                plans={"interval": PlanState(definition_hash="h", complete_before=DAYS[2])},
            )
        )  # fmt: skip

    def _rows(
        self, db: psycopg.Connection, at: list[int], refused: bytes, marks: tuple[Mark, Mark]
    ) -> None:
        for name, revision, offset, index in (
            ("o-1", 2, at[1], 1), ("o-2", 1, at[0], 1), ("o-4", 1, at[3], 1)
        ):  # fmt: skip
            db.execute(
                "INSERT INTO orders (id, status, email, source_revision, _source_epoch,"
                " _generation, _partition_id, _offset, _index, _mapping_version, _deleted)"
                " VALUES (%s, 'open', 'x@mail.example', %s, 0, 0, 1, %s, %s, 1, false)",
                (name, revision, offset, index),
            )
        db.execute(
            "INSERT INTO order_lines SELECT id, n + 10, n, _generation, _partition_id, _offset,"
            " _index, _mapping_version FROM orders, generate_series(0, 1) n WHERE id <> 'o-2'"
        )
        db.execute(
            'INSERT INTO gapless.exception (mapping_version, partition, generation, "offset", index,'
            " partition_id, plan, scope, original_offset, key, state, reason, detail, raw,"
            " fetched_at) VALUES (1, %s, 0, %s, 0, 1, 'interval', %s, %s, %s, 'quarantined',"
            " 'unknown_value', 'status \"refunded\" is none of open, paid', %s, %s)",
            (self.number, at[1], marks[0].scope, at[1], Jsonb({"id": "o-3"}), refused, NOW),
        )
        for offset, mark in ((at[2], marks[0]), (at[4], marks[1])):
            db.execute(
                'INSERT INTO gapless.mark (partition, generation, "offset", partition_id, kind, plan,'
                " scope, body, state, at) VALUES (%s, 0, %s, 1, %s, %s, %s, %s, 'done', %s)",
                (
                    self.number, offset, mark.kind, mark.plan, mark.scope,
                    Jsonb(msgspec.to_builtins(mark)), NOW,
                ),
            )  # fmt: skip
        db.execute(
            "INSERT INTO gapless.coverage (partition_id, plan, start_at, end_at, state, pages,"
            " records, errors, completed_at) VALUES"
            " (1, 'interval', %s, %s, 'complete_with_errors', 2, 4, 1, %s),"
            " (1, 'interval', %s, %s, 'complete', 1, 2, 0, %s)",
            (DAYS[0], DAYS[1], NOW, DAYS[1], DAYS[2], NOW),
        )
        last = mark_key(marks[1])
        db.execute(
            "INSERT INTO gapless.position (pipeline, partition, next_offset_to_apply, last_offset,"
            " last_key, mapping_versions) VALUES ('live', %s, %s, %s, %s, '{1}')",
            (self.number, at[4] + 1, at[4], last),
        )

    def mirror(self, offset: int) -> None:
        """Kafka's committed offset of the apply group."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": self.lane.kafka, "group.id": self.settings.apply_group}
        )
        place = TopicPartition(self.settings.observations, self.number, offset)
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()
