"""One page of a stream, asked as ingest would ask it, and thrown away.

Uses ingest's own fetch side with an `emit` that stops at the first page; nothing is written.
Stretches without records are passed over, up to a limit.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ingest.emission import Emission
from ingest.pollers import Pollers, now_us
from ops.status.words import moment
from schemas.definitions.load import Definitions
from schemas.failpoints import none
from schemas.records import BY_TIME, Observation
from schemas.routing import route
from schemas.settings import Settings

_EMPTY_MAX = 30


@dataclass(frozen=True, slots=True)
class FirstPage:
    """The parts of the first page with records, if there was one; `empty`: how many stretches of time
    without records were passed over.

    `trouble`: why the provider gave no page.
    """

    observations: tuple[Observation, ...] = ()
    empty: int = 0
    trouble: str | None = None
    unblocked_by: str | None = None


class _Enough(Exception):
    """The first answer that tells something is here."""


def first_page(
    settings: Settings, definitions: Definitions, partition_id: str, timeout_s: float = 60.0
) -> FirstPage:
    """Ask the provider until there is a page with records. Never raises for what it answers."""
    return asyncio.run(_ask(settings, definitions, partition_id, timeout_s))


async def _ask(
    settings: Settings, definitions: Definitions, partition_id: str, timeout_s: float
) -> FirstPage:
    emitted: list[Emission] = []

    async def keep(emission: Emission) -> None:
        emitted.append(emission)
        state = emission.state
        if emission.observations or state.blocked or state.not_before or len(emitted) >= _EMPTY_MAX:
            raise _Enough

    pollers = Pollers(definitions, settings, none, one_shot=True)
    try:
        poller = pollers.of(route(partition_id, settings.partitions))[partition_id]
        poller.restore(None)
        await asyncio.wait_for(poller.poll(keep), timeout_s)
    except _Enough:
        pass
    except TimeoutError:
        return FirstPage(trouble=f"no answer within {timeout_s:.0f} s")
    finally:
        await pollers.close()
    return _found(emitted, now_us())


def _found(emitted: list[Emission], now: int) -> FirstPage:
    if not emitted:
        return FirstPage(trouble="nothing is due: the stream's past has not begun")
    last = emitted[-1]
    # each says at once how far it came, if only as `caught_up`; a listing or a feed has no stretches
    before = (one for one in emitted if not one.observations)
    empty = sum(any(mark.plan in BY_TIME for mark in one.marks) for one in before)
    if last.observations:
        return FirstPage(last.observations, empty)
    if last.state.blocked is not None:
        blocked = last.state.blocked
        return FirstPage(trouble=blocked.reason, unblocked_by=blocked.unblocked_by)
    if last.state.not_before is not None:
        until = moment(last.state.not_before, now)
        return FirstPage(trouble=f"the provider asks to wait until {until}; try again then")
    return FirstPage(empty=empty)
