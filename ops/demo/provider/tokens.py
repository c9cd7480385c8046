"""Page tokens: opaque to the caller, bound to the query they were given for, with a lifetime.

A token holds the place behind the last record given, not a position that shifts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass

from .answers import Refused
from .times import SECOND_US


@dataclass(frozen=True, slots=True)
class Place:
    """Behind the record with this stamp and id; `serial` only makes tokens of one place differ."""

    stamp_us: int
    id: str
    serial: int = 0


class Tokens:
    """Signs and reads tokens. A token of another seed is malformed here."""

    def __init__(self, seed: int) -> None:
        self._key = hashlib.blake2b(f"tokens/{seed}".encode(), digest_size=32).digest()

    def _mac(self, text: bytes) -> bytes:
        return hashlib.blake2b(text, digest_size=9, key=self._key).digest()

    def issue(self, place: Place, query: str, now_us: int) -> str:
        mark = self._mac(query.encode()).hex()
        text = json.dumps([now_us, mark, place.stamp_us, place.id, place.serial]).encode()
        return base64.urlsafe_b64encode(self._mac(text) + text).decode().rstrip("=")

    def read(self, token: str, query: str, now_us: int, lifetime_s: float | None) -> Place:
        """Raises Refused: 400 for a token that is not ours or of another query, 410 for an old one."""
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            raw = b""
        text = raw[9:]
        if not text or self._mac(text) != raw[:9]:
            raise Refused(400, "bad_token", "this is no token of this server")
        issued_us, mark, stamp_us, id_, serial = json.loads(text)
        if mark != self._mac(query.encode()).hex():
            raise Refused(400, "token_mismatch", "this token was given for another query")
        if lifetime_s is not None and now_us - issued_us > lifetime_s * SECOND_US:
            raise Refused(410, "token_expired", "this token is too old; ask again without it")
        return Place(stamp_us, id_, serial)
