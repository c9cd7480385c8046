"""The edge: a question becomes requests as ingest would send them, and the answer what is seen of it.

Keeps limits, retries and error rules of the source; sends GET, or the POST that the definition
declares, and nothing else. Reduces every record to an id, a time and a fingerprint at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ingest.decode import parsed
from ingest.exchange import Access, Exchange, Got, WaitUntil
from ingest.http import FetchRefused
from ingest.plans.opaque import keep
from ingest.plans.protocol import Ask, Denied, Refusal, Stall
from ingest.reading import Read, finder, next_of, page_of
from ingest.requests import Request, placeholder_values, request_for
from ingest.split import NoRecords, Split, Unsplittable, split
from ops.probe.model import Answer, Away, NotLetIn, Question, Refused, Row, Sight
from ops.probe.notation import fine_time, shown_unit
from ops.probe.tombstones import says_gone
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.paths import MISSING
from schemas.definitions.secrets import SecretUnavailable
from schemas.definitions.source import IntervalSpec, PlanSpec, StreamSpec, Tenant, Turn
from schemas.definitions.templates import RenderError
from schemas.definitions.times import RFC3339, TimeFault, time_reader
from schemas.records import PlanState


class Asker:
    """Asks for one tenant of one stream; `mappings`: those of the stream."""

    def __init__(
        self,
        stream: StreamSpec,
        tenant: Tenant | None,
        access: Access,
        mappings: Sequence[MappingSpec],
    ) -> None:
        self._stream, self._tenant, self._access = stream, tenant, access
        self._mappings = mappings
        self._apart: Access | None = None
        self._let_in = False

    async def close(self) -> None:
        """Ends the connections of its own; those of `access` are the caller's."""
        if self._apart is not None:
            await self._apart.http.close()

    async def ask(self, question: Question) -> Answer:
        """Raises Away or NotLetIn, or what `before_request` raises: then no more may be asked."""
        spec = self._stream.plan(question.plan)
        assert spec is not None
        access = self._access_of(question)
        asked = _as_ask(question)
        try:
            values = placeholder_values(asked, spec, self._tenant, access.secrets.get)
            request = request_for(asked, spec, _fine(question, spec, values), access.secrets.get)
        except (RenderError, ValueError, SecretUnavailable) as error:
            return Refused(self._scrubbed(str(error)))
        return await self._exchanged(request, spec, asked, access)

    async def _exchanged(
        self, request: Request, spec: PlanSpec, asked: Ask, access: Access
    ) -> Answer:
        exchange = Exchange(access, request, spec.request.errors, can_split=False, sole=True)
        outcome = await exchange.run()
        if isinstance(outcome, WaitUntil):
            raise Away(f"the provider's leave to go on: {outcome.why}")
        if isinstance(outcome, Stall):
            if outcome.passing:  # the provider is away: nothing else would have an answer
                raise Away(f"an answer: {outcome.reason}")
            self._give_up_if_denied(outcome)
            return Refused(outcome.reason)
        if isinstance(outcome, Refusal):
            return Refused(_REFUSALS[outcome], known=True)
        if outcome.empty:
            return Refused("an error rule treats the answer as empty", known=True)
        self._let_in = True
        try:
            return self._sight(outcome, spec, asked, access)
        except (NoRecords, Unsplittable, FetchRefused) as error:
            return Refused(self._scrubbed(f"the answer is not a page: {error}"))

    def _give_up_if_denied(self, stall: Stall) -> None:
        """Behind answers a 403 may mean the window; before any it means who asks, or the path."""
        whole = stall.denied is Denied.CREDENTIALS
        if whole or (stall.denied is not None and not self._let_in):
            raise NotLetIn(stall.reason, stall.unblocked_by, whole=whole)

    def _sight(self, got: Got, spec: PlanSpec, asked: Ask, access: Access) -> Sight:
        steps = tuple(s for s in spec.request.records.steps if isinstance(s, str | int))
        found = split(got.fetched.body, steps, spec.request.read_as)
        following = next_of(got.answer, spec)
        pages = spec.request.pages
        if following is not None and pages is not None and pages.turn is Turn.LINK:
            following = access.http.within(following, got.url)
        at = access.clock.now(got.fetched.received_at)
        read = Read(got.answer, found, at, 1, got.fetched.elapsed_us)
        return Sight(
            rows=self._rows(found, spec),
            page=page_of(read, asked, spec, following),
            sent=got.fetched.requested_at,
            received=got.fetched.received_at,
            server_time=got.fetched.server_time,
        )

    def _rows(self, found: Split, spec: PlanSpec) -> tuple[Row, ...]:
        find_id, read_time = finder(spec.request.id.steps), _time_reader(spec)
        rows = []
        for raw in found.records:
            record = _value(raw)
            name, content = find_id(raw), hash(raw)
            time, unit = read_time(raw)
            rows.append(
                Row(
                    keep(name) if name is not MISSING and name is not None else str(content),
                    time,
                    unit,
                    content,
                    says_gone(record, spec.plan, self._mappings),
                )
            )
        return tuple(rows)

    def _access_of(self, question: Question) -> Access:
        if not question.apart:
            return self._access
        if self._apart is None:
            self._apart = replace(self._access, http=self._access.http.apart())
        return self._apart

    def _scrubbed(self, text: str) -> str:
        return self._access.secrets.scrubber.text(text)


_ENDS = ("start", "end", "after.time", "until")
_REFUSALS = {
    Refusal.TOKEN_EXPIRED: "the provider says that the token is gone",
    Refusal.SPLIT: "the provider wants smaller windows",
    Refusal.GAP: "the provider has this stretch no more",
    Refusal.SLOW: "the answer took too long",
}


def _as_ask(question: Question) -> Ask:
    values = question.values
    if question.fine is not None:
        values = {n: v for n, v in values.items() if n not in _times(question)}
    return Ask(
        plan=question.plan,
        state=PlanState(definition_hash=""),
        scope="probe",
        pass_="probe",
        page=1,
        reason="probe",
        values=values,
        link=question.link,
    )


def _fine(question: Question, spec: PlanSpec, values: dict[str, object]) -> dict[str, object]:
    """Times written finer than the format does; everything else as ever."""
    if question.fine is None or not isinstance(spec, IntervalSpec):
        return values
    fine = {n: fine_time(v, spec.format, question.fine) for n, v in _times(question).items()}
    return {**values, **fine}


def _times(question: Question) -> dict[str, int]:
    """The ends that are times, and no position of a record."""
    values = question.values.items()
    return {name: value for name, value in values if name in _ENDS and isinstance(value, int)}


def _time_reader(spec: PlanSpec) -> Callable[[bytes], tuple[int | None, int]]:
    """Reads a record's time and the step in which it is shown.

    A provider may show times otherwise than it is asked for them; ISO 8601 is read in any case.
    """
    if not isinstance(spec, IntervalSpec):
        return lambda raw: (None, 1)
    find_time = finder(spec.time.steps)
    notations = [(one, time_reader(one, spec.zone)) for one in (spec.format, RFC3339)]
    unit_us = spec.format.unit_us

    def read_time(raw: bytes) -> tuple[int | None, int]:
        value = find_time(raw)
        if value is MISSING or value is None:
            return None, unit_us
        for notation, read in notations:
            try:
                return read(value), shown_unit(value, notation)
            except TimeFault:
                continue
        return None, unit_us

    return read_time


def _value(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return parsed(raw.decode("utf-8", "replace").encode())
