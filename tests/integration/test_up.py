"""`gapless up`: a stack that others find, that ends when asked, and that keeps its data."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from ops.stack import Addresses, Stack, running
from tests.stack import fresh_folder

# A run that was started in the background of a shell hands down that Ctrl-C is ignored.
_UP = (
    "import signal, typer; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " from ops.cli.up import up; typer.run(up)"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = fresh_folder()
    yield folder
    Stack(folder).remove()


def _command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-c", _UP, "--folder", str(folder), "--json", *options]


@contextmanager
def _up(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Addresses]]:
    process = subprocess.Popen(_command(folder, *options), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, Addresses(**json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_up_keeps_data_until_reset(folder: Path) -> None:
    with _up(folder) as (process, first):
        assert running(folder) == first
        with psycopg.connect(first.postgres) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        busy = subprocess.run(_command(folder), capture_output=True, text=True, check=False)
        assert busy.returncode == 6
        assert str(process.pid) in busy.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert running(folder) is None
    with _up(folder) as (process, second):
        assert second == first
        with psycopg.connect(second.postgres) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (1,)
        process.terminate()
        assert process.wait(60) == 0
    with _up(folder, "--reset") as (_, third), psycopg.connect(third.postgres) as connection:
        assert connection.execute("SELECT to_regclass('kept')").fetchone() == (None,)


def test_up_says_when_a_server_ended(folder: Path) -> None:
    with _up(folder) as (process, _):
        status = (folder / "postgres" / "data" / "postmaster.pid").resolve().read_text()
        os.kill(int(status.split()[0]), signal.SIGKILL)
        assert process.wait(60) == 3
    assert running(folder) is None
