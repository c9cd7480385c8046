"""What a public path answers: a body with what the request log wants to know of it, or a refusal.

Free of the HTTP server, so that listings are plain functions of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .facts import Fact
from .settings import Settings


class Refused(Exception):
    """The provider answers with this status and `{"code": …, "message": …}`."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True, slots=True)
class Given:
    """A JSON body and which records stand in it."""

    body: bytes
    count: int = 0
    first_id: str | None = None
    last_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def given(body: bytes, facts: list[Fact], headers: Mapping[str, str] | None = None) -> Given:
    if not facts:
        return Given(body, headers=headers or {})
    return Given(body, len(facts), facts[0].id, facts[-1].id, headers or {})


def number(query: Mapping[str, object], name: str, default: int) -> int:
    """A number that is at least 0; raises Refused."""
    text = query.get(name, default)
    try:
        value = int(str(text))
    except ValueError:
        value = -1
    if value < 0 or isinstance(text, bool):
        raise Refused(400, "bad_parameter", f"{name} is a whole number, not {text!r}")
    return value


def size(query: Mapping[str, object], name: str, settings: Settings) -> int:
    """How many records the page may hold: what is asked, silently cut to the cap; raises Refused."""
    asked = number(query, name, settings.default_limit)
    if asked < 1:
        raise Refused(400, "bad_parameter", f"{name} begins at 1")
    return min(asked, settings.page_cap)


def known(query: Mapping[str, object], *names: str) -> None:
    """Refuses a parameter that this path does not know: silence would hide a misspelt one."""
    for name in query:
        if name not in names:
            raise Refused(
                400,
                "unknown_parameter",
                f"there is no parameter {name!r}; there are {', '.join(names)}",
            )
