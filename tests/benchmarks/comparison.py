"""Other loaders fed the rows of the apply benchmark: how many times faster `gapless apply` is.

They have the easier task: the rows are made before the clock starts, and neither Kafka nor a mapping
nor a guard stands before the table. All take batches of 5,000 rows and make each durable before the
next, as a consumer of a log has to; dlt, which is made for larger loads, is also measured with all
rows in one (`at_once`). Each runs in an environment of its own, installed once into the
user's cache. Afterwards each is given an older state of one row, to see whether it takes it.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from apply.mapping import numerics, text_arrays
from apply.mapping.compile import compile_mapping
from ops.stack import Addresses
from tests.acceptance.foreign import installed, run_installer
from tests.benchmarks.apply_rate import ApplyRate, mapped
from tests.benchmarks.figures import Samples
from tests.benchmarks.records import definitions

HERE = Path(__file__).parent / "others"
_ROWS = 100_000
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_SCHEMA = "loaded"
_TIMES = ("created_at", "source_revision")


@dataclass(frozen=True, slots=True)
class Other:
    """One way to load rows: `figure` ends the name of its ratio; `folder` has its environment."""

    figure: str
    folder: str
    script: str
    words: tuple[str, ...] = ()


OTHERS = (
    Other("dlt", "dlt", "dlt_rows.py", ("dicts",)),
    Other("dlt_arrow", "dlt", "dlt_rows.py", ("arrow",)),
    Other("dlt_at_once", "dlt", "dlt_rows.py", ("dicts", "at_once")),
    Other("dlt_arrow_at_once", "dlt", "dlt_rows.py", ("arrow", "at_once")),
    Other("quix", "quix", "quix_rows.py"),
    Other("singer", "singer", "singer_rows.py"),
)


class Comparison:
    """Makes the rows once; `run` measures apply and each other loader side by side."""

    def __init__(self, servers: Addresses, folder: Path, apply: ApplyRate, records: int) -> None:
        self._address = servers.postgres
        self._apply = apply
        self._rows = folder / "rows.pickle"
        self._older = folder / "older.pickle"
        rows = list(_plain_rows(min(records, _ROWS)))
        self._key = rows[0]["id"]
        older = {
            **rows[0],
            "status": "older",
            "source_revision": rows[0]["source_revision"] - timedelta(days=1),
        }
        self._rows.write_bytes(pickle.dumps(rows))
        self._older.write_bytes(pickle.dumps([older]))
        self._pythons = {other.folder: _environment(other.folder) for other in OTHERS}

    def run(self, samples: Samples) -> None:
        """One round; a loader that could not be installed has no figure, and its reason is told."""
        own = self._apply.new_rate(samples)
        for other in OTHERS:
            python = self._pythons[other.folder]
            if python is None:
                continue
            with _database(self._address, f"bench_{other.figure}") as address:
                rate = _load(other, python, address, self._rows)
                samples.add(f"others.{other.figure}.rows_per_s", rate, "rows/s")
                samples.add(f"apply.ratio_to_{other.figure}", own / rate, "ratio")
                _load(other, python, address, self._older)
                taken = float(_status(address, self._key) == "older")
                samples.add(f"others.{other.figure}.older_taken", taken, "0 or 1")


@contextlib.contextmanager
def _database(server: str, name: str) -> Iterator[str]:
    """The address of an empty database: some loaders stumble over tables of the same name elsewhere."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield f"{server.rsplit('/', 1)[0]}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _load(other: Other, python: Path, address: str, rows: Path) -> float:
    """Rows per second of the loader, by its own script's clock."""
    command: list[str | Path] = [python, HERE / other.script, address, _SCHEMA, rows, *other.words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{other.script}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def _status(address: str, key: str) -> str:
    with psycopg.connect(address) as connection:
        found = connection.execute(
            f"SELECT status FROM {_SCHEMA}.orders WHERE id = %s".encode(), [key]
        ).fetchall()
    [[status]] = found
    return str(status)


def _plain_rows(count: int) -> Iterator[dict[str, Any]]:
    """The new orders as the others take them: dicts of plain Python values, own columns only."""
    compiled = compile_mapping(definitions().mappings["orders"], 1)
    names = [column.name for column in compiled.columns]
    names = names[: names.index("source_revision") + 1]
    for row in mapped(compiled, count):
        plain = dict(zip(names, row, strict=False))
        plain["reference"] = str(UUID(bytes=plain["reference"]))
        plain["total"] = numerics.unpack(plain["total"])
        plain["labels"] = text_arrays.unpack(plain["labels"])
        for name in _TIMES:
            plain[name] = _EPOCH + timedelta(microseconds=plain[name])
        yield plain


def _environment(name: str) -> Path | None:
    """The Python of this loader's environment; None, with the reason told, if there is none."""

    def install(folder: Path) -> None:
        run_installer([sys.executable, "-m", "venv", "environment"], folder)
        pip: list[str | Path] = [
            folder / "environment/bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
        ]
        run_installer([*pip, "--require-hashes", "-r", f"{name}.lock"], folder)

    with contextlib.suppress(pytest.skip.Exception):
        folder = installed(f"bench-{name}", [HERE / f"{name}.lock"], install)
        return folder / "environment/bin/python"
    print(f"{name} could not be installed: not compared", flush=True)
    return None
