"""Commands of definitions: bounded in time and output, and nothing of them outlives the answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schemas.definitions.commands import PrintedTooMuch, TookTooLong, output_of
from tests.waiting import wait_until


def _gone(file: Path) -> bool:
    try:
        os.kill(int(file.read_text()), 0)
    except ProcessLookupError:
        return True
    return "\nState:\tZ" in Path(f"/proc/{file.read_text().strip()}/status").read_text()


def test_its_exit_code_and_what_it_printed(tmp_path: Path) -> None:
    given = ["sh", "-c", "pwd; exit 3"]
    code, found = output_of(given, timeout_s=10, most_bytes=10_000, folder=tmp_path)
    assert (code, found.decode().strip()) == (3, str(tmp_path.resolve()))


@pytest.mark.parametrize(
    ("prints", "timeout_s", "fault"),
    [("", 1, TookTooLong), ("echo much too much;", 60, PrintedTooMuch)],
)
def test_what_it_started_ends_with_it(
    tmp_path: Path, prints: str, timeout_s: float, fault: type[Exception]
) -> None:
    pid = tmp_path / "pid"
    given = ["sh", "-c", f"sleep 300 & echo $! > {pid}; {prints} wait"]
    with pytest.raises(fault):
        output_of(given, timeout_s=timeout_s, most_bytes=10)
    wait_until(lambda: _gone(pid), 10, "the command's child is gone")
