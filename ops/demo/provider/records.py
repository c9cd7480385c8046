"""Single records as tests order them, poison included: put and delete with everything chosen by hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from .collection import Collection
from .content import TIME_FIELD
from .facts import Fact, Kind
from .store import Store
from .times import parse, rfc3339

_CHOICES = (
    "fields",
    "remove",
    "pad_bytes",
    "raw",
    "raw_base64",
    "updated_at",
    "version",
    "visible_after_ms",
)
_PUT_KEYS = frozenset({"tenant", "collection", "id", *_CHOICES})


def put(store: Store, order: Mapping[str, Any]) -> Fact:
    """Writes one record.

    Without `fields`, `remove`, `pad_bytes`, `raw` it is an ordinary invented one. `fields` are merged into it (maps
    deeply), `remove` names fields that go, `pad_bytes` adds a field `padding` of that length. `raw` (text) or
    `raw_base64` is the record as it stands, whatever that is. Raises ValueError, BadTime, Unknown.
    """
    unknown = set(order) - _PUT_KEYS
    if unknown:
        raise ValueError(f"put has no {sorted(unknown)}; there are {', '.join(sorted(_PUT_KEYS))}")
    collection = store.collection(order["tenant"], order.get("collection", "accounts"))
    id_ = str(order["id"]) if "id" in order else collection.new_id()
    before = collection.latest.get(id_)
    version = order.get("version", before.version + 1 if before else 1)
    stamp_us = (
        parse(str(order["updated_at"]))
        if "updated_at" in order
        else store.settings.cut(store.clock.now_us())
    )
    lag_us = 1_000 * int(order["visible_after_ms"]) if "visible_after_ms" in order else None
    kind, body = _body(store, collection, order, id_, version, stamp_us)
    return collection.put(
        id_, stamp_us=stamp_us, version=version, body=body, kind=kind, lag_us=lag_us
    )


def _body(
    store: Store,
    collection: Collection,
    order: Mapping[str, Any],
    id_: str,
    version: int,
    stamp_us: int,
) -> tuple[Kind, bytes | None]:
    if "raw_base64" in order:
        return Kind.RAW, base64.b64decode(order["raw_base64"], validate=True)
    if "raw" in order:
        return Kind.RAW, str(order["raw"]).encode()
    if not {"fields", "remove", "pad_bytes"} & set(order):
        return Kind.GENERATED, None
    invented = collection.invent(id_, version, stamp_us)
    record: dict[str, Any] = json.loads(invented)
    record[TIME_FIELD[collection.name]] = rfc3339(stamp_us, store.settings.shown_us)
    _merge(record, order.get("fields", {}))
    for name in order.get("remove", ()):
        record.pop(name, None)
    if "pad_bytes" in order:
        record["padding"] = "x" * int(order["pad_bytes"])
    return Kind.GIVEN, json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def _merge(record: dict[str, Any], fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, dict) and isinstance(record.get(name), dict):
            _merge(record[name], value)
        else:
            record[name] = value


def written(fact: Fact) -> dict[str, object]:
    """What a test is told of a write."""
    return {
        "id": fact.id,
        "version": fact.version,
        "updated_at": rfc3339(fact.stamp_us),
        "seq": fact.seq,
    }
