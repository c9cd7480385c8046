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

# Each of these signs is lost or changed by somebody who encodes once too often or too rarely.
_ODD = "+/=%2B&#"


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
        tail = b"" if token is None else b',"next_page_token":"%b"' % token.encode()
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
        tail = b"" if following is None else b',"after":"%b"' % following.encode()
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
        since_us = when(query.get("since"))
        start, stop, total = ranks(collection, settings, now_us, since_us, None)
        first = min(start + (at - 1) * given_size, stop)
        end = min(first + given_size, stop)
        facts = collection.by_time.slice(first, end)
        if settings.descending:
            facts = collection.by_time.slice(start + stop - end, start + stop - first)[::-1]
        found = Found(facts, total, end < stop)
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
            plain = self._plain(token)
            place = self._tokens.read(plain, bound_to, now_us, settings.token_lifetime_s)
        bounds = ranks(collection, settings, now_us, from_us, to_us)
        found = page(collection, bounds, place, limit)
        if found.facts and (found.more or settings.trailing_empty):
            if settings.token_loop and token:
                return found, token
            following = self._behind(found, place)
            if settings.empty_pages and following.serial % 2:
                found = Found([], found.total, found.more)
            issued = self._tokens.issue(following, bound_to, now_us)
            return found, _ODD + issued if settings.odd_tokens else issued
        ends = {"none": None, "empty": "", "same": token}
        return found, ends[settings.end_token]

    def _behind(self, found: Found, place: Place | None) -> Place:
        """Where the next page begins: behind this one, or where this one began."""
        serial = place.serial + 1 if place else 1
        settings = self._store.settings
        if (settings.repeated_pages or settings.empty_pages) and serial % 2:
            return Place(place.stamp_us, place.id, serial) if place else Place(0, "", serial)
        last = found.facts[-1]
        return Place(last.stamp_us, last.id, serial)

    def _plain(self, token: str) -> str:
        """A token without the signs that `odd_tokens` puts before it; raises Refused if one changed."""
        if not self._store.settings.odd_tokens:
            return token
        if not token.startswith(_ODD):
            raise Refused(400, "bad_token", "this token is not as it was given")
        return token.removeprefix(_ODD)

    def keyset(self, collection: Collection, query: Mapping[str, str]) -> Given:
        """`after_time`, `after_id`, `until`, `limit` → items behind that record, by (time, id).

        Ends are compared as they are stored, whatever `bounds` and `granularity_us` say.
        """
        known(query, "after_time", "after_id", "until", "limit")
        settings = self._store.settings
        collection.refresh()
        index = collection.by_time
        after_us, until_us = when(query.get("after_time")), when(query.get("until"))
        if settings.ignore_filter:
            after_us = until_us = None
        after_id = "" if after_us is None else query.get("after_id", "")
        start = index.rank_after((after_us or 0, after_id))
        stop = len(index) if until_us is None else index.rank((until_us, ""))
        facts = index.slice(start, min(start + size(query, "limit", settings), stop))
        return given(b'{"items":[%b]}' % collection.bodies(facts), facts)
