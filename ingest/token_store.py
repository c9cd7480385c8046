"""The file that keeps the newest refresh token: one writer at a time, whole or not at all, mode 0600.

The lock is a file beside it, since the store itself is replaced by every write. Waiting for the lock
never blocks a thread: a stopped process may hold it for ever.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

_LOOK_AGAIN_S = 0.05
_MODE = 0o600


class StoreUnusable(Exception):
    """The store cannot be read, written or locked; the text says why and holds no token."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds. Times in microseconds since the epoch.

    `chain` names the refresh token that the operator gave and the client it was given to: another
    one there begins a new chain, and what was kept of the old one counts no more.
    """

    chain: str
    refresh_token: str
    access_token: str
    expires_at: int | None = None
    written_at: int


class TokenStore:
    """One store. Processes on one machine, or on a file system with working locks, share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(f"{path.name}.new")
        self._lock = path.with_name(f"{path.name}.lock")

    @asynccontextmanager
    async def locked(self, wait_s: float) -> AsyncIterator[None]:
        """Holds the lock within the block. Raises StoreUnusable after `wait_s` seconds without it."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise self._unusable("cannot be locked", error) from None
        try:
            give_up_s = time.monotonic() + wait_s
            while not _taken(handle):
                if time.monotonic() >= give_up_s:
                    raise StoreUnusable(
                        f"the store {self._path.name} is locked by another process for more than "
                        f"{wait_s:.0f} s"
                    )
                await asyncio.sleep(_LOOK_AGAIN_S)
            yield
        finally:
            os.close(handle)  # which gives the lock back

    def read(self) -> Kept | None:
        """What is kept; None before the first write. Raises StoreUnusable."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable("cannot be read", error) from None
        try:
            return msgspec.json.decode(content, type=Kept)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise StoreUnusable(
                f"the store {self._path.name} holds no tokens of ours; move it away, and authorise "
                "again if its refresh token is lost"
            ) from None

    def prepare(self, kept: Kept | None) -> None:
        """Writes once what is there now, beside it: trouble shows before a token is spent."""
        self._put(b"" if kept is None else msgspec.json.encode(kept))

    def write(self, kept: Kept) -> None:
        """Replaces the store; durable when this returns. Blocks shortly. Raises StoreUnusable."""
        self._put(msgspec.json.encode(kept))
        try:
            os.replace(self._new, self._path)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise self._unusable("cannot be written", error) from None

    def _put(self, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            handle = os.open(self._new, flags, _MODE)
            try:
                os.fchmod(handle, _MODE)
                with open(handle, "wb", closefd=False) as out:
                    out.write(content)
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._unusable("cannot be written", error) from None

    def _unusable(self, what: str, error: OSError) -> StoreUnusable:
        return StoreUnusable(f"the store {self._path.name} {what}: {error.strerror}")


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
