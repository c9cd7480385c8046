"""The records of the benchmarks: orders of about 800 bytes as a provider prints them, in pages of 100.

Invented from a seed, so every run measures the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from schemas import keys
from schemas.definitions import load_folder
from schemas.definitions.load import Definitions
from schemas.records import Mark, Observation, PassRange

DEFINITIONS = Path(__file__).parent / "definitions"
TENANTS = tuple(f"t{number}" for number in range(1, 9))
PAGE_RECORDS = 100
LEAST = len(TENANTS) * PAGE_RECORDS
"""Records of one page of each tenant."""
_INTERVAL_PAGES = 50
_AT_US = 1_780_000_000_000_000
_NOTE = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod " * 4


def definitions() -> Definitions:
    """The source and the mapping of these records, through the loader."""
    return load_folder(DEFINITIONS).check()


def record(dice: random.Random, number: int, day: int = 2) -> bytes:
    """The order of this number in its state of a day in March (1 to 9): its revision."""
    order = {
        "id": f"ord_{number:08d}",
        "state": {"name": dice.choice(["open", "paid", "void"]), "by": "system"},
        "created_at": f"2024-03-01T08:12:31.{number % 1_000_000:06d}Z",
        "updated_at": f"2024-03-0{day}T08:12:{number % 60:02d}Z",
        "amount": {"total": round(dice.random() * 1000, 2), "currency": "EUR", "tax": 7.25},
        "customer": {"id": dice.randrange(10**9), "email": f"user{number}@example.org"},
        "lines": dice.randrange(10),
        "active": dice.random() < 0.5,
        "labels": ["a", "bb", "new-customer"],
        "reference": str(UUID(int=dice.getrandbits(128))),
        "note": _NOTE,
        "meta": {"source": "web", "address": "10.1.2.3"},
        "url": f"https://shop.example/orders/{number}",
    }
    return json.dumps(order, separators=(",", ":")).encode()


def log_of(count: int, day: int) -> Iterator[Observation | Mark]:
    """All orders in the state of a day, in no order of their ids: pages of tenants in turn.

    An order belongs to one tenant on every day. Every tenant's pages belong to intervals of 50 pages,
    each with the mark that completes it. `count` is a multiple of LEAST. No order stands where it does
    on another day, so that several logs may be applied to one database: a state from the very place of
    the stored one would be taken for that one, read again.
    """
    if count % LEAST:
        raise ValueError(f"{count} records make no whole pages of {len(TENANTS)} tenants")
    dice, owned = _placed(count, day)
    for at in range(count // PAGE_RECORDS):
        owner, turn = at % len(TENANTS), at // len(TENANTS)
        chosen = owned[owner][turn * PAGE_RECORDS : (turn + 1) * PAGE_RECORDS]
        interval, page = turn // _INTERVAL_PAGES, turn % _INTERVAL_PAGES + 1
        one = page_of(
            [record(dice, number, day) for number in chosen],
            tenant=TENANTS[owner], scope=_scope(day, interval), pass_=f"d{day}i{interval}",
            page=page,
        )  # fmt: skip
        yield one
        if page == _INTERVAL_PAGES:
            yield _complete(one)


def _placed(count: int, day: int) -> tuple[random.Random, list[list[int]]]:
    """The numbers of each tenant's orders in the order of that day's log; and its dice from there on."""
    days: list[list[list[int]]] = []
    for each in range(1, day + 1):
        dice = random.Random(each)
        owned = [list(range(number, count, len(TENANTS))) for number in range(len(TENANTS))]
        for at, numbers in enumerate(owned):
            dice.shuffle(numbers)
            _part(numbers, [earlier[at] for earlier in days])
        days.append(owned)
    return dice, days[-1]


def _part(numbers: list[int], earlier: list[list[int]]) -> None:
    """Move the few that stand where they did earlier on by one, until none does."""
    while clashes := [
        at for at, number in enumerate(numbers) if any(known[at] == number for known in earlier)
    ]:
        for at in clashes:
            to = (at + 1) % len(numbers)
            numbers[at], numbers[to] = numbers[to], numbers[at]


def page_of(
    records: list[bytes],
    *,
    tenant: str = TENANTS[0],
    scope: str = "a~b",
    pass_: str = "p",
    page: int = 1,
) -> Observation:
    """One observation with these records."""
    return Observation(
        partition_id=keys.partition_id("shop", "orders", tenant), plan="interval", scope=scope,
        pass_=pass_, page=page, reason="interval", method="GET",
        url="https://shop.example/v2/orders", definition_hash="h", status=200,
        requested_at=_AT_US, received_at=_AT_US + 200_000, records=records,
    )  # fmt: skip


def _scope(day: int, interval: int) -> str:
    """A minute of that day; there are as many as ten million records need."""
    of_day = datetime(2024, 3, day, tzinfo=UTC)
    start, end = (of_day + timedelta(minutes=minute) for minute in (interval, interval + 1))
    return f"{start:%Y-%m-%dT%H:%M:%S.%fZ}~{end:%Y-%m-%dT%H:%M:%S.%fZ}"


def _complete(last: Observation) -> Mark:
    start, end = last.scope.split("~")
    pages = PassRange(
        pass_=last.pass_, first=1, last=last.page, parts=last.page,
        records=last.page * PAGE_RECORDS,
    )  # fmt: skip
    return Mark(
        kind="interval_complete", partition_id=last.partition_id, plan=last.plan, scope=last.scope,
        start=start, end=end, passes=[pages], at=last.received_at,
    )  # fmt: skip
