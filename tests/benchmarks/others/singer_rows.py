"""Feeds prepared rows to a Singer target as messages; run by the target's own environment.

`singer_rows.py ADDRESS SCHEMA ROWS`: prints rows per second of the time that the target takes beyond
what it takes for none, so its start is not counted. Imports nothing of the product.
"""

import json
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_BATCH = 5_000
_NULL = "null"
_TEXT = {"type": ["string", _NULL]}
_TIME = {"type": ["string", _NULL], "format": "date-time"}
_TYPES = {
    "total": {"type": ["number", _NULL]},
    "customer_id": {"type": ["integer", _NULL]},
    "lines": {"type": ["integer", _NULL]},
    "active": {"type": ["boolean", _NULL]},
    "labels": {"type": ["array", _NULL], "items": {"type": "string"}},
    "created_at": _TIME,
    "source_revision": _TIME,
}


def main() -> None:
    """Prints the rows per second."""
    address, schema, file = sys.argv[1:]
    with open(file, "rb") as opened:
        rows = pickle.load(opened)
    properties = {name: _TYPES.get(name, _TEXT) for name in rows[0]}
    head = _line(
        type="SCHEMA",
        stream="orders",
        key_properties=["id", "tenant_id"],
        schema={"type": "object", "properties": properties},
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "config.json"
        config.write_text(
            json.dumps(
                {
                    "sqlalchemy_url": address.replace("postgresql://", "postgresql+psycopg://"),
                    "default_target_schema": schema,
                    "batch_size_rows": _BATCH,
                    "use_copy": True,
                    "add_record_metadata": False,
                    "activate_version": False,
                    "load_method": "upsert",
                    "validate_records": False,
                }
            )
        )
        messages = folder / "messages"
        messages.write_text(head)
        start_s = _seconds(config, messages)
        with messages.open("a") as out:
            for row in rows:
                out.write(_line(type="RECORD", stream="orders", record=_plain(row)))
        print(len(rows) / (_seconds(config, messages) - start_s))


def _plain(row: dict[str, object]) -> dict[str, object]:
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else _number(value)
        for name, value in row.items()
    }


def _number(value: object) -> object:
    return float(value) if value.__class__.__name__ == "Decimal" else value  # type: ignore[arg-type]


def _line(**message: object) -> str:
    return json.dumps(message) + "\n"


def _seconds(config: Path, messages: Path) -> float:
    target = Path(sys.executable).with_name("target-postgres")
    begun = time.perf_counter()
    with messages.open("rb") as lines:
        done = subprocess.run(
            [target, "--config", config], stdin=lines, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
