"""How many records per second one core decodes and maps: `python -m tests.benchmarks.bench_map`.

Pages of 100 records of about 800 bytes into 12 columns. Prints the best and the median of the runs.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

from apply.mapping.compile import compile_mapping
from apply.mapping.types import CompiledMapping, Place
from schemas.definitions import load_folder
from schemas.definitions.mapping import MappingSpec
from schemas.records import Observation

PAGES, RECORDS, RUNS = 100, 100, 9

_SOURCE = """
gapless: 1
source: shop
base_url: https://shop.example/v2
streams:
  orders:
    get: /orders
    params: {changed_from: "{start}", changed_to: "{end}", page_token: "{token}", limit: "{size}"}
    records: body.items
    pages: {next: body.next_page_token, size: 100}
    deletes: shown
    plan:
      interval: {time: updated_at, start: 2024-01-01}
    schedule: {every: 5m}
"""
_MAPPING = """
gapless: 1
mapping: shop_orders
version: 1
from: shop/orders
table: orders
key: id
revision: updated_at::timestamptz
columns:
  id: text
  status: {path: state.name, type: text, values: [open, paid, void]}
  total: amount.total::numeric(12,2)
  currency: amount.currency::char(3)
  customer_id: customer.id::bigint
  email: {path: customer.email, type: text, personal: keep}
  lines: {type: integer, min: 0}
  active: boolean
  labels: labels::text[]
  reference: uuid
  created_at: timestamptz
  note: {type: text, max: 2000, personal: keep}
"""


def load_spec() -> MappingSpec:
    """The mapping of this benchmark, through the loader."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, text in (("sources", _SOURCE), ("mappings", _MAPPING)):
            path = Path(folder) / kind
            path.mkdir()
            (path / "shop.yaml").write_text(text, "utf-8")
        return load_folder(Path(folder)).check().mappings["shop_orders"]


def raw_records(count: int, seed: int = 1) -> list[bytes]:
    """Records of about 800 bytes, as a provider prints them."""
    dice = random.Random(seed)
    return [_record(dice, number) for number in range(count)]


def _record(dice: random.Random, number: int) -> bytes:
    record = {
        "id": f"ord_{number:08d}",
        "state": {"name": dice.choice(["open", "paid", "void"]), "by": "system"},
        "created_at": f"2024-03-01T08:12:31.{number % 1_000_000:06d}Z",
        "updated_at": f"2024-03-0{1 + number % 9}T08:12:{number % 60:02d}Z",
        "amount": {"total": round(dice.random() * 1000, 2), "currency": "EUR", "tax": 7.25},
        "customer": {"id": dice.randrange(10**9), "email": f"user{number}@example.org"},
        "lines": dice.randrange(10),
        "active": dice.random() < 0.5,
        "labels": ["a", "bb", "new-customer"],
        "reference": str(UUID(int=dice.getrandbits(128))),
        "note": "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod " * 4,
        "meta": {"source": "web", "address": "10.1.2.3"},
        "url": f"https://shop.example/orders/{number}",
    }
    return json.dumps(record, separators=(",", ":")).encode()


def page(records: list[bytes]) -> Observation:
    """One observation with these records."""
    return Observation(
        partition_id="shop/orders", plan="interval", scope="a~b", pass_="p", page=1,
        reason="interval", method="GET", url="https://shop.example/v2/orders", definition_hash="h",
        status=200, requested_at=1_700_000_000_000_000, received_at=1_700_000_001_000_000,
        records=records,
    )  # fmt: skip


def rate(compiled: CompiledMapping, pages: list[Observation]) -> float:
    """Records per second of one pass over the pages."""
    start = time.perf_counter()
    rows = sum(
        len(compiled.map_page(one, Place(1, 0, n, None, None)).rows) for n, one in enumerate(pages)
    )
    elapsed_s = time.perf_counter() - start
    if rows != sum(len(one.records) for one in pages):
        raise SystemExit("not every record became a row")
    return rows / elapsed_s


def main() -> None:
    """Measure and print."""
    raws = raw_records(PAGES * RECORDS)
    pages = [page(raws[at : at + RECORDS]) for at in range(0, len(raws), RECORDS)]
    compiled = compile_mapping(load_spec(), 1)
    rates = [rate(compiled, pages) for _ in range(RUNS)]
    size = sum(map(len, raws)) // len(raws)
    print(
        f"decode and map: {max(rates):,.0f} records/s best, {statistics.median(rates):,.0f} median"
        f" of {RUNS} runs; {size} bytes, 12 columns, one core"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
