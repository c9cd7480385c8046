"""From a whole answer to a plan's step and the observations that it wants logged.

Reads the answer as the definition says; what is no page raises, and the plan has not heard of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from ingest.decode import parsed
from ingest.exchange import Access, Got
from ingest.http import FetchRefused
from ingest.observe import Cut, Origin, cut, observations
from ingest.plans.cursor import CursorPlan
from ingest.plans.opaque import give, keep
from ingest.plans.protocol import Ask, Listing, Now, Page, Plan, Stall, Step
from ingest.plans.ranges import to_us
from ingest.reading import Read, empty_page, leads_into_records, next_of, page_of, parents_of
from ingest.requests import Request
from ingest.responses import Answer
from ingest.split import Part, Split, split
from schemas.definitions.paths import MISSING, Root
from schemas.definitions.source import CursorSpec, IntervalSpec, ParentSpec, PlanSpec, Turn
from schemas.records import MissingRecord, Observation

_SECOND_US = 1_000_000


class Stale(ValueError):
    """A cache answered with content from before the end of what was asked for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, how it was sent and what came."""

    plan: Plan
    spec: PlanSpec
    ask: Ask
    request: Request
    got: Got
    parent: ParentSpec | None = None


class Reader:
    """Reads the answers of one partition id."""

    def __init__(self, partition_id: str, access: Access, record_max_bytes: int) -> None:
        self._partition_id, self._access = partition_id, access
        self._record_max_bytes = record_max_bytes
        self._into: dict[str, bool] = {}

    def step(self, asked: Asked, source_epoch: int) -> tuple[Step, tuple[Observation, ...]]:
        """Raises NoRecords, Unsplittable, Stale, or FetchRefused for a link to another origin."""
        got = asked.got
        at = self._access.clock.now(got.fetched.received_at)
        if asked.ask.probe:
            return self._identified(asked, at), ()
        if got.empty:
            empty = empty_page(at, got.fetched.elapsed_us)
            if asked.ask.listing:
                # an error that says "no parents" never completes a snapshot either
                empty = Page(records=0, at=at, closed=True, listing=Listing(empty, ()))
            return asked.plan.take(asked.ask, empty), ()
        _refuse_stale(asked)
        steps = tuple(s for s in asked.spec.request.records.steps if isinstance(s, str | int))
        found = split(got.fetched.body, steps, asked.spec.request.read_as)
        logged = self._without_credentials(got.fetched.body, found)
        page = cut(self._origin(asked.spec), got, asked.request, logged)
        return self._page(asked, source_epoch, found, page, at)

    def unsplittable(
        self, asked: Asked, source_epoch: int
    ) -> tuple[Step, tuple[Observation, ...]] | None:
        """The whole body as one slot, if a header says where to go on; None: nothing does.

        Raises Unsplittable where something else that the body says is needed too.
        """
        got, pages = asked.got, asked.spec.request.pages
        if asked.ask.probe or asked.ask.listing or pages is None or pages.next is None:
            return None
        if pages.turn not in (Turn.TOKEN, Turn.LINK) or pages.next.root is not Root.HEADER:
            return None
        if next_of(got.answer, asked.spec) is None:
            return None
        body = got.fetched.body
        logged = self._without_credentials(body, Split(b"", [body]))
        page = cut(self._origin(asked.spec), got, asked.request, logged)
        why = MissingRecord(0, "unsplittable", len(body), hashlib.sha256(body).digest())
        one = Cut([Part(0, page.parts[0].records, [why])], b"", page.url, page.headers)
        at = self._access.clock.now(got.fetched.received_at)
        return self._page(asked, source_epoch, Split(b"", [body]), one, at)

    def _without_credentials(self, body: bytes, found: Split) -> Split:
        """What is logged of an answer. Its own paths are read from what came: a link may hold some."""
        scrubber = self._access.secrets.scrubber
        if scrubber.body(body) is body:
            return found
        return replace(found, records=[scrubber.body(record) for record in found.records])

    def _origin(self, spec: PlanSpec) -> Origin:
        scrubber = self._access.secrets.scrubber
        return Origin(self._partition_id, spec.definition_hash, self._record_max_bytes, scrubber)

    def _page(
        self, asked: Asked, source_epoch: int, found: Split, page: Cut, at: Now
    ) -> tuple[Step, tuple[Observation, ...]]:
        got, ask, spec = asked.got, asked.ask, asked.spec
        answer = self._answer(got, spec, found)
        following = self._following(spec, answer, got)
        read = Read(answer, found, at, len(page.parts), got.fetched.elapsed_us)
        seen = page_of(read, ask, spec, following)
        if ask.listing:
            assert asked.parent is not None
            listing = Listing(seen, parents_of(found, asked.parent, spec))
            seen = Page(records=0, at=at, elapsed_us=seen.elapsed_us, listing=listing)
        step = asked.plan.take(ask, seen)
        if not step.log:
            return step, ()
        logged = observations(
            self._origin(spec),
            ask,
            got,
            page,
            method=asked.request.method,
            source_epoch=source_epoch,
            next_token=following,
            as_of=self._access.clock.now(got.fetched.requested_at).server,
        )
        return step, logged

    def _answer(self, got: Got, spec: PlanSpec, found: Split) -> Answer:
        """The answer as its paths see it; the records are not decoded where none leads into them."""
        if spec.definition_hash not in self._into:
            self._into[spec.definition_hash] = leads_into_records(spec)
        answer = got.answer
        if self._into[spec.definition_hash] and answer.body is not None:
            return answer
        return Answer(answer.status, answer.headers, lambda: parsed(found.envelope))

    def _following(self, spec: PlanSpec, answer: Answer, got: Got) -> str | None:
        """The next token, or the next link made absolute, held to the origin, without secrets."""
        found = next_of(answer, spec)
        pages = spec.request.pages
        if found is None or pages is None or pages.turn is not Turn.LINK:
            return found
        if not isinstance(give(found), str):
            raise FetchRefused("the next link is no text")
        link = self._access.http.within(found, got.url)
        return self._access.secrets.scrubber.hidden(link)

    def _identified(self, asked: Asked, at: Now) -> Step:
        plan, spec, answer = asked.plan, asked.spec, asked.got.answer
        assert isinstance(plan, CursorPlan)
        assert isinstance(spec, CursorSpec)
        assert spec.identity is not None
        value = answer.value(spec.identity.value)
        head = MISSING if spec.identity.head is None else answer.value(spec.identity.head)
        if value is MISSING or value is None:
            why = "the identity probe's answer has no value at `identity.value`"
            return Step(asked.ask.state, stall=Stall(why, "correct `plan.cursor.identity`"))
        known_head = None if head is MISSING or head is None else keep(head)
        return plan.identified(asked.ask, keep(value), known_head, at)


def _refuse_stale(asked: Asked) -> None:
    """What a cache kept since before the window's end cannot show all of the window."""
    fetched, ask = asked.got.fetched, asked.ask
    if not ask.state.open or not (isinstance(asked.spec, IntervalSpec) or ask.listing):
        return
    if fetched.headers.get("age", "0") == "0" or fetched.server_time is None or ask.window is None:
        return
    end = to_us(ask.state.open[0].end)  # parents that came before it must be on the listing
    if isinstance(asked.spec, IntervalSpec) and not ask.listing:
        # The window may be wider than the interval by a granule; the content's second is cut off.
        end = ask.window[1] - 2 * asked.spec.granularity_us
    if fetched.server_time + _SECOND_US < end:
        raise Stale("a cache answered with content older than the interval's end")
