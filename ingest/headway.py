"""How a long poll gets on: pages and records so far, their rate, the share of its range, time left. Pure.

What is not known is None and never guessed: a listing has no share, and no time is left by an
unknown rate. Kept in the checkpoint, so it survives whoever reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from ingest.emission import Emission
from ingest.plans.ranges import coalesced, done_ranges, failed_ranges, to_us
from schemas.records import BY_TIME, Headway, Observation, PlanState, Sample

US = 1_000_000
SAMPLE_US = 60 * US
SAMPLES_KEPT = 5
"""The present rate is that of the last minutes: what came before them says little."""
SILENT_US = 180 * US
"""Nothing durable for so long: what the rate was is no longer what it is."""
LONG_S = 15.0
"""Shorter polls are over before anybody could follow them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How one plan's poll gets on. `since` and `written_at` in microseconds, local clock.

    `share`: of its range of the source's time, proven complete; from 0 to 1. `left_s`: until the
    range is complete, at the present speed.
    """

    plan: str
    since: int
    pages: int
    records: int
    elapsed_s: float
    pages_per_s: float | None = None
    records_per_s: float | None = None
    share: float | None = None
    left_s: float | None = None

    @property
    def long(self) -> bool:
        """Whether it goes on for long enough to be followed."""
        return self.elapsed_s >= LONG_S


def moved(
    known: Mapping[str, Headway],
    polled: Mapping[str, int | None],
    emissions: Iterable[Emission],
    now: int,
) -> dict[str, Headway]:
    """`known` after `emissions` of one partition id, which become durable `now`.

    `polled`: each plan's `polled_at` before them. A poll that is over leaves nothing behind.
    """
    found, before = dict(known), dict(polled)
    for emission in emissions:
        for name, plan in emission.state.plans.items():
            pages = [one for one in emission.observations if one.plan == name]
            headway = found.pop(name, None)
            if headway is None and pages:
                start = _start_of(pages[0]) if name in BY_TIME else None
                headway = _begun(pages[0].requested_at, start, before.get(name))
            if headway is not None and plan.polled_at == headway.polled_at:
                records = sum(len(one.records) for one in pages)
                found[name] = _after(headway, plan, bool(pages), records, now)
            before[name] = plan.polled_at
    return found


def _start_of(page: Observation) -> str | None:
    """Where its interval begins; None for a scope that is none."""
    start = page.scope.partition("~")[0]
    try:
        to_us(start)
    except ValueError:
        return None
    return start


def _begun(since: int, start: str | None, polled_at: int | None) -> Headway:
    return Headway(since=since, start=start, polled_at=polled_at, samples=[Sample(since, 0, 0, 0)])


def _after(headway: Headway, plan: PlanState, paged: bool, records: int, now: int) -> Headway:
    headway = replace(headway, pages=headway.pages + int(paged), records=headway.records + records)
    if headway.samples and now - headway.samples[-1].at < SAMPLE_US:
        return headway
    sample = Sample(now, headway.pages, headway.records, covered_us(plan, headway))
    return replace(headway, samples=[*headway.samples, sample][-SAMPLES_KEPT:])


def covered_us(plan: PlanState, headway: Headway) -> int:
    """How much of the source's time since the poll's start needs no more asking."""
    if headway.start is None or plan.complete_before is None:
        return 0
    start = to_us(headway.start)
    ranges = [(start, to_us(plan.complete_before)), *done_ranges(plan), *failed_ranges(plan)]
    return sum(max(0, end - max(first, start)) for first, end in coalesced(ranges))


def progress(
    name: str, headway: Headway, plan: PlanState, written_at: int, now: int, *, held: bool = False
) -> Progress:
    """How the poll gets on, as the checkpoint of `written_at` says it, seen `now` (microseconds).

    `held`: it is blocked or waits, so nothing is said of the time left.
    """
    silent = now - written_at >= SILENT_US
    base = headway.samples[0] if headway.samples else Sample(headway.since, 0, 0, 0)
    window_s = (written_at - base.at) / US
    known = window_s > 0 and not silent
    covered = covered_us(plan, headway)
    share, left_us = _range(headway, covered)
    speed = _speed(headway, base, covered, written_at) if known and not held else None
    left_s = None
    if speed is not None and left_us is not None:
        left_s = max(0.0, left_us / speed / US - max(0, now - written_at) / US)
    return Progress(
        plan=name,
        since=headway.since,
        pages=headway.pages,
        records=headway.records,
        elapsed_s=max(0.0, (now - headway.since) / US),
        pages_per_s=max(0, headway.pages - base.pages) / window_s if known else None,
        records_per_s=max(0, headway.records - base.records) / window_s if known else None,
        share=share,
        left_s=left_s,
    )


def _range(headway: Headway, covered: int) -> tuple[float | None, int | None]:
    """The share that is covered, and what is left of the range: it ends where the poll began."""
    if headway.start is None:
        return None, None
    whole = headway.since - to_us(headway.start)
    if whole <= 0:
        return None, None
    return min(1.0, covered / whole), max(0, whole - covered)


def _speed(headway: Headway, base: Sample, covered: int, at: int) -> float | None:
    """Source time covered in a unit of time: lately, else since the poll began; None: unknown."""
    for moment, before in ((base.at, base.covered_us), (headway.since, 0)):
        if at > moment and covered > before:
            return (covered - before) / (at - moment)
    return None
