"""Zendesk's time-based incremental export of tickets, as its API reference describes it."""

from __future__ import annotations

import base64
import time
from typing import Any
from urllib.parse import urlencode

from tests.contract.sources.server import PAGE, Answer, Asked

USER, TOKEN = "agent@shop.example/token", "zendesk-stand-in"
_PATH = "/api/v2/incremental/tickets.json"
_TOO_RECENT_S = 60


def _ticket(number: int, generated: int, **more: Any) -> dict[str, Any]:
    return {
        "id": 35430 + number,
        "url": f"https://site.example/api/v2/tickets/{35430 + number}.json",
        "subject": "Help, my printer is on fire!",
        "description": "The fire is very colorful.",
        "status": "open",
        "priority": "high",
        "type": "incident",
        "via": {"channel": "web"},
        "tags": ["enterprise", "other_tag"],
        "requester_id": 20978392,
        "submitter_id": 76872,
        "assignee_id": 235323,
        "organization_id": 509974,
        "group_id": 98738,
        "satisfaction_rating": {"id": 1234, "score": "good", "comment": "Great support!"},
        "custom_fields": [{"id": 27642, "value": "745"}],
        "created_at": "2024-01-20T22:55:29Z",
        "updated_at": "2024-02-05T10:38:52Z",
        "generated_timestamp": generated,
        **more,
    }


class Zendesk:
    """An account with five tickets; one was deleted, one changed by the system without a word."""

    def __init__(self) -> None:
        at = 1_714_000_000
        self.tickets = [
            _ticket(1, at),
            _ticket(2, at + 5, status="pending"),
            _ticket(3, at + 86_400, priority=None, satisfaction_rating=None),
            _ticket(4, at + 90_000, status="deleted", subject="SCRUBBED", description="SCRUBBED"),
            _ticket(5, at + 172_800),
        ]

    def answer(self, asked: Asked) -> Answer:
        wanted = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        if asked.headers.get("authorization") != f"Basic {wanted}":
            return Answer({"error": "Couldn't authenticate you"}, 401)
        assert asked.path == _PATH
        start = int(asked.first("start_time") or 0)
        if start > time.time() - _TOO_RECENT_S:
            return Answer({"error": "InvalidValue", "description": "Too recent start_time."}, 422)
        listed = [one for one in self.tickets if one["generated_timestamp"] >= start]
        size = min(int(asked.first("per_page") or 1000), PAGE)
        shown = listed[:size]
        end = shown[-1]["generated_timestamp"] if shown else None
        following = None
        if end is not None:  # also behind the last page: asked again one day
            query = urlencode({"start_time": end, "per_page": asked.first("per_page")})
            following = f"{asked.origin}{asked.path}?{query}"
        return Answer(
            {
                "tickets": shown,
                "count": len(shown),
                "end_time": end,
                "end_of_stream": len(listed) <= size,
                "next_page": following,
            }
        )

    def throttled(self) -> Answer:
        return Answer({"error": "APIRateLimitExceeded"}, 429, {"Retry-After": "0"})
