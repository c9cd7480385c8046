"""The edge to a tap's process: private files, a leash, its output in pieces, its end.

Invariant: whatever becomes of this worker or of the poll, the tap and all that it started are
ended, and the folder with its secrets is removed. What the tap writes to its standard error is read
all the time and only its end is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas import leash

_CHUNK = 256 * 1024
_SAID_BYTES = 8 * 1024
_SAID_LINES = 20
_GRACE_S = 1.0
_END_S = _GRACE_S + leash.REST_S + 1.0
# A tap is somebody else's program: it inherits what programs need to run, and no secret of ours.
_INHERITED = frozenset(
    {
        "PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR", "LANG", "LANGUAGE",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
        "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    }
)  # fmt: skip


class NotStarted(Exception):
    """The operating system could not start anything at all."""


@dataclass(frozen=True, slots=True)
class InFolder:
    """A word of a command: the path of one of the files that are put into its folder."""

    name: str


@dataclass(frozen=True, slots=True)
class Start:
    """How a tap is run. `files`: name → content, put into the private folder that it runs in."""

    command: Sequence[str | InFolder]
    files: Mapping[str, bytes]
    environment: Mapping[str, str]


class TapProcess:
    """One running tap. Belongs to one event loop; `end` it whatever happens."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self._said = bytearray()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def started(cls, start: Start) -> TapProcess:
        """Raises NotStarted; a program that is not there ends with exit code 127 instead."""
        folder = await asyncio.to_thread(_prepared, start.files)
        command = [
            str(folder / word.name) if isinstance(word, InFolder) else word
            for word in start.command
        ]
        try:
            process = await asyncio.create_subprocess_exec(
                *leash.command(0, command, grace_s=_GRACE_S, folder=str(folder)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**inherited(os.environ), **start.environment},
                cwd=folder,
                limit=_CHUNK,
                start_new_session=True,
            )
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise NotStarted(error.strerror or type(error).__name__) from None
            raise
        return cls(process, folder)

    async def read(self, timeout_s: float) -> bytes:
        """Some of the output; empty at its end. Raises TimeoutError."""
        assert self._process.stdout is not None
        async with asyncio.timeout(timeout_s):
            return await self._process.stdout.read(_CHUNK)

    async def exit_code(self, timeout_s: float) -> int:
        """Waits for the end of the process; 128 and the signal that ended it. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            code = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.shield(self._listening)
        return code if code >= 0 else 128 - code

    def said(self) -> list[str]:
        """The last lines of its standard error."""
        return self._said.decode("utf-8", "replace").splitlines()[-_SAID_LINES:]

    async def end(self) -> None:
        """Ends the tap if it still runs, and removes its folder. Safe to call twice."""
        process = self._process
        try:
            if process.returncode is None:
                assert process.stdin is not None
                process.stdin.close()  # the leash ends everything
                try:
                    async with asyncio.timeout(_END_S):
                        await self._drained()
                except TimeoutError:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        finally:
            if (
                process.returncode is None
            ):  # cancelled while it ends: the leash ends it all the same
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _drained(self) -> None:
        """What it still writes is read, so that nothing blocks its end."""
        assert self._process.stdout is not None
        while await self._process.stdout.read(_CHUNK):
            pass
        await self._process.wait()

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self._said += chunk
            del self._said[:-_SAID_BYTES]


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What of this process's environment a tap gets."""
    return {n: v for n, v in environ.items() if n in _INHERITED or n.startswith("LC_")}


def _prepared(files: Mapping[str, bytes]) -> Path:
    """A fresh folder that only this user can read, with these files."""
    folder = Path(tempfile.mkdtemp(prefix="gapless-tap-"))
    try:
        for name, content in files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
