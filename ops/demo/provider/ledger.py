"""What is true: every fact that ever was, and what is live now, as lines of JSON.

It is read from the ledger of writes, never from what the public paths answered.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator

from .collection import Collection
from .facts import Fact, Kind
from .times import rfc3339


def ledger_lines(collection: Collection, bodies: bool) -> Iterator[bytes]:
    """All facts up to now in the order of their commits, oldest instance first.

    `replaced_at` is when the next state of the same entity came; null for the last state of each instance.
    """
    instances = [*collection.past, (collection.instance, list(collection.facts))]
    return _ledger(collection, instances, bodies)


def _ledger(
    collection: Collection, instances: list[tuple[str, list[Fact]]], bodies: bool
) -> Iterator[bytes]:
    for instance, facts in instances:
        ends: list[int | None] = [None] * len(facts)
        following: dict[str, int] = {}
        for place in range(len(facts) - 1, -1, -1):
            fact = facts[place]
            ends[place] = following.get(fact.id)
            following[fact.id] = fact.committed_us
        for fact, end in zip(facts, ends, strict=True):
            yield _line(
                collection,
                instance,
                fact,
                bodies,
                {"replaced_at": None if end is None else rfc3339(end)},
            )


def state_lines(collection: Collection, bodies: bool) -> Iterator[bytes]:
    """The entities that are live now, by id."""
    live, instance = collection.live.slice(0, len(collection.live)), collection.instance
    return (_line(collection, instance, fact, bodies, {}) for fact in live)


def _line(
    collection: Collection, instance: str, fact: Fact, bodies: bool, more: dict[str, object]
) -> bytes:
    head: dict[str, object] = {
        "tenant": collection.tenant,
        "collection": collection.name,
        "instance": instance,
        "seq": fact.seq,
        "id": fact.id,
        "version": fact.version,
        "updated_at": rfc3339(fact.stamp_us),
        "committed_at": rfc3339(fact.committed_us),
        "visible_at": rfc3339(fact.visible_us),
        "deleted": fact.deleted,
        "deleted_at": rfc3339(fact.committed_us) if fact.deleted else None,
        **more,
    }
    if fact.deleted:
        return json.dumps({**head, "hash": None, "body": None}).encode() + b"\n"
    body = collection.body(fact)
    head["hash"] = hashlib.sha256(body).hexdigest()
    if not bodies:
        return json.dumps(head).encode() + b"\n"
    if fact.kind is Kind.RAW:
        # It may be no JSON, so it cannot stand in a line of JSON as it is.
        head["body_base64"] = base64.b64encode(body).decode()
        return json.dumps(head).encode() + b"\n"
    return json.dumps(head).encode()[:-1] + b',"body":' + body + b"}\n"
