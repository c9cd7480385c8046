"""Loads prepared rows with dlt, as dicts or as Arrow tables; run by dlt's own environment.

`dlt_rows.py ADDRESS SCHEMA ROWS dicts|arrow`: prints how many seconds the load took. Everything is
made before the clock starts, and all rows go into one run, which is what suits dlt best. Imports
nothing of the product.
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
    """Prints the seconds that `pipeline.run` took."""
    address, schema, file, shape = sys.argv[1:]
    with open(file, "rb") as opened:
        rows = pickle.load(opened)
    if shape == "arrow":
        # dlt's COPY takes no lists of Arrow.
        rows = [{**row, "labels": json.dumps(row["labels"])} for row in rows]
    batches = [rows[at : at + _BATCH] for at in range(0, len(rows), _BATCH)]
    ready = batches if shape == "dicts" else [pyarrow.Table.from_pylist(one) for one in batches]

    @dlt.resource(  # type: ignore[untyped-decorator]
        name="orders",
        write_disposition={"disposition": "merge", "strategy": "upsert"},
        primary_key=("id", "tenant_id"),
        columns=_COLUMNS,
    )
    def orders() -> Iterator[Any]:
        yield from ready

    with tempfile.TemporaryDirectory() as folder:
        pipeline = dlt.pipeline(
            "bench",
            pipelines_dir=folder,
            destination=dlt.destinations.postgres(address),
            dataset_name=schema,
        )
        begun = time.perf_counter()
        pipeline.run(orders()).raise_on_failed_jobs()
        print(time.perf_counter() - begun)


if __name__ == "__main__":
    main()
