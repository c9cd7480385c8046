"""A user's class as a plan: found, made, called with a time limit, and held to what it promises.

Whatever it raises or returns that makes no sense becomes a ProgramFault that names the call and
the line, never a value, which may be personal.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from ingest import python_plan as said
from ingest.calls import Calls, Overrun, Strange
from ingest.plans.program import StateRefused, checked_state
from ingest.requests import Request
from schemas.definitions.programs import PythonSpec
from schemas.definitions.scrubber import Scrubber
from schemas.definitions.templates import text_of

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_METHODS = ("restore", "ask", "take", "state")


class ProgramFault(Exception):
    """A class cannot be used, or one call of it failed; `unblocked_by` says what would help."""

    def __init__(self, reason: str, unblocked_by: str = "a corrected class") -> None:
        super().__init__(reason)
        self.unblocked_by = unblocked_by


def find_class(spec: PythonSpec, folder: Path) -> type[said.Plan]:
    """The class of a definition, from installed packages or else the folder of definitions.

    Imports its module. Raises ProgramFault.
    """
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)  # behind everything else: it never hides an installed module
    help_ = f"the module below {folder} or installed beside Gapless, or a corrected `class`"
    try:
        module = importlib.import_module(spec.module)
    except ModuleNotFoundError as error:
        raise ProgramFault(f"{spec.path}: there is no module {error.name}", help_) from error
    except BaseException as error:
        raise ProgramFault(f"{spec.path}: importing it {_raised(error)}") from error
    found = getattr(module, spec.name, None)
    if not isinstance(found, type):
        raise ProgramFault(f"{spec.path}: the module has no class {spec.name}", help_)
    missing = [name for name in _METHODS if not callable(getattr(found, name, None))]
    if missing:
        raise ProgramFault(
            f"{spec.path}: the class has no {', '.join(missing)}",
            "all four methods of `ingest.python_plan.Plan`",
        )
    return found


@dataclass(frozen=True, slots=True)
class Given:
    """What an instance is made from; secrets are resolved, and known to the scrubber."""

    spec: PythonSpec
    folder: Path
    settings: Mapping[str, Any]
    tenant: Mapping[str, Any]
    scrubber: Scrubber


class PythonProgram:
    """One instance, restored. Every method raises ProgramFault; then throw this away."""

    def __init__(self, owner: str, given: Given, calls: Calls, instance: said.Plan) -> None:
        self._owner, self._given, self._calls = owner, given, calls
        self._instance = instance

    @classmethod
    async def restored(
        cls, owner: str, given: Given, calls: Calls, state: bytes | None, now: datetime
    ) -> PythonProgram:
        """A new instance that goes on from `state`."""

        def make() -> said.Plan:
            found = find_class(given.spec, given.folder)
            tenant = MappingProxyType(dict(given.tenant))
            return found(MappingProxyType(dict(given.settings)), tenant)

        instance = await _made(owner, given, calls, "__init__", make)
        program = cls(owner, given, calls, instance)
        await program._call("restore", lambda: instance.restore(state, now))
        return program

    async def ask(self, now: datetime) -> said.Request | said.WaitUntil | said.Complete:
        wanted = await self._call("ask", lambda: self._instance.ask(now))
        if isinstance(wanted, said.WaitUntil) and wanted.at.tzinfo is None:
            raise self._fault("ask", "returned a WaitUntil without a time zone")
        if not isinstance(wanted, said.Request | said.WaitUntil | said.Complete):
            raise self._fault("ask", f"returned {type(wanted).__name__}")
        return wanted

    async def take(self, request: said.Request, answer: said.Answer) -> said.Page | said.Fault:
        found = await self._call("take", lambda: self._instance.take(request, answer))
        if isinstance(found, said.Fault):
            return found
        if not isinstance(found, said.Page):
            raise self._fault("take", f"returned {type(found).__name__}")
        records: object = found.records  # whatever the class has put there
        if not isinstance(records, list | tuple) or not isinstance(found.envelope, bytes):
            raise self._fault("take", "returned a Page that is no list of bytes")
        if not all(isinstance(record, bytes) for record in records):
            raise self._fault("take", "returned records that are not bytes")
        return found

    async def state(self) -> bytes:
        state = await self._call("state", self._instance.state)
        if not isinstance(state, bytes):
            raise self._fault("state", f"returned {type(state).__name__}, not bytes")
        try:
            return checked_state(state, f"{self._given.spec.path}.state", self._given.scrubber)
        except StateRefused as error:
            raise ProgramFault(str(error), error.unblocked_by) from None

    async def _call(self, name: str, work: Callable[[], T]) -> T:
        return await _made(self._owner, self._given, self._calls, name, work)

    def _fault(self, name: str, what: str) -> ProgramFault:
        return ProgramFault(f"{self._given.spec.path}.{name} {what}")


async def _made(owner: str, given: Given, calls: Calls, name: str, work: Callable[[], T]) -> T:
    path, limit_s = given.spec.path, given.spec.hang_s
    try:
        return await calls.call(owner, work, limit_s)
    except ProgramFault:
        raise
    except Overrun as error:
        raise ProgramFault(
            f"{path}.{name} hangs: {error}", "a corrected class, or a longer `hang`"
        ) from None
    except Exception as error:
        cause = error.__cause__ if isinstance(error, Strange) else error
        raise ProgramFault(f"{path}.{name} {_raised(cause or error)}") from error


def request_of(wanted: said.Request, headers: Mapping[str, str]) -> Request:
    """What is sent; `headers` of the definition go along. Raises ProgramFault."""
    if wanted.method not in ("GET", "POST"):
        raise ProgramFault(f"asks with {str(wanted.method)[:20]!r}; there are GET and POST")
    if wanted.link is None:
        path = wanted.path
        climbs = any(part in (".", "..") for part in urlsplit(path).path.split("/"))
        if not path.startswith("/") or "://" in path or climbs or not path.isprintable():
            raise ProgramFault(
                "asks for a path that does not begin with / or climbs out of base_url"
            )
    params: list[tuple[str, str]] = []
    for name, value in wanted.params.items():
        several = value if isinstance(value, list | tuple) else [value]
        params += [(name, text_of(one)) for one in several if one is not None]
    if not all(isinstance(value, str) for value in wanted.headers.values()):
        raise ProgramFault("asks with a header that is no text")
    try:
        msgspec.json.encode(wanted.body)
    except (TypeError, ValueError, RecursionError):
        raise ProgramFault("asks with a body that cannot be written as JSON") from None
    folded = {name.lower() for name in wanted.headers}
    kept = {name: value for name, value in headers.items() if name.lower() not in folded}
    return Request(
        method=wanted.method,
        path="" if wanted.link is not None else wanted.path,
        params=params,
        headers={**kept, **wanted.headers},
        body=wanted.body,
        link=wanted.link,
    )


def moment(us: int) -> datetime:
    """Microseconds since the epoch as a time in UTC."""
    return _EPOCH + timedelta(microseconds=us)


def micros(at: datetime) -> int:
    """The inverse of `moment`, for any time zone."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def _raised(error: BaseException) -> str:
    """The type and the line of user code that raised it; no text of its own, which may be personal."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    where = f" at {Path(last.filename).name}:{last.lineno}" if last is not None else ""
    return f"raised {type(error).__name__}{where}"
