"""The folder of one local stack: its lock, its ports and the note that says where its servers listen.

Invariant: at most one stack at a time works on a folder. The lock is an open file that the owner
shares with the processes that watch its servers, so it is free only when every server has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ops.stack.errors import StackBusy, StackError

# After an owner was killed its servers need a moment to end; a new stack waits for them this long.
_LOCK_WAIT_S = 15.0
_LOWEST_PORT = 10_000
_PORT_TRIES = 200


@dataclass(frozen=True)
class Addresses:
    """Where the servers of a stack listen.

    `kafka`: bootstrap servers, "host:port" joined by commas. `postgres`: a connection URI.
    """

    kafka: str
    postgres: str


class FolderLock:
    """The right to run servers on one folder. Held until released and until the last server ended."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._file: int | None = None

    @property
    def descriptor(self) -> int:
        """The open lock file, to be inherited by the processes that watch servers."""
        if self._file is None:
            raise StackError(f"the folder {self._path.parent} is not locked by this process")
        return self._file

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def acquire(self) -> None:
        """Takes the lock; does nothing if this object holds it. Raises StackBusy."""
        if self._file is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait(file)
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def _wait(self, file: int) -> None:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = int(os.pread(file, 32, 0) or b"0")
                waited_s = time.monotonic() - started
                # A look by `running` holds the lock for an instant: one refusal proves nothing.
                if waited_s > _LOCK_WAIT_S or (waited_s > 1.0 and _alive(owner)):
                    raise StackBusy(
                        f"a local stack already runs on {self._path.parent} (process {owner}); "
                        "stop it, or choose another folder"
                    ) from None
                time.sleep(0.05)
            else:
                return

    def release(self) -> None:
        """Gives the lock up. Closed and not unlocked: a server that still ends keeps it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def running(folder: Path) -> Addresses | None:
    """The addresses of the stack that runs on this folder now, or None if none does."""
    try:
        file = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_note(folder)
    finally:
        os.close(file)
    return None


def stopped(folder: Path) -> bool:
    """Whether a stack once ran on this folder, and none does now."""
    try:
        return (folder / "lock").exists() and running(folder) is None
    except (OSError, ValueError, KeyError, TypeError):
        return False  # a note that makes no sense: a stack runs, or is about to


def _note(folder: Path) -> Path:
    return folder / "stack.json"


def _read_note(folder: Path) -> Addresses | None:
    try:
        value = json.loads(_note(folder).read_text())
    except FileNotFoundError:
        return None
    found = Addresses(kafka=value["kafka"], postgres=value["postgres"])
    if not all(type(value[name]) is str and value[name] for name in ("kafka", "postgres")):
        raise ValueError(f"{_note(folder)} is damaged")
    return found


def write_note(folder: Path, addresses: Addresses) -> None:
    """Says where the stack listens. Readable by its owner alone, as it holds a password."""
    write_private(_note(folder), json.dumps(asdict(addresses), indent=2) + "\n")


def remove_note(folder: Path) -> None:
    """Takes the note away; the stack is no longer complete."""
    _note(folder).unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Replaces a file in one step, with mode 0600."""
    fresh = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)


class Ports:
    """The ports of a folder's servers: chosen once, then kept, so that clients survive restarts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ports.json"

    def get(self, name: str, wanted: int | None = None) -> int:
        """The port with this name: the wanted one, else the one used before, else a free one."""
        known = self._known()
        port = wanted or known.get(name) or free_port(set(known.values()))
        if known.get(name) != port:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_private(self._path, json.dumps({**known, name: port}) + "\n")
        return port

    def _known(self) -> dict[str, int]:
        """A damaged file costs the old ports, not the data."""
        try:
            found = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {n: p for n, p in found.items() if type(p) is int and 0 < p < 65_536}


def free_port(taken: set[int] | None = None) -> int:
    """A TCP port of 127.0.0.1 that nobody listens on.

    Below the range from which the kernel picks ports for outgoing connections: a client that
    tries to reach a stopped server could otherwise be given that very port, and block its return.
    """
    highest = _first_ephemeral_port() - 1
    for _ in range(_PORT_TRIES):
        port = random.randint(_LOWEST_PORT, highest)
        if port in (taken or ()):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StackError(f"found no free port between {_LOWEST_PORT} and {highest}; name one yourself")


def _first_ephemeral_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > _LOWEST_PORT + 1_000 else 32_768
