"""Keys of the log: readable, percent-encoded text, without personal data.

A page: `partition id / plan / scope / pass / page / part`; a mark has `mark` and its kind in the
last two places. A partition id has two or three parts itself, so keys are read from the right.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote

from schemas.records import Mark, Observation

_SAFE = "-._~:+@"
_MARK = "mark"


@dataclass(frozen=True, slots=True)
class PageKey:
    """What the key of a page says."""

    partition_id: str
    plan: str
    scope: str
    pass_: str
    page: int
    part: int


@dataclass(frozen=True, slots=True)
class MarkKey:
    """What the key of a mark says."""

    partition_id: str
    plan: str
    scope: str
    pass_: str
    kind: str


@lru_cache(maxsize=4_096)
def encode_part(text: str) -> str:
    """One part of a key or partition id; `/` and `%` never survive as themselves."""
    return quote(text, safe=_SAFE)


def partition_id(source: str, stream: str, tenant: str | None = None) -> str:
    """`source/stream` or `source/stream/tenant`: the unit of ownership, order and checkpointing."""
    parts = [source, stream] if tenant is None else [source, stream, tenant]
    return "/".join(encode_part(part) for part in parts)


def split_partition_id(text: str) -> tuple[str, str, str | None]:
    """Source, stream and tenant (None where the source has none)."""
    parts = [unquote(part) for part in text.split("/")]
    if len(parts) not in (2, 3) or not all(parts):
        raise ValueError(
            f"not a partition id: {text!r}; expected source/stream or source/stream/tenant"
        )
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


def run_id(schedule: str, occurrence_us: int) -> str:
    """`source/stream@2026-11-02T04:30:00Z`: one occurrence (microseconds, UTC) of a schedule."""
    moment = datetime.fromtimestamp(occurrence_us // 1_000_000, UTC)
    return f"{schedule}@{moment:%Y-%m-%dT%H:%M:%SZ}"


def page_key(observation: Observation) -> str:
    """The key of a page, written once: its pass is a fresh nonce."""
    o = observation
    return _join(o.partition_id, o.plan, o.scope, o.pass_, str(o.page), str(o.part))


def page_key_of(key: PageKey) -> str:
    """The text of a parsed page key."""
    return _join(key.partition_id, key.plan, key.scope, key.pass_, str(key.page), str(key.part))


def mark_key(mark: Mark) -> str:
    """The key of a mark. A cumulative `caught_up` has one key per plan, all others are unique.

    A snapshot is completed under one key, whichever pass does it: a broker's end may leave the
    mark of a pass without its checkpoint, and the pass made instead replaces that mark.
    """
    if mark.kind == "tick":
        return f"{mark.partition_id}/tick/-/-/{_MARK}/tick"
    scope, last = mark.scope, mark.passes[-1].pass_ if mark.passes else "-"
    if mark.kind == "caught_up":
        scope, last = "-", "-"
    elif mark.kind == "snapshot_complete":
        last = "-"
    return _join(mark.partition_id, mark.plan, scope, last, _MARK, mark.kind)


def tick_id(partition: int) -> str:
    """The partition id that ticks of a log partition carry; never a configured one."""
    return f"_gapless/{partition}"


def parse_key(key: str) -> PageKey | MarkKey:
    """What a key says. Raises ValueError for text that is no key."""
    parts = key.rsplit("/", 5)
    if len(parts) != 6 or "/" not in parts[0]:
        raise ValueError(f"not a key of the observation topic: {key!r}")
    owner, plan, scope, pass_ = (
        parts[0],
        unquote(parts[1]),
        unquote(parts[2]),
        unquote(parts[3]),
    )
    if parts[4] == _MARK:
        return MarkKey(owner, plan, scope, pass_, parts[5])
    try:
        return PageKey(owner, plan, scope, pass_, int(parts[4]), int(parts[5]))
    except ValueError:
        raise ValueError(f"not a key of the observation topic: {key!r}") from None


def _join(owner: str, *parts: str) -> str:
    return "/".join([owner, *(encode_part(part) for part in parts)])
