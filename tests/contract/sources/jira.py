"""Jira Cloud's search by JQL, as its REST reference (version 3) describes it."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.contract.sources.server import PAGE, Answer, Asked

USER, TOKEN = "mia@site.example", "atlassian-stand-in"
_JQL = re.compile(
    r'(updated|created) >= "([0-9: -]+)"(?: AND updated < "([0-9: -]+)")? ORDER BY (updated|created) ASC'
)


def jira_time(moment: datetime) -> str:
    """As Jira shows times: `2024-01-15T10:00:00.000+0000`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}+0000"


def _issue(number: int, updated: datetime, **more: Any) -> dict[str, Any]:
    return {
        "expand": "",
        "id": str(10000 + number),
        "self": f"https://site.example/rest/api/3/issue/{10000 + number}",
        "key": f"ED-{number}",
        "fields": {
            "summary": "My first work item",
            "issuetype": {"id": "10001", "name": "Story", "subtask": False},
            "project": {"id": "10000", "key": "ED", "name": "Example"},
            "status": {"name": "To Do", "statusCategory": {"key": "new", "name": "To Do"}},
            "resolution": None,
            "priority": {"id": "3", "name": "Medium"},
            "labels": ["backend"],
            "assignee": None,
            "reporter": {"accountId": "5b10a2844c20165700ede21g", "displayName": "Mia Krystof"},
            "created": jira_time(datetime(2024, 1, number, tzinfo=UTC)),
            "updated": jira_time(updated),
            "resolutiondate": None,
            "duedate": "2024-12-31",
            **more,
        },
    }


class Jira:
    """A site with five issues, asked by an account whose clock stands in `zone`."""

    def __init__(self, zone: str = "America/New_York") -> None:
        self.zone = ZoneInfo(zone)
        day = datetime(2024, 6, 1, 12, 0, 1, tzinfo=UTC)
        self.issues = [
            _issue(number, day + timedelta(days=number), parent={"key": "ED-1"})
            for number in range(1, 6)
        ]

    def touch(self, number: int, at: datetime) -> None:
        """Somebody edits an issue at this time."""
        self.issues[number - 1]["fields"]["updated"] = jira_time(at)

    def answer(self, asked: Asked) -> Answer:
        wanted = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        if asked.headers.get("authorization") != f"Basic {wanted}":
            return Answer({"errorMessages": ["Client must be authenticated"]}, 401)
        assert (asked.method, asked.path) == ("POST", "/rest/api/3/search/jql")
        found = _JQL.fullmatch(asked.body["jql"])
        if found is None:
            return Answer({"errorMessages": ["Error in the JQL Query"]}, 400)
        field, since, before, order = found.groups()
        listed = [
            one
            for one in self.issues
            if _time(one, field) >= self._moment(since)
            and (before is None or _time(one, "updated") < self._moment(before))
        ]
        listed.sort(key=lambda one: (_time(one, order), one["id"]))
        return self._page(asked, listed)

    def throttled(self) -> Answer:
        headers = {"Retry-After": "0", "X-RateLimit-Reset": "2024-01-01T00:00Z"}
        return Answer({"errorMessages": ["Rate limit exceeded"]}, 429, headers)

    def _moment(self, text: str) -> datetime:
        """JQL has minutes or days, in the zone of the account that asks."""
        pattern = "%Y-%m-%d %H:%M" if ":" in text else "%Y-%m-%d"
        return datetime.strptime(text, pattern).replace(tzinfo=self.zone)

    def _page(self, asked: Asked, listed: list[dict[str, Any]]) -> Answer:
        token = asked.body.get("nextPageToken")
        at = int(token.removeprefix("at:")) if token else 0
        end = at + min(asked.body.get("maxResults", 50), PAGE)
        fields = asked.body.get("fields", [])
        shown = [
            {**one, "fields": {k: v for k, v in one["fields"].items() if k in fields}}
            for one in listed[at:end]
        ]
        body: dict[str, Any] = {"issues": shown, "isLast": end >= len(listed)}
        if end < len(listed):
            body["nextPageToken"] = f"at:{end}"
        return Answer(body)


def _time(issue: dict[str, Any], field: str) -> datetime:
    return datetime.strptime(issue["fields"][field], "%Y-%m-%dT%H:%M:%S.%f%z")
