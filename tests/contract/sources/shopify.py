"""Shopify's list of orders, as its REST Admin reference (2026-10) describes it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

from tests.contract.sources.server import PAGE, Answer, Asked, ago

TOKEN = "shpat-stand-in"
_PATH = "/admin/api/2026-10/orders.json"
_SHOWN_DAYS = 60


def shop_time(moment: datetime) -> str:
    """As a shop in New York shows times: `2024-01-10T11:00:00-05:00`."""
    return moment.astimezone(timezone(timedelta(hours=-5))).isoformat()


def _order(number: int, created: datetime, updated: datetime, **more: Any) -> dict[str, Any]:
    return {
        "id": 450789460 + number,
        "admin_graphql_api_id": f"gid://shopify/Order/{450789460 + number}",
        "name": f"#100{number}",
        "email": "bob.norman@mail.example",
        "customer": {"id": 207119551, "first_name": "Bob", "email": "bob.norman@mail.example"},
        "financial_status": "paid",
        "fulfillment_status": None,
        "currency": "USD",
        "total_price": "598.94",
        "subtotal_price": "597.00",
        "total_tax": "11.94",
        "total_discounts": "10.00",
        "test": False,
        "tags": "imported, vip",
        "line_items": [{"id": 466157049, "sku": "IPOD2008GREEN", "quantity": 1, "price": "199.00"}],
        "created_at": shop_time(created),
        "processed_at": shop_time(created),
        "updated_at": shop_time(updated),
        "cancelled_at": None,
        "closed_at": None,
        **more,
    }


class Shopify:
    """A shop with five orders of the last two months, and one that is too old to be shown."""

    def __init__(self) -> None:
        self.orders = [
            _order(1, ago(days=40), ago(days=30)),
            _order(2, ago(days=39), ago(days=29), cancelled_at=shop_time(ago(days=29))),
            _order(3, ago(days=38), ago(days=29), customer=None, email=""),
            _order(4, ago(days=3), ago(days=2)),
            _order(5, ago(days=2), ago(days=1)),
            _order(6, ago(days=90), ago(days=1)),
        ]

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("x-shopify-access-token") != TOKEN:
            return Answer({"errors": "[API] Invalid API key or access token"}, 401)
        assert asked.path == _PATH
        info = asked.first("page_info")
        if info is not None and set(asked.query) - {"limit", "page_info"}:
            return Answer({"errors": {"page_info": "nothing else can be passed with it"}}, 400)
        held = json.loads(base64.urlsafe_b64decode(info)) if info else {}
        query = held or {name: values[0] for name, values in asked.query.items()}
        if query.get("status") != "any":
            return Answer({"orders": []})  # open ones only
        return self._page(asked, query, [one for one in self.orders if _asked_for(one, query)])

    def throttled(self) -> Answer:
        message = "Exceeded 2 calls per second for api client. Reduce request rates."
        return Answer({"errors": message}, 429, {"Retry-After": "0.0"})

    def _page(self, asked: Asked, query: dict[str, Any], listed: list[dict[str, Any]]) -> Answer:
        limit = asked.first("limit") or "50"
        at = query.get("at", 0)
        end = at + min(int(limit), PAGE)
        headers = {}
        if end < len(listed):
            info = base64.urlsafe_b64encode(json.dumps({**query, "at": end}).encode()).decode()
            following = urlencode({"limit": limit, "page_info": info})
            headers["Link"] = f'<{asked.origin}{asked.path}?{following}>; rel="next"'
        return Answer({"orders": listed[at:end]}, 200, headers)


def _asked_for(order: dict[str, Any], query: dict[str, Any]) -> bool:
    updated = datetime.fromisoformat(order["updated_at"])
    least, most = query.get("updated_at_min"), query.get("updated_at_max")
    young = datetime.fromisoformat(order["created_at"]) > datetime.now(UTC) - timedelta(
        days=_SHOWN_DAYS
    )
    return (
        young
        and (least is None or updated >= datetime.fromisoformat(least))
        and (most is None or updated <= datetime.fromisoformat(most))
    )
