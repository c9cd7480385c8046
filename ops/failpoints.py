"""Failpoints: what a process does to itself where the stage code calls `hit(name)`.

Syntax as in the fail crate: `name=2*off->1*kill;other=stop`. Counters are per process and safe
between threads. Without a text the function of production is returned, which does nothing.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas import failpoints as names

MARK_VARIABLE = "GAPLESS_FAILPOINT_MARK"
ACTIONS = ("off", "kill", "stop", "raise", "sleep", "exit")
_TERM = re.compile(r"^(?:(\d+)\*)?([a-z]+)(?:\(([^()]*)\))?$")


class BadFailpoints(ValueError):
    """The text of GAPLESS_FAILPOINTS cannot be used; says which part and what to write."""


class FailpointError(Exception):
    """What the action `raise` raises: no stage code knows it."""


@dataclass(frozen=True, slots=True)
class Term:
    """One action and how often it is taken; `count` None: from now on always."""

    action: str
    count: int | None
    argument: float


def parse(text: str) -> dict[str, tuple[Term, ...]]:
    """The terms of each failpoint named. Raises BadFailpoints."""
    found: dict[str, tuple[Term, ...]] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, separator, actions = (piece.strip() for piece in part.partition("="))
        if not separator:
            raise BadFailpoints(f"{part.strip()!r}: expected name=action, as in x=1*kill")
        _known(name)
        if name in found:
            raise BadFailpoints(f"{name} stands twice")
        found[name] = tuple(_term(name, term) for term in actions.split("->"))
    return found


def build(text: str, mark: Path | None = None) -> Callable[[str], None]:
    """The `hit` function of this process.

    Before an action other than `off`, the failpoint's name is appended to `mark` (by default the
    file named by GAPLESS_FAILPOINT_MARK), so that whoever tests can wait for the event.
    """
    plan = parse(text)
    if not plan:
        return names.none
    place = os.environ.get(MARK_VARIABLE)
    return _Failpoints(plan, mark or (Path(place) if place else None)).hit


class _Failpoints:
    def __init__(self, plan: Mapping[str, tuple[Term, ...]], mark: Path | None) -> None:
        self._plan = plan
        self._mark = mark
        self._taken = dict.fromkeys(plan, 0)
        self._lock = threading.Lock()

    def hit(self, name: str) -> None:
        terms = self._plan.get(name)
        if terms is None:
            return
        with self._lock:
            term = _due(terms, self._taken[name])
            self._taken[name] += 1
        if term is None or term.action == "off":
            return
        if self._mark is not None:
            with self._mark.open("a") as file:
                file.write(f"{name}\n")
        _act(name, term)


def _due(terms: tuple[Term, ...], taken: int) -> Term | None:
    """The term of call number `taken` (from 0); None once all are used up."""
    for term in terms:
        if term.count is None or taken < term.count:
            return term
        taken -= term.count
    return None


def _act(name: str, term: Term) -> None:
    if term.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif term.action == "stop":
        # To this thread: sent to the process, another thread may take it while this one goes on.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif term.action == "sleep":
        time.sleep(term.argument)
    elif term.action == "exit":
        os._exit(int(term.argument))  # from any thread, without cleaning up
    else:
        raise FailpointError(f"failpoint {name}")


def _known(name: str) -> None:
    every = (*names.INGEST, *names.APPLY, *names.REPLAY, *names.RELAY)
    if name in every:
        return
    near = difflib.get_close_matches(name, every, n=1, cutoff=0.0)
    raise BadFailpoints(f"there is no failpoint {name!r}; did you mean {near[0]}?")


def _term(name: str, text: str) -> Term:
    match = _TERM.match(text.strip())
    if match is None or match[2] not in ACTIONS:
        raise BadFailpoints(
            f"{name}: {text.strip()!r} is no action; write one of {', '.join(ACTIONS)},"
            " with a count and an argument where needed: 2*off, sleep(0.5), exit(70)"
        )
    action, argument = match[2], match[3]
    if (argument is not None) != (action in ("sleep", "exit")):
        raise BadFailpoints(
            f"{name}: {action} {'takes no argument' if argument else 'needs an argument'}"
        )
    try:
        number = float(argument or 0)
    except ValueError:
        raise BadFailpoints(f"{name}: {argument!r} is no number") from None
    return Term(action, None if match[1] is None else int(match[1]), number)
