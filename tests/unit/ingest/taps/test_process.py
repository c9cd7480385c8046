"""A tap ends with its worker, however that dies, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.taps.process import InFolder, Start, TapProcess, inherited
from tests.waiting import wait_until

# Starts a tap that starts a child of its own, says both process ids and the folder, and waits.
WORKER = """
import asyncio, sys
from ingest.taps.process import InFolder, Start, TapProcess
code = '''
import os, subprocess, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import os,time;os.setsid();time.sleep(3600)"])
print(os.getpid(), child.pid, os.getcwd(), open(sys.argv[1]).read(), flush=True)
time.sleep(3600)
'''
async def main():
    start = Start([sys.executable, "-c", code, InFolder("secret")], {"secret": b"sesame"}, {})
    tap = await TapProcess.started(start)
    print((await tap.read(20)).decode(), end="", flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_tap_does_not_outlive_its_worker(number: signal.Signals) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        cwd=Path(__file__).parents[4],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert worker.stdout is not None
        tap, child, folder, secret = worker.stdout.readline().decode().split()
        assert secret == "sesame"
        assert alive(int(tap)) and alive(int(child))
        worker.send_signal(number)
        worker.wait(20)
        wait_until(lambda: not alive(int(tap)), 20, "the tap ends")
        wait_until(lambda: not alive(int(child)), 20, "what the tap started ends")
        wait_until(lambda: not Path(folder).exists(), 20, "the folder is removed")
    finally:
        worker.kill()
        worker.wait(10)


def test_the_leash_itself_may_be_killed() -> None:
    async def main() -> None:
        code = "import os,time;print(os.getpid(), os.getppid(), flush=True);time.sleep(3600)"
        tap = await TapProcess.started(Start([sys.executable, "-c", code], {}, {}))
        try:
            pid, leash = map(int, (await tap.read(20)).split())
            os.kill(leash, signal.SIGKILL)
            assert await tap.read(20) == b""
            assert await tap.exit_code(20) == 128 + signal.SIGKILL
            await asyncio.to_thread(wait_until, lambda: not alive(pid), 20, "the tap ends")
        finally:
            await tap.end()

    asyncio.run(main())


def test_what_a_tap_leaves_behind_ends_with_it() -> None:
    """A child that holds the output open must not keep the run from ending."""
    code = "import subprocess,sys\n"
    code += "c=subprocess.Popen([sys.executable,'-c','import time;time.sleep(3600)'])\n"
    code += "print(c.pid, flush=True)\nsys.exit(5)"

    async def main() -> int:
        tap = await TapProcess.started(Start([sys.executable, "-c", code], {}, {}))
        try:
            child = int(await tap.read(20))
            assert await tap.read(20) == b""
            assert await tap.exit_code(20) == 5
            return child
        finally:
            await tap.end()

    assert not alive(asyncio.run(main()))


def test_the_end_of_standard_error_is_kept_and_no_more() -> None:
    code = "import sys\nfor n in range(200_000): sys.stderr.write(f'line {n}\\n')\nsys.exit(1)"

    async def main() -> list[str]:
        tap = await TapProcess.started(Start([sys.executable, "-c", code], {}, {}))
        try:
            assert await tap.read(60) == b""
            await tap.exit_code(20)
            return tap.said()
        finally:
            await tap.end()

    said = asyncio.run(main())
    assert said[-1] == "line 199999"
    assert len(said) == 20


def test_files_are_for_this_user_alone() -> None:
    code = "import os,sys\nprint(oct(os.stat('.').st_mode)[-3:], oct(os.stat(sys.argv[1]).st_mode)[-3:])"

    async def main() -> bytes:
        start = Start(
            [sys.executable, "-c", code, InFolder("config.json")], {"config.json": b"{}"}, {}
        )
        tap = await TapProcess.started(start)
        try:
            return await tap.read(20)
        finally:
            await tap.end()

    assert asyncio.run(main()).split() == [b"700", b"600"]


def test_ending_twice_and_ending_what_has_ended() -> None:
    async def main() -> None:
        tap = await TapProcess.started(Start([sys.executable, "-c", "print(1)"], {}, {}))
        with contextlib.suppress(TimeoutError):
            await tap.exit_code(20)
        await tap.end()
        await tap.end()

    asyncio.run(main())


def test_a_tap_inherits_what_programs_need_and_none_of_our_settings() -> None:
    ours = {"PATH": "/bin", "LC_ALL": "C", "HTTPS_PROXY": "p", "GAPLESS_X": "1", "SHOP_TOKEN": "2"}
    assert inherited(ours) == {"PATH": "/bin", "LC_ALL": "C", "HTTPS_PROXY": "p"}
