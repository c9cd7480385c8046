"""Stripe's lists of events, customers and invoices, as its API reference describes them."""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from tests.contract.sources.server import PAGE, Answer, Asked, ago

KEY = "rk-stand-in"
CREATED = ago(days=300)


def _customer(name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"cus_{name}",
        "object": "customer",
        "address": {"city": "Oslo", "country": "NO", "line1": None},
        "balance": 0,
        "created": int(CREATED.timestamp()),
        "currency": "nok",
        "delinquent": False,
        "email": f"{name}@shop.example",
        "livemode": False,
        "metadata": {},
        "name": "Jenny Rosen",
        "phone": None,
        **more,
    }


def _invoice(name: str, **more: Any) -> dict[str, Any]:
    at = int(CREATED.timestamp())
    return {
        "id": f"in_{name}",
        "object": "invoice",
        "amount_due": 1000,
        "amount_paid": 0,
        "amount_remaining": 1000,
        "created": at,
        "currency": "usd",
        "customer": "cus_a",
        "customer_email": "a@shop.example",
        "due_date": None,
        "number": None,
        "period_start": at,
        "period_end": at + 60,
        "status": "draft",
        "total": 1000,
        **more,
    }


def _event(number: int, at: datetime, kind: str, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"evt_{number}",
        "object": "event",
        "api_version": "2024-06-20",
        "created": int(at.timestamp()),
        "data": {"object": about},
        "livemode": False,
        "pending_webhooks": 0,
        "request": {"id": None, "idempotency_key": None},
        "type": kind,
    }


class Stripe:
    """An account. One customer was deleted a day ago; one event tells of an invoice without id."""

    def __init__(self) -> None:
        self.customers = [_customer("a", balance=-500), _customer("b"), _customer("c")]
        self.invoices = [_invoice("1", status="open"), _invoice("2"), _invoice("3")]
        gone, upcoming = _customer("gone"), _invoice("upcoming")
        del upcoming["id"]
        told = [
            (9, "customer.created", gone),
            (8, "customer.updated", _customer("a", balance=-100)),
            (7, "customer.updated", _customer("a", balance=-500)),
            (6, "customer.source.created", {"id": "card_1", "object": "card"}),
            (5, "customer.updated", gone),
            (4, "invoice.upcoming", upcoming),
            (3, "invoice.updated", _invoice("1")),
            (2, "invoice.finalized", _invoice("1", status="open")),
            (1.5, "invoice.deleted", _invoice("draft", deleted=True)),
            (1, "customer.deleted", gone),
        ]
        self.events = [
            _event(number, ago(days=days), kind, about)
            for number, (days, kind, about) in enumerate(told)
        ]

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return Answer({"error": {"type": "invalid_request_error"}}, 401)
        assert asked.headers["stripe-version"] == "2024-06-20"
        name = asked.path.removeprefix("/v1/")
        if name == "events":
            listed = [one for one in self.events if _asked_for(one, asked)]
        else:
            listed = list({"customers": self.customers, "invoices": self.invoices}[name])
        listed.reverse()  # newest first
        return self._page(asked, listed)

    def change_twice(self, customer: str, **states: list[Any]) -> None:
        """Two changes of one customer within one second, an hour ago."""
        [now] = [one for one in self.customers if one["id"] == customer]
        for number in range(2):
            now.update({field: values[number] for field, values in states.items()})
            self.events.append(_event(20 + number, ago(hours=1), "customer.updated", dict(now)))

    def throttled(self) -> Answer:
        error = {"code": "rate_limit", "message": "Too many requests.", "type": "api_error"}
        return Answer({"error": error}, 429, {"Retry-After": "0"})

    def _page(self, asked: Asked, listed: list[dict[str, Any]]) -> Answer:
        after = asked.first("starting_after")
        if after is not None:
            at = next((n for n, one in enumerate(listed) if one["id"] == after), None)
            if at is None:
                error = {"code": "resource_missing", "type": "invalid_request_error"}
                return Answer({"error": error}, 400)
            listed = listed[at + 1 :]
        size = min(int(asked.first("limit") or 10), PAGE)
        shown, more = listed[:size], len(listed) > size
        return Answer({"object": "list", "url": asked.path, "has_more": more, "data": shown})


def _asked_for(event: dict[str, Any], asked: Asked) -> bool:
    since, before = asked.first("created[gte]"), asked.first("created[lt]")
    kind, kinds = asked.first("type"), asked.query.get("types[]")
    return (
        (since is None or event["created"] >= int(since))
        and (before is None or event["created"] < int(before))
        and (kind is None or fnmatchcase(event["type"], kind))
        and (kinds is None or event["type"] in kinds)
    )
