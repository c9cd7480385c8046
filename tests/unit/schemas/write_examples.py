"""Writes the committed examples of today's schema version: `python -m tests.unit.schemas.write_examples v2 source_checkpoint`.

Run it once when a schema gets a new version, and keep the old schema in `avro/history`; examples of
earlier versions are never rewritten.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from schemas import codec
from schemas.records import (
    Blocked,
    Control,
    Done,
    Failed,
    Headway,
    KeptSnapshot,
    Mark,
    MissingRecord,
    Named,
    Observation,
    OpenInterval,
    PassRange,
    PlanState,
    Record,
    Sample,
    SourceCheckpoint,
    Walk,
)

T = 1_735_689_600_000_000
PASS = PassRange(pass_="k3v9", first=1, last=3, parts=4, records=250)
SCOPE = "2025-01-01T00:00:00.000000Z~2025-01-02T00:00:00.000000Z"

OBSERVATION = Observation(
    partition_id="shop/orders/north",
    plan="interval",
    scope=SCOPE,
    pass_="k3v9",
    page=3,
    part=2,
    parts=2,
    source_epoch=1,
    original_offset=41,
    reason="backfill",
    run="nightly@2025-01-02",
    method="GET",
    url="https://api.shop.example/v2/orders?page_token=t2",
    definition_hash="0123456789abcdef",
    status=200,
    requested_at=T,
    received_at=T + 184_000,
    server_time=T + 100_000,
    as_of=T - 5_000_000,
    headers={"content-type": "application/json"},
    request_token="t2",
    next_token="t3",
    envelope=b'{"items":[],"next_page_token":"t3"}',
    records=[b'{"id":"o-1001","total":49.90}', b""],
    missing=[MissingRecord(1, "oversized", 2_000_000, b"\x01" * 32)],
    first_index=98,
)
MARK = Mark(
    kind="interval_complete",
    partition_id="shop/orders/north",
    plan="interval",
    scope=SCOPE,
    start="2025-01-01T00:00:00.000000Z",
    end="2025-01-02T00:00:00.000000Z",
    passes=[PASS],
    source_epoch=1,
    stable=True,
    reason="backfill",
    run="nightly@2025-01-02",
    at=T,
)
WALK = Walk(scope=SCOPE, passes=[PASS], token="t3", last_id="o-1001", restarts=1, started_at=T)
PLAN = PlanState(
    definition_hash="0123456789abcdef",
    complete_before="2025-01-01T00:00:00.000000Z",
    cursor="c1",
    cursor_pending="c2",
    cursor_issued_at=T,
    identity="i1",
    snapshot_id="s1",
    polled_at=T,
    walk=WALK,
    open=[OpenInterval(start="a", end="b", reason="poll", walk=WALK)],
    done=[Done("c", "d")],
    failed=[Failed("e", "f", "unsplittable")],
    width_us=3_600_000_000,
    tombstone_due=["k1"],
    previous=[KeptSnapshot(snapshot_id="s0", passes=[PASS])],
    state=b"\x00\x01",
)
CHECKPOINT = SourceCheckpoint(
    partition_id="shop/orders/north",
    worker="host-1",
    sequence=7,
    control_offset=3,
    source_epoch=1,
    written_at=T,
    not_before=T + 60_000_000,
    named=Named(42, "shop/orders/north/interval/x/k3v9/3/1"),
    blocked=Blocked("loop", T, "change the definition"),
    persist_s=[0.25, 0.5],
    answer_s=[1.5],
    headway={
        "interval": Headway(
            since=T,
            start="2024-01-01T00:00:00.000000Z",
            polled_at=T - 1,
            pages=12,
            records=6_000,
            samples=[Sample(T, 0, 0, 0), Sample(T + 60_000_000, 10, 5_000, 86_400_000_000)],
        )
    },
    plans={"interval": PLAN},
)
CONTROL = Control(
    action="accept_failed",
    about="shop/orders/north",
    plan="interval",
    start="2025-01-01T00:00:00.000000Z",
    end="2025-01-02T00:00:00.000000Z",
    by="ada",
    note="provider confirmed there was nothing",
    at=T,
)

RECORDS: dict[str, Record] = {
    "observation": OBSERVATION,
    "mark": MARK,
    "source_checkpoint": CHECKPOINT,
    "control": CONTROL,
}


def main(version: str, names: list[str]) -> None:
    folder = Path(codec.__file__).parent / "avro" / "examples"
    folder.mkdir(exist_ok=True)
    for name, record in RECORDS.items():
        if names and name not in names:
            continue
        target = folder / f"{name}.{version}.bin"
        if target.exists():
            raise SystemExit(f"{target} exists; committed examples are never rewritten")
        target.write_bytes(codec.encode(record))
        (folder / f"{name}.{version}.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
