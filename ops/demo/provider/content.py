"""What a record says: a pure function of seed, tenant, id, version and stamp.

So a million records need no memory for their bodies, and the same seed tells the same story.
"""

from __future__ import annotations

import hashlib
import uuid
from json.encoder import encode_basestring_ascii as quoted
from zlib import crc32

from .times import SECOND_US, rfc3339
from .words import (
    CITIES,
    COURSES,
    DATASETS,
    FILLER,
    FIRST,
    LABELS,
    LAST,
    LEVELS,
    LIFECYCLES,
    PLANS,
    STAGES,
    STATUSES,
)

ID_FIELD = {"accounts": "id", "events": "event_id"}
TIME_FIELD = {"accounts": "updated_at", "events": "received_at"}


class Content:
    """Renders the records of one tenant as JSON bytes of about `record_bytes` (accounts) each."""

    def __init__(self, seed: int, tenant: str, record_bytes: int) -> None:
        self._seed = f"{seed}/{tenant}/"
        self._tenant = tenant
        self._record_bytes = record_bytes
        self._filler = FILLER * (2 + (2 * record_bytes) // len(FILLER))

    def new_id(self, collection: str, number: int) -> str:
        """The id of the collection's `number`th record; accounts of different tenants share ids."""
        if collection == "accounts":
            return f"acc-{number:06d}"
        digest = hashlib.blake2b(f"{self._seed}{number}".encode(), digest_size=16).digest()
        return str(uuid.UUID(bytes=digest, version=4))

    def render(
        self, collection: str, id_: str, version: int, stamp_us: int, shown_us: int
    ) -> bytes:
        """One record; its stamp is shown in units of `shown_us`."""
        if collection == "accounts":
            return self._account(id_, version, stamp_us, shown_us)
        return self._event(id_, stamp_us, shown_us)

    def _account(self, id_: str, version: int, stamp_us: int, shown_us: int) -> bytes:
        who = crc32(f"{self._seed}{id_}".encode())
        now = crc32(b"%d" % version, who)
        first, last = FIRST[who & 31], LAST[who >> 5 & 31]
        cents = now % 10_000_000 - 500_000
        head = (
            f'{{"id":{quoted(id_)},"external_id":"EXT-{who:08X}","version":{version},'
            f'"updated_at":"{rfc3339(stamp_us, shown_us)}","lifecycle":"{LIFECYCLES[now >> 3 & 7]}",'
            f'"email":"{first.lower()}.{who % 100_000}@mail.example","plan":"{PLANS[now >> 6 & 3]}",'
            f'"balance":"{"-" if cents < 0 else ""}{abs(cents) // 100}.{abs(cents) % 100:02d}",'
            f'"profile":{{"name":"{first} {last}","address":{{"city":"{CITIES[who >> 10 & 7]}",'
            f'"postcode":"{who % 90_000 + 10_000}"}},"logins":{now >> 8 & 1023}}},'
            f'"labels":["{LABELS[now >> 18 & 7]}","{LABELS[who >> 18 & 7]}"],"note":"'
        ).encode()
        spread = self._record_bytes // 4 or 1
        room = self._record_bytes - spread // 2 + now % spread - len(head) - 2
        start = who % len(FILLER)
        return head + self._filler[start : start + max(0, room)].encode() + b'"}'

    def _event(self, id_: str, stamp_us: int, shown_us: int) -> bytes:
        what = crc32(f"{self._seed}{id_}".encode())
        # Most arrive within two minutes of what they tell of, one in sixteen hours later.
        late_us = what % 120 * SECOND_US * (240 if what >> 7 & 15 == 0 else 1)
        occurred_us = stamp_us - late_us
        run = (
            f'"run_id":"nightly-{rfc3339(occurred_us, SECOND_US)[:10]}",' if what >> 11 & 7 else ""
        )
        first, last = FIRST[what & 31], LAST[what >> 5 & 31]
        dataset, course = DATASETS[what >> 14 & 3], COURSES[what >> 16 & 7]
        return (
            f'{{"event_id":{quoted(id_)},"occurred_at":"{rfc3339(occurred_us, shown_us)}",'
            f'"received_at":"{rfc3339(stamp_us, shown_us)}","level":"{LEVELS[what >> 19 & 7]}",'
            f'"tags":{{"stage":"{STAGES[what >> 22 & 3]}",{run}"status":"{STATUSES[what >> 24 & 3]}"}},'
            f'"tenant":"{self._tenant}","dataset":"{dataset}","course":"{course}",'
            f'"message":"Row {what % 50_000} of {first} {last} <{first.lower()}.{what % 100_000}@mail.example> '
            f'in {course} was refused: birth date 19{what % 90 + 10}-02-30 is no date"}}'
        ).encode()
