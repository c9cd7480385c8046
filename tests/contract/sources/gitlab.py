"""GitLab's list of a project's issues, with keyset pages, as its REST reference describes it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from tests.contract.sources.server import PAGE, Answer, Asked

TOKEN = "glpat_stand-in"
_PATH = "/api/v4/projects/example-group%2Fexample/issues"


def _issue(number: int, updated_at: str, **more: Any) -> dict[str, Any]:
    return {
        "id": 40 + number,
        "iid": number,
        "project_id": 4,
        "title": "Consequatur vero maxime deserunt laboriosam est voluptas dolorem.",
        "description": "Ratione dolores corrupti mollitia soluta quia.",
        "state": "opened",
        "created_at": f"2024-01-0{number}T15:31:51.081Z",
        "updated_at": updated_at,
        "closed_at": None,
        "labels": ["foo", "bar"],
        "milestone": {"id": 5, "iid": 1, "title": "v0.1", "state": "closed"},
        "assignees": [{"id": 1, "username": "root", "state": "active"}],
        "author": {"id": 18, "username": "eileen.lowe", "state": "active"},
        "type": "ISSUE",
        "issue_type": "issue",
        "user_notes_count": 1,
        "due_date": "2024-07-22",
        "confidential": False,
        "moved_to_id": None,
        **more,
    }


class GitLab:
    """One project; two of its issues share their millisecond."""

    def __init__(self) -> None:
        self.issues = [
            _issue(1, "2024-01-04T15:31:46.176Z"),
            _issue(2, "2024-06-04T15:31:46.176Z", state="closed", closed_at="2024-06-04T15:31:46.176Z"),
            _issue(3, "2024-06-04T15:31:46.176Z"),
            _issue(4, "2024-06-05T00:00:00.000Z", milestone=None, due_date=None),
            _issue(5, "2024-06-06T15:31:46.176Z"),
        ]  # fmt: skip

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer({"message": "401 Unauthorized"}, 401)
        if asked.path != _PATH:
            return Answer({"message": "404 Project Not Found"}, 404)
        order = asked.first("order_by") or "created_at"
        assert asked.first("sort") == "asc", "the stand-in knows ascending pages only"
        after, before = asked.first("updated_after"), asked.first("updated_before")
        state = asked.first("state") or "all"
        listed = sorted(
            (
                one
                for one in self.issues
                if (after is None or one["updated_at"] >= after)
                and (before is None or one["updated_at"] <= before)
                and state in ("all", one["state"])
            ),
            key=lambda one: (one[order], one["id"]),
        )
        return self._page(asked, listed, order)

    def throttled(self) -> Answer:
        headers = {"Retry-After": "0", "RateLimit-Remaining": "0", "RateLimit-Reset": "1700000000"}
        return Answer("Retry later", 429, headers)

    def _page(self, asked: Asked, listed: list[dict[str, Any]], order: str) -> Answer:
        """By key: a cursor holds the order value and the id of the last issue that was shown."""
        cursor = asked.first("cursor")
        if cursor is not None:
            value, _, number = cursor.partition("|")
            listed = [one for one in listed if (one[order], one["id"]) > (value, int(number))]
        shown = listed[: min(int(asked.first("per_page") or 20), PAGE)]
        headers = {}
        if len(listed) > len(shown):
            query = {name: values[0] for name, values in asked.query.items()}
            query["cursor"] = f"{shown[-1][order]}|{shown[-1]['id']}"
            headers["Link"] = f'<{asked.origin}{asked.path}?{urlencode(query)}>; rel="next"'
        return Answer(shown, 200, headers)
