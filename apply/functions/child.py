"""The process of one mapping function: finds it, calls it record by record, answers at once.

Started as a file, on a leash. Its own standard streams are taken away from the function, and it ends
when the worker does. It knows no secret, and no answer names more of a record than a type and a line.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from apply.functions.frames import Answer, Begin, Call

_PR_SET_PDEATHSIG = 1
_CHUNK = 1 << 20
_ROW_MAX = 8 * 1024 * 1024
_DEEPEST = 100
_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(float_hook=Decimal).decode


class _Wrong(Exception):
    """The function returned what is no row; the text is for people, without values."""


def main() -> int:
    """Until the worker closes the pipe."""
    requests, answers = _own_pipes()
    # Where this package lies; started as a file, Python does not look there by itself.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    from apply.functions import frames

    unpacker, call, own = frames.Unpacker(), None, os.getpid()
    while data := os.read(requests, _CHUNK):
        unpacker.feed(data)
        while (message := unpacker.next()) is not None:
            if isinstance(message, frames.Begin):
                call = _begun(message)
                _end_copies(own)
                fault = call if isinstance(call, str) else None
                os.write(answers, frames.packed(frames.Ready(fault)))
                if fault is not None:
                    return 1
            elif isinstance(message, frames.Call) and callable(call):
                _answer(call, message, answers, own)
    return 0


def _end_copies(own: int) -> None:
    """A function that forked has left a copy of this process; only the first one may answer."""
    if os.getpid() != own:
        os._exit(0)


def _own_pipes() -> tuple[int, int]:
    """The pipes of the worker, out of the function's reach: it prints to nowhere, or to people."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _begun(begin: Begin) -> Callable[..., Any] | str:
    """The function, or why there is none."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != begin.parent:
        os._exit(0)  # the leash was gone before this could be said
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold records
    resource.setrlimit(resource.RLIMIT_DATA, (begin.memory_bytes, begin.memory_bytes))
    sys.path += [place for place in begin.places if place not in sys.path]
    try:
        found = getattr(importlib.import_module(begin.module), begin.name, None)
    except ModuleNotFoundError as error:
        return f"there is no module {error.name}"
    except BaseException as error:
        return f"importing it {_raised(error)}"
    return found if callable(found) else f"the module has no function {begin.name}"


def _answer(function: Callable[..., Any], call: Call, answers: int, own: int) -> None:
    """One message per record, written at once: how many came tells which record is in hand."""
    from apply.functions.frames import packed
    from apply.python_mapping import Observed

    observed = Observed(**call.observed)
    for at, raw in enumerate(call.records):
        made = _made(function, raw, observed)
        _end_copies(own)
        made.call, made.at = call.number, at
        data = packed(made)
        while data:
            data = data[os.write(answers, data) :]


def _made(function: Callable[..., Any], raw: bytes, observed: object) -> Answer:
    from apply.functions.frames import Answer

    try:
        row = _only(function(_decode(raw), observed))
        if row is None:
            return Answer("ignored")
        data = _encode({_name(name): _plain(value, 1) for name, value in row.items()})
        if len(data) > _ROW_MAX:
            return Answer("failed", detail=f"returned a row of more than {_ROW_MAX >> 20} MiB")
        return Answer("row", data)
    except _Wrong as error:
        return Answer("failed", detail=str(error))
    except MemoryError:
        return Answer("memory")
    except BaseException as error:
        return Answer("failed", detail=_raised(error))


def _only(returned: Any) -> Mapping[str, Any] | None:
    """The one row of a record; None: it is ignored."""
    from apply.python_mapping import Ignored

    if isinstance(returned, Ignored) or returned is Ignored:
        return None
    if isinstance(returned, Mapping):
        return returned
    if isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
        raise _Wrong(f"returned {type(returned).__name__}, which is no row and no Ignored()")
    rows = iter(returned)
    try:
        first = next(rows)
    except StopIteration as end:
        if isinstance(end.value, Ignored) or end.value is Ignored:
            return None
        raise _Wrong("returned no row; write `return Ignored()` where that is meant") from None
    if not isinstance(first, Mapping):
        raise _Wrong(f"returned a row that is {type(first).__name__}")
    for _ in rows:
        raise _Wrong("returned more than one row; a record is one row of its table")
    return first


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise _Wrong(f"returned a member that is named by {type(name).__name__}")
    return name


def _plain(value: Any, depth: int) -> Any:
    """The value as JSON has it. A float that JSON has no word for must not become null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if depth >= _DEEPEST:
        raise _Wrong("returned a value that is nested too deeply")
    if isinstance(value, Mapping):
        return {_name(name): _plain(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, depth + 1) for one in value]
    finite = "" if not isinstance(value, float | Decimal) else " that is not finite"
    raise _Wrong(f"returned a value of type {type(value).__name__}{finite}")


def _raised(error: BaseException) -> str:
    """The type and the line of user code that raised it; no text of its own, which may be personal."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    where = f" at {os.path.basename(last.filename)}:{last.lineno}" if last is not None else ""
    return f"raised {type(error).__name__}{where}"


if __name__ == "__main__":
    sys.exit(main())
