"""A local HTTP server in this process that lets a stand-in of a provider answer.

It refuses chosen questions as the provider does when it is asked too much, and tells the time by a
clock that tests may set forward.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any, Protocol

from aiohttp import web

_TODAY = datetime.now(UTC).replace(microsecond=0)
PAGE = 2
"""The most records that a stand-in gives at once, so that a few records make several pages."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question. `path` as it was sent, `query` decoded, header names in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any
    origin: str

    def first(self, name: str) -> str | None:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back as JSON."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Upstream(Protocol):
    """A stand-in of one provider."""

    def answer(self, asked: Asked) -> Answer:
        """What the provider answers to this question."""
        ...

    def throttled(self) -> Answer:
        """What it answers when it is asked too much; asking again at once is allowed."""
        ...


@dataclass
class Served:
    """The running server. `refuse`: numbers of the questions, from 1, that are throttled."""

    upstream: Upstream
    refuse: frozenset[int] = frozenset()
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    refused: int = 0
    ahead_s: float = 0.0

    def now_us(self) -> int:
        """The time that this server and its reader go by, microseconds since 1970."""
        return time.time_ns() // 1000 + int(self.ahead_s * 1_000_000)

    async def handle(self, request: web.Request) -> web.Response:
        date = {"Date": formatdate(self.now_us() / 1_000_000, usegmt=True)}
        if request.method == "HEAD":
            return web.Response(headers=date)
        body = await request.read()
        query = {name: request.query.getall(name) for name in request.query}
        asked = Asked(
            request.method,
            request.rel_url.raw_path,
            query,
            {name.lower(): value for name, value in request.headers.items()},
            json.loads(body) if body else None,
            self.url,
        )
        self.asked.append(asked)
        answer = self.upstream.answer(asked)
        if len(self.asked) in self.refuse:
            self.refused += 1
            answer = self.upstream.throttled()
        return web.json_response(
            answer.body, status=answer.status, headers={**date, **answer.headers}
        )


@asynccontextmanager
async def serving(upstream: Upstream, refuse: frozenset[int]) -> AsyncIterator[Served]:
    """Serve until the block ends."""
    served = Served(upstream, refuse)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()


def ago(**length: float) -> datetime:
    """A whole second so long before this module was read, always the same: `ago(days=2)`."""
    return _TODAY - timedelta(**length)


def iso(moment: datetime, timespec: str = "seconds") -> str:
    """As most providers write times: `2024-01-01T00:00:00Z`."""
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def stored(moment: datetime) -> str:
    """As a mapped row is shown."""
    return iso(moment, "microseconds")
