"""The listings by time: window with a token, search by POST, pages with Link headers.

All read the index by time, so visibility lag, retention and bounds hold for them and for nothing else.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from urllib.parse import urlencode

from .answers import Given, Refused, given, known, number, size
from .collection import Collection
from .store import Store
from .tokens import Place, Tokens
from .window import Found, page, ranks, when


class Listings:
    """Answers as bytes; every method raises Refused for what the provider does not accept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tokens = Tokens(store.seed)
        self._rng = random.Random(f"{store.seed}/pages")

    def window(self, collection: Collection, query: Mapping[str, str]) -> Given:
        """`changed_from`, `changed_to`, `page_token`, `limit` → items, next_page_token, total."""
        known(query, "changed_from", "changed_to", "page_token", "limit")
        found, token = self._page(
            collection,
            query,
            when(query.get("changed_from")),
            when(query.get("changed_to")),
            query.get("page_token"),
        )
        tail = b',"next_page_token":"%b"' % token.encode() if token else b""
        return given(
            b'{"items":[%b]%b,"total":%d}' % (collection.bodies(found.facts), tail, found.total),
            found.facts,
        )

    def search(self, collection: Collection, asked: Mapping[str, object]) -> Given:
        """Body with `from`, `to`, `after`, `limit` → hits, after, count. `query` is accepted and means nothing."""
        known(asked, "from", "to", "after", "limit", "query")
        after = asked.get("after")
        token = None if after is None else str(after)
        found, following = self._page(
            collection, asked, when(asked.get("from")), when(asked.get("to")), token
        )
        tail = b',"after":"%b"' % following.encode() if following else b""
        return given(
            b'{"hits":[%b]%b,"count":%d}' % (collection.bodies(found.facts), tail, found.total),
            found.facts,
        )

    def linked(
        self, collection: Collection, query: Mapping[str, str], origin: str, path: str
    ) -> Given:
        """`since`, `per_page`, `page` → a bare array and a Link header; its pages shift when records change."""
        known(query, "since", "per_page", "page")
        settings, now_us = self._store.settings, self._store.clock.now_us()
        asked = number(query, "per_page", settings.default_limit)
        at = number(query, "page", 1)
        if at < 1 or asked < 1:
            raise Refused(400, "bad_parameter", "page and per_page begin at 1")
        given_size = min(asked, settings.page_cap)
        start, stop, total = ranks(collection, settings, now_us, when(query.get("since")), None)
        first = min(start + (at - 1) * given_size, stop)
        end = min(first + given_size, stop)
        found = Found(collection.by_time.slice(first, end), total, end < stop)
        link = ""
        if found.more:
            # The link repeats the size that was asked, not the one that was given.
            following = urlencode({**query, "per_page": asked, "page": at + 1})
            link = f'<{settings.link_origin or origin}{path}?{following}>; rel="next"'
        return given(
            b"[%b]" % collection.bodies(found.facts), found.facts, {"Link": link} if link else None
        )

    def _page(
        self,
        collection: Collection,
        query: Mapping[str, object],
        from_us: int | None,
        to_us: int | None,
        token: str | None,
    ) -> tuple[Found, str | None]:
        settings, now_us = self._store.settings, self._store.clock.now_us()
        limit = size(query, "limit", settings)
        if settings.short_pages:
            limit = self._rng.randint(1, limit)
        bound_to = json.dumps(
            [collection.tenant, collection.name, from_us, to_us, query.get("limit")]
        )
        place = None
        if token is not None:
            place = self._tokens.read(token, bound_to, now_us, settings.token_lifetime_s)
        bounds = ranks(collection, settings, now_us, from_us, to_us)
        found = page(collection, bounds, place, limit)
        if found.facts and (found.more or settings.trailing_empty):
            if settings.token_loop and token:
                return found, token
            last = found.facts[-1]
            serial = place.serial + 1 if place else 1
            return found, self._tokens.issue(
                Place(last.stamp_us, last.id, serial), bound_to, now_us
            )
        return found, None
