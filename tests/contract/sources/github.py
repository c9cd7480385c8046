"""GitHub's lists of issues and pull requests, as its REST reference (2022-11-28) describes them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from tests.contract.sources.server import PAGE, Answer, Asked

TOKEN = "github_pat-stand-in"
_PATH = re.compile(r"/repos/example-org/example/(issues|pulls)")


def _issue(number: int, updated_at: str, **more: Any) -> dict[str, Any]:
    return {
        "id": 1000 + number,
        "node_id": "MDU6SXNzdWUx",
        "url": f"https://api.github.com/repos/example-org/example/issues/{number}",
        "number": number,
        "state": "open",
        "state_reason": None,
        "title": "Found a bug",
        "body": "I'm having a problem with this.",
        "user": {"login": "octocat", "id": 1, "type": "User", "site_admin": False},
        "labels": [{"id": 208045946, "name": "bug", "color": "f29513", "default": True}],
        "assignee": {"login": "octocat", "id": 1},
        "assignees": [{"login": "octocat", "id": 1}],
        "milestone": {"number": 1, "title": "v1.0", "state": "open"},
        "locked": False,
        "active_lock_reason": None,
        "comments": 0,
        "closed_at": None,
        "created_at": "2024-02-01T10:00:00Z",
        "updated_at": updated_at,
        **more,
    }


def _pull(number: int, updated_at: str) -> dict[str, Any]:
    sha = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
    return {
        "id": 2000 + number,
        "number": number,
        "state": "closed",
        "draft": False,
        "title": "Amazing new feature",
        "body": "Please pull these awesome changes in!",
        "user": {"login": "octocat", "id": 1},
        "labels": [],
        "requested_reviewers": [{"login": "other_user", "id": 2}],
        "head": {"label": "octocat:new-topic", "ref": "new-topic", "sha": sha},
        "base": {"label": "octocat:main", "ref": "main", "sha": sha},
        "merge_commit_sha": "e5bd3914e2e596debea16f433f57875b5b90bcd6",
        "created_at": "2024-02-01T10:00:00Z",
        "updated_at": updated_at,
        "closed_at": "2024-03-01T10:00:00Z",
        "merged_at": "2024-03-01T10:00:00Z",
    }


class GitHub:
    """One repository. A pull request stands among the issues, too; two issues share their second."""

    def __init__(self, switched_off: bool = False) -> None:
        self.switched_off = switched_off
        self.secondary = False
        self.issues = [
            _issue(1, "2024-02-01T10:00:00Z"),
            _issue(2, "2024-05-01T10:00:00Z", state="closed", state_reason="completed",
                   closed_at="2024-05-01T10:00:00Z"),
            _issue(3, "2024-05-01T10:00:00Z"),
            _issue(4, "2024-05-02T10:00:00Z", pull_request={"merged_at": "2024-03-01T10:00:00Z"}),
            _issue(5, "2024-05-03T10:00:00Z", milestone=None, body=None),
        ]  # fmt: skip
        self.pulls = [_pull(n, f"2024-0{n}-01T10:00:00Z") for n in range(4, 9)]

    def answer(self, asked: Asked) -> Answer:
        found = _PATH.fullmatch(asked.path)
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer({"message": "Bad credentials"}, 401)
        if found is None or asked.headers["accept"] != "application/vnd.github+json":
            return Answer({"message": "Not Found"}, 404)
        if self.switched_off and found[1] == "issues":
            return Answer({"message": "Issues are disabled for this repo"}, 410)
        listed = self.issues if found[1] == "issues" else self.pulls
        state = asked.first("state") or "open"
        listed = [one for one in listed if state in ("all", one["state"])]
        since = asked.first("since")
        if since is not None and found[1] == "issues":
            listed = [one for one in listed if one["updated_at"] >= since]
        field = {"updated": "updated_at", "created": "created_at"}[asked.first("sort") or "created"]
        newest_first = (asked.first("direction") or "desc") == "desc"
        listed = sorted(listed, key=lambda one: one[field], reverse=newest_first)
        return self._page(asked, listed)

    def throttled(self) -> Answer:
        if self.secondary:
            return Answer({"message": "You have exceeded a secondary rate limit."}, 403)
        headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1700000000"}
        return Answer({"message": "API rate limit exceeded for user ID 1."}, 403, headers)

    def _page(self, asked: Asked, listed: list[dict[str, Any]]) -> Answer:
        size = min(int(asked.first("per_page") or 30), PAGE)
        page = int(asked.first("page") or 1)
        end = page * size
        headers = {}
        if end < len(listed):
            query = {name: values[0] for name, values in asked.query.items()}
            following = urlencode({**query, "page": page + 1})
            first = urlencode({**query, "page": 1})
            at = f"{asked.origin}{asked.path}"
            headers["Link"] = f'<{at}?{first}>; rel="first", <{at}?{following}>; rel="next"'
        return Answer(listed[end - size : end], 200, headers)
