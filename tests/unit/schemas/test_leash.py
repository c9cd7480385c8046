"""The leash as its users start it: what it waits for, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import leash

# Says that it listens, then obeys SIGTERM with an exit code of its own.
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("grace_s", "code"), [(20.0, 7), (0.0, -signal.SIGKILL)], ids=["grace", "none"]
)
def test_where_the_pipe_closes_the_program_has_its_grace(
    tmp_path: Path, grace_s: float, code: int
) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    held, own = os.pipe()
    started = leash.command(
        held, [sys.executable, "-c", POLITE], grace_s=grace_s, folder=str(folder)
    )
    with subprocess.Popen(started, stdout=subprocess.PIPE, pass_fds=(held,)) as process:
        os.close(held)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert folder.exists()
        os.close(own)
        assert process.wait(20) == code
    assert not folder.exists()


def test_it_ends_as_its_program_ended() -> None:
    for code, expected in (("sys.exit(3)", 3), ("os.kill(os.getpid(), 15)", -signal.SIGTERM)):
        with subprocess.Popen(
            leash.command(0, [sys.executable, "-c", f"import os, sys; {code}"]),
            stdin=subprocess.PIPE,
        ) as process:
            assert process.wait(20) == expected


def test_it_sees_how_a_program_ended_that_is_faster_than_itself() -> None:
    """Once lost: whoever drops what started a program reaps it, if it has ended by then."""
    fast = [leash.command(0, ["sh", "-c", "exit 3"])] * 40
    running = [subprocess.Popen(one, stdin=subprocess.PIPE) for one in fast]
    assert [one.wait(20) for one in running] == [3] * len(running)
    for one in running:
        one.communicate()


def test_where_its_pipe_is_standard_input_the_program_reads_nothing() -> None:
    code = "import sys; print(len(sys.stdin.read()))"
    with subprocess.Popen(
        leash.command(0, [sys.executable, "-c", code]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"0\n"


def test_else_the_program_has_the_standard_input_of_the_leash() -> None:
    held, own = os.pipe()
    found = subprocess.run(
        leash.command(held, [sys.executable, "-c", "print(input())"]),
        input=b"asked\n",
        stdout=subprocess.PIPE,
        pass_fds=(held,),
        timeout=20,
        check=True,
    )
    os.close(held)
    os.close(own)
    assert found.stdout == b"asked\n"


@pytest.mark.parametrize(
    ("mode", "code"), [(None, leash.NOT_FOUND), (0o600, leash.NOT_STARTED)], ids=["none", "mode"]
)
def test_a_program_that_cannot_be_started(tmp_path: Path, mode: int | None, code: int) -> None:
    program = tmp_path / "program"
    if mode is not None:
        program.touch(mode)
    found = subprocess.run(
        leash.command(0, [str(program)]), stdin=subprocess.PIPE, stderr=subprocess.PIPE, check=False
    )
    assert found.returncode == code
    assert str(program) in found.stderr.decode()
