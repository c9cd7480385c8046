"""Sentry's lists of issues and error events, as its API reference describes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from tests.contract.sources.server import PAGE, Answer, Asked, ago, iso

TOKEN = "sntryu-stand-in"
_EVENTS = "/api/0/projects/example-org/example/events/"
_ISSUES = "/api/0/organizations/example-org/issues/"
_NAIVE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def _event(number: int, at: datetime) -> dict[str, Any]:
    name = f"{number:032x}"
    return {
        "id": name,
        "eventID": name,
        "groupID": "1341191803",
        "projectID": "49271",
        "event.type": "error",
        "platform": "python",
        "title": "ZeroDivisionError: integer division or modulo by zero",
        "message": "",
        "location": "example:142",
        "culprit": "example.run",
        "user": {"id": "7", "email": "someone@shop.example", "ip_address": None},
        "tags": [{"key": "browser", "value": "Chrome 60.0"}, {"key": "level", "value": "error"}],
        "crashFile": None,
        "dateCreated": iso(at),
    }


def _issue(number: int, seen: list[datetime], **more: Any) -> dict[str, Any]:
    return {
        "id": str(number),
        "shortId": f"EXAMPLE-{number}",
        "title": "This is an example error",
        "culprit": "raven.scripts.runner in main",
        "level": "error",
        "status": "unresolved",
        "substatus": "ongoing",
        "priority": "high",
        "platform": "python",
        "assignedTo": None,
        "permalink": f"https://sentry.io/organizations/example-org/issues/{number}/",
        "seen": seen,
        **more,
    }


class Sentry:
    """One project: five events, and issues seen at one or two times. An issue was resolved."""

    def __init__(self) -> None:
        self.events = [_event(number, ago(days=number)) for number in range(1, 6)]
        self.issues = [
            _issue(1, [ago(days=9), ago(days=2)]),
            _issue(2, [ago(days=8)], status="resolved", assignedTo={"type": "user", "name": "Jo"}),
            _issue(3, [ago(days=7)]),
        ]

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer({"detail": "Invalid token"}, 401)
        since, until = _period(asked)
        if asked.path == _EVENTS:
            listed = [one for one in self.events if since <= _time(one["dateCreated"]) < until]
            return self._page(asked, listed, asked.first("per_page"))
        assert asked.path == _ISSUES
        query = asked.first("query")
        assert query is not None, "without a query only unresolved issues are listed"
        assert query == "project:example"
        found = [_in_period(one, since, until) for one in self.issues]
        return self._page(asked, [one for one in found if one], asked.first("limit"))

    def throttled(self) -> Answer:
        headers = {"X-Sentry-Rate-Limit-Remaining": "0", "X-Sentry-Rate-Limit-Reset": "1700000000"}
        return Answer(
            {"detail": "You are attempting to use this endpoint too often."}, 429, headers
        )

    def _page(self, asked: Asked, listed: list[dict[str, Any]], size: str | None) -> Answer:
        """There is always a next link; `results` says whether anything is behind it."""
        offset = int((asked.first("cursor") or "0:0:0").split(":")[1])
        end = offset + min(int(size or 100), PAGE)
        query = [(name, value) for name, values in asked.query.items() for value in values]
        query = [pair for pair in query if pair[0] != "cursor"]
        at = f"{asked.origin}{asked.path}?{urlencode([*query, ('cursor', f'0:{end}:0')])}"
        before = f"{asked.origin}{asked.path}?{urlencode([*query, ('cursor', '0:0:1')])}"
        more = str(end < len(listed)).lower()
        link = (
            f'<{before}>; rel="previous"; results="false"; cursor="0:0:1", '
            f'<{at}>; rel="next"; results="{more}"; cursor="0:{end}:0"'
        )
        return Answer(listed[offset:end], 200, {"Link": link})


def _period(asked: Asked) -> tuple[datetime, datetime]:
    """`statsPeriod` wins over `start` and `end`; the reference writes these without a zone."""
    now = datetime.now(UTC)
    stats = asked.first("statsPeriod")
    if stats is not None:
        return now - timedelta(days=int(stats.removesuffix("d"))), now + timedelta(days=1)
    start, end = asked.first("start"), asked.first("end")
    assert start is not None and _NAIVE.fullmatch(start), start
    assert end is not None and _NAIVE.fullmatch(end), end
    return _time(start + "Z"), _time(end + "Z")


def _in_period(issue: dict[str, Any], since: datetime, until: datetime) -> dict[str, Any] | None:
    """The issue with the counts of the period, if it has any event in it."""
    seen = sorted(issue["seen"])
    within = [at for at in seen if since <= at < until]
    if not within:
        return None
    shown = {name: value for name, value in issue.items() if name != "seen"}
    return {**shown, **_counts(within), "lifetime": _counts(seen)}


def _counts(seen: list[datetime]) -> dict[str, Any]:
    return {
        "count": str(len(seen)),
        "userCount": len(seen),
        "firstSeen": iso(seen[0]),
        "lastSeen": iso(seen[-1]),
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
