"""Mapping functions that do what such functions should not. Loaded by their own process only."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from apply.functions.frames import Answer, packed
from apply.python_mapping import Ignored, Observed

Record = dict[str, Any]
STARTED = os.getpid()


class Strange:
    """Nothing that JSON knows."""


def does(record: Record, seen: Observed) -> Any:
    """What the record says is to be done; else a plain row."""
    return _DEEDS.get(str(record.get("do")), _row)(record, seen)


def _row(record: Record, seen: Observed) -> Any:
    return {"id": record["id"], "v": record.get("v"), "tenant": seen.tenant}


def _wait(record: Record, seen: Observed) -> Any:
    while True:
        time.sleep(0.01)


def _hog(record: Record, seen: Observed) -> Any:
    held: list[bytearray] = []
    while True:
        held.append(bytearray(16 * 1024 * 1024))


def _many(record: Record, seen: Observed) -> Any:
    for number in range(1_000_000):
        yield {"id": f"{record['id']}-{number}"}


def _one(record: Record, seen: Observed) -> Any:
    yield _row(record, seen)


def _stop_early(record: Record, seen: Observed) -> Any:
    if record:
        return Ignored()
    yield {}


def _print(record: Record, seen: Observed) -> Any:
    print("secret of", record)
    sys.stderr.write("more of it\n")
    os.write(1, b"\x00\x00\x00\x05hello")
    return _row(record, seen)


def _raise(record: Record, seen: Observed) -> Any:
    raise ValueError(f"the value {record['v']} is wrong")


def _typed(record: Record, seen: Observed) -> Any:
    values = {
        "decimal": Decimal("12.340"), "big": 2**70, "float": 0.1, "uuid": UUID(int=5),
        "moment": datetime(2026, 3, 1, 12, tzinfo=UTC), "naive": datetime(2026, 3, 1, 12),  # noqa: DTZ001
        "day": date(2026, 3, 1), "nan": float("nan"), "bytes": b"x", "set": {1}, "strange": Strange(),
        "inner": {"a": [1, None, "x"]}, "key": {1: 2}, "exact": record.get("n"), "nul": "a\0b",
    }  # fmt: skip
    return {"id": record["id"], "v": values[record["of"]]}


def _deep(record: Record, seen: Observed) -> Any:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    return {"id": record["id"], "v": value}


def _child(record: Record, seen: Observed) -> Any:
    if os.fork() == 0:
        time.sleep(600)
    os._exit(7)


def _daemon(record: Record, seen: Observed) -> Any:
    """Leaves its session and its parent, as a daemon does; its number goes into a file."""
    done, ready = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            with open(record["at"], "a") as file:
                file.write(f"{os.getpid()}\n")
            os.write(ready, b"x")
            time.sleep(600)
        os._exit(0)
    os.read(done, 1)
    then = record.get("then")
    return _DEEDS[then](record, seen) if then else _row(record, seen)


def _twice(record: Record, seen: Observed) -> Any:
    os.fork()
    return _row(record, seen)


def _forge(record: Record, seen: Observed) -> Any:
    for number in range(3, 16):
        with contextlib.suppress(OSError):
            os.write(number, packed(Answer("row", b'{"id":"forged"}')))
    return _row(record, seen)


_DEEDS: dict[str, Callable[[Record, Observed], Any]] = {
    "wait": _wait, "hog": _hog, "many": _many, "one": _one, "ignore": lambda r, s: Ignored(),
    "stop early": _stop_early, "print": _print, "raise": _raise, "typed": _typed, "deep": _deep,
    "twice": _twice, "daemon": _daemon, "forge": _forge,
    "exit": lambda r, s: os._exit(0), "leave": lambda r, s: sys.exit(3), "child": _child,
    "segfault": lambda r, s: os.kill(os.getpid(), signal.SIGSEGV),
    "freeze": lambda r, s: os.kill(os.getpid(), signal.SIGSTOP),
    "nothing": lambda r, s: None, "empty": lambda r, s: [], "text": lambda r, s: "abc",
    "number": lambda r, s: 5, "typo": lambda r, s: {"id": r["id"], "vv": 1, "w": 2},
    "input": lambda r, s: {"id": r["id"], "v": sys.stdin.read()},
    "environment": lambda r, s: {"id": r["id"], "v": os.environ.get("GAPLESS_POSTGRES", "none")},
    "pid": lambda r, s: {"id": r["id"], "v": str(os.getpid())},
}  # fmt: skip
