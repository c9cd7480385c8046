"""Writes prepared rows with the Postgres sink of Quix Streams; run by its own environment.

`quix_rows.py ADDRESS SCHEMA ROWS`: prints rows per second of the sink, in batches of 5,000, without
Kafka and without the loop around it. Imports nothing of the product.
"""

import pickle
import sys
import time
from urllib.parse import urlsplit

from quixstreams.sinks.base.batch import SinkBatch
from quixstreams.sinks.community.postgresql import PostgreSQLSink

_BATCH = 5_000


def main() -> None:
    """Prints the rows per second of the writes."""
    address, schema, file = sys.argv[1:]
    with open(file, "rb") as opened:
        rows = pickle.load(opened)
    server = urlsplit(address)
    sink = PostgreSQLSink(
        host=server.hostname,
        port=server.port,
        dbname=server.path[1:],
        user=server.username,
        password=server.password,
        table_name="orders",
        schema_name=schema,
        primary_key_columns=["id", "tenant_id"],
        upsert_on_primary_key=True,
        include_metadata=False,
    )
    sink.setup()
    batches = []
    for at in range(0, len(rows), _BATCH):
        batch = SinkBatch("orders", 0)
        for offset, row in enumerate(rows[at : at + _BATCH], at):
            batch.append(
                value=row, key=row["id"], timestamp=1_780_000_000_000, headers=[], offset=offset
            )
        batches.append(batch)
    begun = time.perf_counter()
    for batch in batches:
        sink.write(batch)
    print(len(rows) / (time.perf_counter() - begun))


if __name__ == "__main__":
    main()
