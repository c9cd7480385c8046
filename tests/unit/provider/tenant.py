"""One tenant of a running provider, as these tests speak to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.upstream import Answer, Provider


@dataclass(frozen=True)
class Tenant:
    """One tenant of a running provider."""

    provider: Provider
    name: str

    def path(self, collection: str = "accounts", below: str = "") -> str:
        return f"/t/{self.name}/{collection}{below}"

    def get(self, below: str = "", collection: str = "accounts", **query: Any) -> Answer:
        return self.provider.get(self.path(collection, below), **query)

    def put(self, collection: str = "accounts", **record: Any) -> dict[str, Any]:
        return self.provider.put(self.name, collection, **record)

    def delete(self, record_id: str) -> dict[str, Any]:
        return self.provider.delete(record_id, self.name)

    def window(self, low: str | None, high: str | None) -> list[str]:
        """The ids of one page of the window listing."""
        ends = {"changed_from": low, "changed_to": high}
        answer = self.get(**{name: value for name, value in ends.items() if value is not None})
        assert answer.status == 200, answer.body
        return [item["id"] for item in answer.json()["items"]]

    def walk(self, **query: Any) -> list[list[dict[str, Any]]]:
        """All pages of the window listing."""
        pages = []
        answer = self.get(**query)
        while True:
            assert answer.status == 200, answer.body
            pages.append(answer.json()["items"])
            token = answer.json().get("next_page_token")
            if token is None:
                return pages
            answer = self.get(**query, page_token=token)
