"""What one plan would ask from its beginning on, and why: its own questions, with made-up answers. Pure.

The plan itself decides what comes next; only the answers are invented: a full page, then a last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ingest.plans.cursor import CursorPlan
from ingest.plans.opaque import keep
from ingest.plans.protocol import Ask, Listing, Now, Page, Plan
from ingest.plans.reach import AUTO_WIDTH_US
from ingest.pollers import plans_of
from ingest.requests import says
from ops.check.question import next_ask, written
from schemas.definitions.durations import format_duration
from schemas.definitions.programs import ProgramSpec, SingerSpec
from schemas.definitions.source import (
    Bounds,
    CursorSpec,
    End,
    IntervalSpec,
    KeysetSpec,
    Order,
    PlanSpec,
    SnapshotSpec,
    StreamSpec,
    Tenant,
    Turn,
)
from schemas.definitions.templates import RenderError
from schemas.definitions.times import print_time
from schemas.records import PlanState

_TIMEOUT_S = 30.0
_QUESTIONS = 5
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Reason:
    """One question of a plan, and why it is asked; `question` is empty for what is true of all."""

    plan: str
    question: str
    why: str


def explained(stream: StreamSpec, tenant: Tenant | None, now_us: int) -> list[Reason]:
    """The first questions of every plan of a stream, changes first, and what follows them."""
    found: list[Reason] = []
    if stream.program is not None:
        found.append(Reason(stream.program.plan, "", _of_program(stream.program)))
    for plan in plans_of(stream, tenant, _TIMEOUT_S):
        spec = stream.plan(plan.name)
        assert spec is not None
        try:
            found += _Explained(plan, spec, stream, tenant, Now(now_us, now_us, now_us)).reasons()
        except (RenderError, ValueError) as error:
            found.append(Reason(plan.name, "", str(error)))
    return found


def _of_program(program: ProgramSpec) -> str:
    if isinstance(program, SingerSpec):
        return (
            f"{program.command[0]} runs from its last stored STATE to its end and says itself what"
            " it asks; a STATE counts once all records before it are stored."
        )
    return (
        f"{program.path} says what is asked, one question after the other; its state counts once"
        " the records that it gave back before are stored."
    )


class _Explained:
    """One plan, asked and answered."""

    def __init__(
        self, plan: Plan, spec: PlanSpec, stream: StreamSpec, tenant: Tenant | None, now: Now
    ) -> None:
        self._plan, self._spec, self._stream = plan, spec, stream
        self._tenant, self._now = tenant, now

    def reasons(self) -> Iterator[Reason]:
        before: Ask | None = None
        state = self._plan.begin(self._plan.adopt(None), self._now)
        for _ in range(_QUESTIONS):
            ask = next_ask(self._plan, state, self._now)
            if ask is None:
                break
            why = self._why(ask, before)
            asked = self._stream.asked(self._plan.name, listing=ask.listing)
            yield Reason(self._plan.name, written(ask, asked, self._tenant), why)
            first = before is None or before.probe or before.listing
            if before is not None and not first and ask.scope != before.scope:
                break  # the second window: from here on it goes the same way
            state = self._answered(ask, last=not first)
            before = ask
        yield Reason(self._plan.name, "", " ".join(self._after()))

    def _answered(self, ask: Ask, last: bool) -> PlanState:
        if ask.probe:
            assert isinstance(self._plan, CursorPlan)
            return self._plan.identified(ask, keep("{identity}"), None, self._now).state
        if ask.listing:
            return self._plan.take(ask, self._parents(first=ask.page == 1 and not last)).state
        cursor = keep("{cursor}") if isinstance(self._spec, CursorSpec) else None
        if last:
            page = Page(records=0, at=self._now, ended=True, cursor=cursor)
        else:
            link = self._turn is Turn.LINK
            following = "(the link of the answer)" if link else keep("{token}")
            page = Page(
                records=1,
                at=self._now,
                next=following,
                cursor=cursor,
                last_id=keep("{last.id}"),
                read_ids=lambda: [1],
                read_compared=lambda: [1],
                **self._place(ask),
            )
        return self._plan.take(ask, page).state

    def _place(self, ask: Ask) -> dict[str, Any]:
        """Where the made-up record of a keyset stands: a step behind where the question begins."""
        spec = self._spec
        if not isinstance(spec, KeysetSpec) or ask.window is None:
            return {}
        at = ask.window[0] + spec.granularity_us
        shown = print_time(at, spec.format, spec.zone)
        return {"times": [at], "positions": [(keep(shown), keep("{after.id}"))]}

    def _parents(self, *, first: bool) -> Page:
        """A listing with one parent, then one without."""
        parent = self._stream.parent
        assert parent is not None
        shown = Page(records=int(first), at=self._now, ended=True, last_id=keep("{last.id}"))
        fields = {name: f"{{parent.{name}}}" for name in parent.fields}
        parents = [("0" * 16, fields)] if first else []
        return Page(records=0, at=self._now, listing=Listing(shown, parents))

    @property
    def _turn(self) -> Turn | None:
        pages = self._spec.request.pages
        return None if pages is None else pages.turn

    # Why

    def _why(self, ask: Ask, before: Ask | None) -> str:
        if ask.probe:
            return "Whether the collection is the one that the cursor belongs to."
        if ask.listing:
            return self._listed(before)
        if before is not None and before.listing:
            return "What is below a parent: so for each of the listing, page by page."
        if before is None or before.probe:
            return " ".join(self._first())
        if ask.page > 1:
            return f"The next page, {self._until()}."
        if ask.scope == before.scope:
            return (
                "If several pages were turned: they may have shifted meanwhile, so they are turned"
                " again until one walk finds nothing new."
            )
        return "When this window is searched to its end: the next one."

    def _listed(self, before: Ask | None) -> str:
        parent = self._stream.parent
        assert parent is not None
        if before is not None:
            return "When all parents of the page are done: what the listing shows next."
        which = f"Which parents there are: the listing of {parent.stream}."
        if parent.changed is not None and self._plan.name != "snapshot":
            which = (
                f"Which parents have changed since: the changes of {parent.stream} (`on: changed`)."
            )
        return " ".join([which, *self._first()])

    def _first(self) -> Iterator[str]:
        if isinstance(self._spec, IntervalSpec):
            yield from _beginning(self._spec, self._stream, self._now.server)
        elif self._plan.name == "cursor":
            yield "The feed from its beginning: no cursor is known yet."
        elif self._plan.name == "snapshot":
            yield "The whole collection, once the changes have been asked for the first time."
        else:
            yield "Its first question."

    def _until(self) -> str:
        pages = self._spec.request.pages
        assert pages is not None
        if not isinstance(pages.end, End):
            return "until the answer is as `pages.end` says"
        where = pages.next.text if pages.next is not None else "pages.next"
        return {
            End.NO_NEXT: f"as long as the answer has {where}",
            End.EMPTY: "until one is empty; a short one is not the last",
            End.NOTHING_NEW: "until one has no id that the one before lacked",
            End.TOTAL: "until as many records came as `total` says",
        }[pages.end]

    def _after(self) -> Iterator[str]:
        spec, schedule = self._spec, self._stream.schedule
        every = f"{_length(int(schedule.every_s * _US))} later"
        if schedule.occurrences is not None:
            cron, zone = schedule.occurrences.cron.text, schedule.occurrences.zone
            every = f"When the next run is over (`{cron}` in {zone})"
        if isinstance(spec, IntervalSpec):
            settle = "" if spec.settle_us is None else f" less {_length(spec.settle_us)} (`settle`)"
            going = "It reads" if isinstance(spec, KeysetSpec) else "Windows follow each other"
            yield f"{going} up to the provider's clock{settle}."
            if spec.lookback_us is not None:
                yield f"{every}: from there on, and the {_length(spec.lookback_us)} before"
                yield "again for what arrives late (`lookback`)."
            else:
                yield f"{every}: from there on."
        elif isinstance(spec, SnapshotSpec):
            yield f"Again after {_length(int(spec.every_s * _US))}."
            one = spec.listings_needed == 1
            proof = "a complete listing lacks" if one else "two complete listings in a row lack"
            yield f"What {proof} counts as deleted, unless the mapping says `absent: keep`."
        else:
            yield f"{every}: from where the last answer left it."


def _beginning(spec: IntervalSpec, stream: StreamSpec, now_us: int) -> Iterator[str]:
    if spec.start_us is not None:
        yield "The past begins at `start`."
    elif stream.upstream_retention_s is not None:
        kept = _length(int(stream.upstream_retention_s * _US))
        yield f"The provider keeps {kept} (`upstream_retention`): the past begins there."
    if isinstance(spec, KeysetSpec):
        yield "From there on behind the last record of each page, by time and id, which is checked."
    elif says(spec, "start") or says(spec, "end"):
        width = _length(spec.width_us or AUTO_WIDTH_US)
        yield f"One window of {width} at most, wider while answers stay small, narrower if not."
        if not says(spec, "end"):
            yield _endless(spec, stream, now_us)
    else:
        yield "All of it is one window: the request says neither of its ends."
    yield from _ends(spec)


def _endless(spec: IntervalSpec, stream: StreamSpec, now_us: int) -> str:
    """What it costs that a window's end cannot be asked for, and what would cost less."""
    if spec.order is Order.ASC:
        return "No `{end}` is sent: pages are turned until one is behind the end of its window."
    begins = spec.start_us
    if begins is None and stream.upstream_retention_s is not None:
        begins = now_us - int(stream.upstream_retention_s * _US)
    if begins is None or (spec.width_us or AUTO_WIDTH_US) >= now_us - begins:
        return "No `{end}` is sent: pages are turned to the end of all; one window holds the past."
    return (
        "No `{end}` is sent: every window is asked for all that is behind its start, so the newest"
        " records come once for each. Declare `order: asc` and ask for it, if the provider can sort"
        " so; else a `width` that is longer than the past: then one walk reads it."
    )


def _ends(spec: IntervalSpec) -> Iterator[str]:
    step = _length(spec.granularity_us)
    if spec.bounds is Bounds.UNKNOWN:
        yield f"Its ends are asked {step} wider: `bounds` is not declared."
    elif spec.bounds in (Bounds.OPEN, Bounds.OPEN_CLOSED):
        yield f"Its start is asked {step} earlier: `bounds` says that it is not included."
    if isinstance(spec, KeysetSpec):
        return
    if spec.order is Order.ASC:
        yield "Records come oldest first (`order`), which is checked."
    elif spec.order is Order.DESC:
        yield "Records come newest first (`order`), which is checked."


def _length(us: int) -> str:
    return format_duration(us)
