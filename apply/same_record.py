"""Where an exception stands, and which exceptions speak of the same record. Pure.

A record is the same under one mapping version if its key is (its bytes, where no key can be read)
and if it fails for the same reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from apply.outcomes import KeyValue

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Where:
    """The coordinates of one exception; `index` counts within the whole page."""

    mapping_version: int
    partition: int
    generation: int
    offset: int
    index: int


@dataclass(frozen=True, slots=True)
class Group:
    """What makes two exceptions one: partition id, mapping version, record, reason."""

    partition_id_no: int
    mapping_version: int
    fingerprint: bytes
    reason: str


def fingerprint(key: Mapping[str, KeyValue] | None, content: bytes | None) -> bytes | None:
    """Which record this is: by its key, or by its bytes. None: neither is known."""
    if key is None:
        return content
    text = json.dumps(key, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return digest(text.encode("utf-8", "surrogatepass"))


def digest(raw: bytes) -> bytes:
    """Of a record's bytes: equal bytes have an equal one."""
    return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).digest()
