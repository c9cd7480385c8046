"""The full listings, by position, by id and below an account, and the change feed with its identity.

All read the primary store: what is committed is there at once, whatever the index by time knows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from .answers import Given, Refused, given, known, number, size
from .collection import Collection
from .facts import Fact
from .store import Store
from .window import half_open, when


def by_position(store: Store, collection: Collection, query: Mapping[str, str]) -> Given:
    """`offset`, `limit` → items, total, in order of id. Positions shift when something before them goes."""
    known(query, "offset", "limit")
    start = number(query, "offset", 0)
    end = start + size(query, "limit", store.settings)
    facts = collection.live.slice(start, end)
    if store.settings.descending:
        count = len(collection.live)
        facts = collection.live.slice(max(0, count - end), max(0, count - start))[::-1]
    return given(
        b'{"items":[%b],"total":%d}' % (collection.bodies(facts), len(collection.live)), facts
    )


def by_keyset(store: Store, collection: Collection, query: Mapping[str, str]) -> Given:
    """`after_id`, `limit` → items, has_more, in order of id; `after_id` itself is not given."""
    known(query, "after_id", "limit")
    after_id = query.get("after_id")
    start = 0 if after_id is None else collection.live.rank_after(after_id)
    end = start + size(query, "limit", store.settings)
    facts = collection.live.slice(start, end)
    more = b"true" if end < len(collection.live) else b"false"
    return given(b'{"items":[%b],"has_more":%b}' % (collection.bodies(facts), more), facts)


def below(store: Store, collection: Collection, account: str, query: Mapping[str, str]) -> Given:
    """`changed_from`, `changed_to`, `after_id`, `limit` → items, has_more: what belongs to an account.

    Records belong to the account whose id and a dot their own id begins with. Raises Refused when
    that account is not there (any more).
    """
    known(query, "changed_from", "changed_to", "after_id", "limit")
    owner = store.collection(collection.tenant, "accounts").latest.get(account)
    if owner is None or owner.deleted:
        raise Refused(404, "not_found", f"no account {account!r}")
    from_us, to_us = when(query.get("changed_from")), when(query.get("changed_to"))
    low_us, high_us = half_open(store.settings, from_us, to_us)
    start = collection.live.rank_after(max(f"{account}.", query.get("after_id", "")))
    stop = collection.live.rank(f"{account}/")  # the sign behind the dot
    found = [f for f in collection.live.slice(start, stop) if low_us <= f.stamp_us < high_us]
    facts = found[: size(query, "limit", store.settings)]
    more = b"true" if len(facts) < len(found) else b"false"
    return given(b'{"items":[%b],"has_more":%b}' % (collection.bodies(facts), more), facts)


def changes(store: Store, collection: Collection, query: Mapping[str, str]) -> Given:
    """`since`, `limit` → results, last_seq: the latest state or tombstone of each entity, in order of change.

    A cursor beyond the head is answered with nothing and itself, for ever: a re-created collection
    does not say so here.
    """
    known(query, "since", "limit")
    since = query.get("since", "")
    at, limit = _sequence(since), size(query, "limit", store.settings)
    facts: list[Fact] = []
    for place in range(at, len(collection.facts)):
        fact = collection.facts[place]
        # A state that was replaced has left the feed; its number stays unused.
        if collection.latest[fact.id] is fact:
            facts.append(fact)
            if len(facts) == limit:
                break
    last = cursor(facts[-1].seq) if facts else since or cursor(0)
    return given(
        b'{"results":[%b],"last_seq":"%b"}' % (collection.bodies(facts), last.encode()), facts
    )


def info(store: Store, collection: Collection, query: Mapping[str, str]) -> Given:
    """Who this collection is, and the head of its feed."""
    known(query)
    head = cursor(len(collection.facts))
    return Given(
        b'{"instance":"%b","update_seq":"%b","live":%d}'
        % (collection.instance.encode(), head.encode(), len(collection.live))
    )


def cursor(seq: int) -> str:
    """A number and something that means nothing, as CouchDB's; callers must not read it."""
    return f"{seq}-{zlib.crc32(b'%d' % seq):08x}"


def _sequence(since: str) -> int:
    text = since.partition("-")[0] or "0"
    if not text.isdecimal() or (since not in ("", "0") and since != cursor(int(text))):
        raise Refused(400, "bad_cursor", "this is no cursor of this feed")
    return int(text)
