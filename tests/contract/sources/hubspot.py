"""HubSpot's search for contacts and its list of them, as its CRM reference (v3) describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from tests.contract.sources.server import PAGE, Answer, Asked

TOKEN = "pat-eu1-stand-in"
_LIST = "/crm/v3/objects/contacts"


def _contact(number: int, updated: str, **more: Any) -> dict[str, Any]:
    return {
        "id": str(number),
        "properties": {
            "company": "HubSpot",
            "createdate": "2024-01-31T10:00:00.000Z",
            "email": f"contact{number}@shop.example",
            "firstname": "Bryan",
            "hs_object_id": str(number),
            "lastmodifieddate": updated,
            "lastname": "Cooper",
            "lifecyclestage": "lead",
            "phone": None,
            **more,
        },
        "createdAt": "2024-01-31T10:00:00.000Z",
        "updatedAt": updated,
        "archived": False,
    }


class HubSpot:
    """An account with five contacts, two changed in one millisecond. `most`: what a search reaches."""

    def __init__(self, most: int = 10_000) -> None:
        self.most = most
        self.widest = 0
        self.daily = False
        self.contacts = [
            _contact(1, "2024-03-01T10:00:00.001Z"),
            _contact(2, "2024-03-01T10:00:00.002Z", lifecyclestage="customer"),
            _contact(3, "2024-03-01T10:00:00.002Z"),
            _contact(4, "2024-04-01T10:00:00.000Z"),
            _contact(5, "2024-05-01T10:00:00.000Z"),
        ]

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer({"status": "error", "category": "INVALID_AUTHENTICATION"}, 401)
        if asked.path == _LIST + "/search":
            return self._search(asked)
        assert (asked.method, asked.path) == ("GET", _LIST)
        assert asked.first("archived") == "false"
        after = asked.first("after")
        listed = [one for one in self.contacts if after is None or int(one["id"]) > int(after)]
        shown = listed[: min(int(asked.first("limit") or 10), PAGE)]
        names = (asked.first("properties") or "").split(",")
        body: dict[str, Any] = {"results": [_chosen(one, names) for one in shown]}
        if len(listed) > len(shown):
            query = urlencode({"after": shown[-1]["id"]})
            link = f"{asked.origin}{asked.path}?{query}"
            body["paging"] = {"next": {"after": shown[-1]["id"], "link": link}}
        return Answer(body)

    def throttled(self) -> Answer:
        body = {
            "status": "error",
            "message": "You have reached your secondly limit.",
            "errorType": "RATE_LIMIT",
            "policyName": "DAILY" if self.daily else "SECONDLY",
        }
        return Answer(body, 429, {} if self.daily else {"Retry-After": "0"})

    def _search(self, asked: Asked) -> Answer:
        [group] = asked.body["filterGroups"]
        listed = [one for one in self.contacts if all(_holds(one, f) for f in group["filters"])]
        [order] = asked.body["sorts"]
        listed.sort(key=lambda one: one["properties"][order["propertyName"]])
        at, size = int(asked.body.get("after", "0")), min(asked.body["limit"], PAGE)
        if at + size > self.most:
            return Answer({"status": "error", "category": "VALIDATION_ERROR"}, 400)
        self.widest = max(self.widest, at + size)
        shown = [_chosen(one, asked.body["properties"]) for one in listed[at : at + size]]
        body: dict[str, Any] = {"total": len(listed), "results": shown}
        if at + size < len(listed):
            body["paging"] = {"next": {"after": str(at + size)}}
        return Answer(body)


def _holds(contact: dict[str, Any], test: dict[str, str]) -> bool:
    """Times are compared as milliseconds since 1970, which filters hold as text."""
    assert isinstance(test["value"], str), "filters hold text"
    moment = datetime.fromisoformat(contact["properties"][test["propertyName"]])
    value, wanted = round(moment.timestamp() * 1000), int(test["value"])
    return {"GTE": value >= wanted, "LT": value < wanted}[test["operator"]]


def _chosen(contact: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Only the properties that are named, and the one that always comes."""
    known = contact["properties"]
    names = ["hs_object_id", *names]
    return {**contact, "properties": {name: known[name] for name in names if name in known}}
