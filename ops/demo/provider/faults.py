"""Rules for what goes wrong: which request they hit, and what becomes of its answer.

Every rule counts the requests that it matches; the first rule that fires decides alone.
Chance comes from the seed, so the same requests in the same order meet the same faults.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

KINDS = ("status", "delay", "cut", "html", "close", "reset", "gzip_bomb", "headers", "bom")


class BadRule(ValueError):
    """A rule that cannot be followed."""


@dataclass(slots=True)
class Rule:
    """`path` is searched in path and query. Without `nth`, `every` and `probability` it fires each time.

    `status`: that status with `headers`, `body` and `content_type` instead of the answer. `delay`: nothing else.
    `cut`: the answer ends after the share `keep` of its bytes, chunked or with a length that is not reached.
    `html`: a page for people under 200. `close`, `reset`: the connection ends without an answer.
    `gzip_bomb`: `bomb_bytes` of blanks in a small gzip body. `headers`: the right answer with these headers.
    `bom`: the right answer behind a byte order mark.
    Each kind waits `delay_s` of real time first.
    """

    path: re.Pattern[str]
    kind: str
    method: str | None = None
    nth: frozenset[int] = frozenset()
    every: int | None = None
    probability: float | None = None
    times: int | None = None
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = '{"code":"internal","message":"something went wrong"}'
    content_type: str = "application/json"
    delay_s: float = 0.0
    keep: float = 0.5
    chunked: bool = True
    bomb_bytes: int = 256 * 1024 * 1024
    matched: int = 0
    fired: int = 0

    def fires(self, method: str, target: str, rng: random.Random) -> bool:
        """Counts the request if it matches, and says whether it is hit."""
        if (self.method and method != self.method) or not self.path.search(target):
            return False
        self.matched += 1
        if self.times is not None and self.fired >= self.times:
            return False
        if self.nth and self.matched not in self.nth:
            return False
        if self.every is not None and self.matched % self.every:
            return False
        if self.probability is not None and rng.random() >= self.probability:
            return False
        self.fired += 1
        return True


def rule(text: Mapping[str, Any]) -> Rule:
    """Reads one rule; raises BadRule."""
    keys = {each.name for each in fields(Rule)} - {"matched", "fired"}
    for key in text:
        if key not in keys:
            raise BadRule(f"a rule has no key {key!r}; there are {', '.join(sorted(keys))}")
    wanted = dict(text)
    if wanted.get("kind") not in KINDS:
        raise BadRule(f"kind is one of {', '.join(KINDS)}")
    nth = wanted.pop("nth", ())
    try:
        wanted["path"] = re.compile(wanted.get("path", ""))
        wanted["nth"] = frozenset((nth,) if isinstance(nth, int) else (int(n) for n in nth))
    except (re.error, TypeError, ValueError) as error:
        raise BadRule(str(error)) from error
    if "every" in wanted and not (isinstance(wanted["every"], int) and wanted["every"] > 0):
        raise BadRule("every is a whole number above 0")
    return Rule(**wanted)


class Faults:
    """The rules in force."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"{seed}/faults")
        self._rules: list[Rule] = []

    def replace(self, rules: list[Mapping[str, Any]]) -> None:
        """All rules anew, counters too; an empty list ends all faults. Raises BadRule and then changes nothing."""
        self._rules = [rule(text) for text in rules]

    def decide(self, method: str, target: str) -> Rule | None:
        """The fault that hits this request; all matching rules have counted it."""
        hit = None
        for candidate in self._rules:
            if candidate.fires(method, target, self._rng) and hit is None:
                hit = candidate
        return hit

    def counts(self) -> list[dict[str, object]]:
        return [
            {"path": r.path.pattern, "kind": r.kind, "matched": r.matched, "fired": r.fired}
            for r in self._rules
        ]
