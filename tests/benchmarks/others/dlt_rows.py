"""Loads prepared rows with dlt, as dicts or as Arrow tables; run by dlt's own environment.

`dlt_rows.py ADDRESS SCHEMA ROWS dicts|arrow [at_once]`: prints rows per second. What is loaded is made
before the clock starts. In batches of 5,000 each is durable before the next, as a consumer of a log
needs it, and the first, which makes the tables, is not counted; `at_once` gives all rows to one run,
durable at its end, which suits dlt best. Imports nothing of the product.
"""

import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"

import dlt
import pyarrow

_BATCH = 5_000
_COLUMNS = {
    "labels": {"data_type": "json"},
    "total": {"data_type": "decimal", "precision": 12, "scale": 2},
    "id": {"nullable": False},
    "tenant_id": {"nullable": False},
}


def main() -> None:
    """Prints the rows per second that `pipeline.run` took."""
    address, schema, file, shape, *more = sys.argv[1:]
    with open(file, "rb") as opened:
        rows = pickle.load(opened)
    if shape == "arrow":
        # dlt's COPY takes no lists of Arrow.
        rows = [{**row, "labels": json.dumps(row["labels"])} for row in rows]
    batches = [rows[at : at + _BATCH] for at in range(0, len(rows), _BATCH)]
    ready = batches if shape == "dicts" else [pyarrow.Table.from_pylist(one) for one in batches]
    runs = [ready] if more else [[one] for one in ready]

    @dlt.resource(  # type: ignore[untyped-decorator]
        name="orders",
        write_disposition={"disposition": "merge", "strategy": "upsert"},
        primary_key=("id", "tenant_id"),
        columns=_COLUMNS,
    )
    def orders(some: list[Any]) -> Iterator[Any]:
        yield from some

    with tempfile.TemporaryDirectory() as folder:
        pipeline = dlt.pipeline(
            "bench",
            pipelines_dir=folder,
            destination=dlt.destinations.postgres(address),
            dataset_name=schema,
        )
        first = 0
        if len(runs) > 1:
            pipeline.run(orders(runs.pop(0))).raise_on_failed_jobs()
            first = _BATCH
        begun = time.perf_counter()
        for one in runs:
            pipeline.run(orders(one)).raise_on_failed_jobs()
        print((len(rows) - first) / (time.perf_counter() - begun))


if __name__ == "__main__":
    main()
