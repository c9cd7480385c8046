"""The way out to a receiver over HTTP: one POST per event, several keys side by side.

Never follows a redirect, never keeps or shows what is answered, never lets a secret into a text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import aiohttp
from yarl import URL

from ingest.auth import Credential, Proof
from ingest.http import CONNECT_S, proxy_for
from ingest.responses import Answer
from ops.relay.answers import CREDENTIALS, Kind, Result, of_status
from ops.relay.event import Event
from schemas.definitions.mapping import PostSpec
from schemas.definitions.read_events import is_receiver
from schemas.definitions.secrets import Reference, Secrets, SecretUnavailable

_SIDE_BY_SIDE = 16
_READ_BYTES = 65_536
"""Of an answer, so that its connection can be used again; what is longer is cut off."""


class Receiver:
    """Posts the events of one mapping. Used by one thread. `give_up_s`: how long a batch may take."""

    batch = 128

    def __init__(
        self,
        mapping: str,
        spec: PostSpec,
        secrets: Secrets,
        *,
        give_up_s: float,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.mapping = mapping
        self._spec, self._secrets, self._now_us = spec, secrets, now_us
        self._answer_s = give_up_s / 2
        self._runner = asyncio.Runner()
        self._session: aiohttp.ClientSession | None = None
        self._credential = Credential(spec.auth, secrets, dict, _no_sign_in, time.monotonic, now_us)
        self._url, self._proof, self._refused = "", Proof(), False

    def prepare(self) -> Result | None:
        """Find out where to post and with what proof; why not, if a secret is not to be had.

        Outside of transactions: a command that gives a secret may take its time.
        """
        try:
            self._url = self._address()
            self._proof = self._runner.run(self._credential.proof())
        except SecretUnavailable as error:
            return Result(Kind.AWAY, str(error))
        if not is_receiver(self._url):
            return Result(Kind.AWAY, f"{self._spec.url} is no http(s) address without a user")
        return None

    def _address(self) -> str:
        url = self._spec.url
        return self._secrets.get(url) if isinstance(url, Reference) else url

    def idle(self) -> None:
        """Nothing to do."""

    def publish(self, events: Sequence[Event]) -> dict[int, Result]:
        """One attempt for each, until the receiver turns out to be away or the time is used up.

        Those that were not tried have no result.
        """
        return self._runner.run(self._publish(events))

    def close(self) -> None:
        if self._session is not None:
            self._runner.run(self._session.close())
        self._runner.close()

    async def _publish(self, events: Sequence[Event]) -> dict[int, Result]:
        results: dict[int, Result] = {}
        waiting, until = iter(events), time.monotonic() + self._answer_s
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_SIDE_BY_SIDE, len(events))):
                group.create_task(self._work(waiting, results, until))
        if self._refused:
            self._refused = False
            self._credential.refresh(self._proof)  # it may be out of date: resolved again
        return results

    async def _work(
        self, waiting: Iterator[Event], results: dict[int, Result], until: float
    ) -> None:
        for event in waiting:
            results[event.id] = await self._post(event)
            away = results[event.id].kind in (Kind.AWAY, Kind.GATEWAY)
            if away or time.monotonic() > until:
                return  # this many fewer at once, down to none

    async def _post(self, event: Event) -> Result:
        target = URL(self._url, encoded=True)
        if self._proof.params:
            target = target.update_query(dict(self._proof.params))
        headers = {**event.http_headers(), **self._proof.headers}
        try:
            async with (
                asyncio.timeout(self._answer_s),
                self._client().post(
                    target, data=event.body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                await answer.content.read(_READ_BYTES)
                self._refused = self._refused or answer.status in CREDENTIALS
                lower = {name.lower(): value for name, value in answer.headers.items()}
                return of_status(answer.status, lower, self._now_us())
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            return Result(Kind.AWAY, f"no connection to the receiver: {type(error).__name__}")
        except TimeoutError:
            return Result(Kind.FAULT, f"no answer of the receiver within {self._answer_s:g} s")
        except (aiohttp.ClientError, ConnectionError, OSError, ValueError) as error:
            return Result(Kind.FAULT, f"no whole answer of the receiver: {type(error).__name__}")

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # nobody reads what is answered, and some of it is a bomb
                headers={"User-Agent": "gapless"},
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=min(CONNECT_S, self._answer_s)
                ),
                proxy=proxy_for(self._url),
            )
        return self._session


async def _no_sign_in(path: str, body: object) -> Answer:
    raise AssertionError("no way to authenticate that the loader lets pass signs in")
