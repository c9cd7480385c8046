"""The edge to HTTP: one request, its whole body, within limits of time and size, within one origin.

Never follows a redirect by itself, never sends credentials to another origin, never grows without
bound whatever is sent. Retrying and judging are the callers' duty.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from ingest.bounds import FetchRefused as FetchRefused
from ingest.unanswered import unanswered

US = 1_000_000
REDIRECTS_MAX = 5
_CHUNK = 256 * 1024
# Not kept in the log: they identify a session or say nothing about the page.
_DROPPED_HEADERS = frozenset(
    {"set-cookie", "authorization", "www-authenticate", "connection", "transfer-encoding"}
)
CONNECT_S = 10.0
"""A server that does not even accept the connection in this time is not slow, it is away."""
# Providers forget to escape these in links; sent as they are they break the request line.
_NOT_IN_URLS = re.compile(r"[^\x21-\x7e]+")
_AGE_MAX_S = 2**31
"""What RFC 9111 lets a cache say at most; more would leave the range of times."""
HEADER_BYTES_MAX = 16_384
"""Longer than any header the parser lets pass, so that a token in one is never cut."""


class FetchFailed(Exception):
    """No whole answer came: a connection, a time-out, a body cut short. Trying again may help.

    `slow`: the time-out of the whole answer; a smaller question may help. `lasting`: trying again
    within seconds will hardly help. `unblocked_by`: what would, for people; "" where nobody knows.
    """

    def __init__(
        self, text: str, *, slow: bool = False, lasting: bool = False, unblocked_by: str = ""
    ) -> None:
        super().__init__(text)
        self.slow, self.lasting, self.unblocked_by = slow, lasting, unblocked_by


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole answer. Times in microseconds since the epoch, local clock; `server_time`: `Date` less `Age`."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    requested_at: int
    received_at: int
    server_time: int | None

    @property
    def elapsed_us(self) -> int:
        return self.received_at - self.requested_at


def origin_of(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port: what credentials may be sent to. Raises FetchRefused for no URL."""
    try:
        found = URL(url)
        return found.scheme, found.host, found.port  # a port out of range shows only here
    except ValueError:
        raise FetchRefused("a link that is no URL") from None


def _escaped(found: re.Match[str]) -> str:
    return quote(found[0], safe="")


def _nothing() -> None:
    """Every request may be sent."""


class Http:
    """Requests to one origin, `base_url`. Close it when done.

    `before_request` is called before each request that is sent, also for a redirect and for one that the
    client sends again because a kept connection was closed; it may raise.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float,
        body_max_bytes: int,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._origin = origin_of(self.base_url)
        if self._origin[0] not in ("http", "https") or not self._origin[1]:
            raise FetchRefused(f"base_url {self.base_url!r} is no http(s) URL")
        self._timeout_s, self._most, self._now_us = timeout_s, body_max_bytes, now_us
        self._session: aiohttp.ClientSession | None = None
        self.before_request: Callable[[], None] = _nothing

    def apart(self) -> Http:
        """The same origin and limits over connections of its own; to be closed for itself."""
        other = Http(
            self.base_url,
            timeout_s=self._timeout_s,
            body_max_bytes=self._most,
            now_us=self._now_us,
        )
        other.before_request = self.before_request
        return other

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def url_of(self, path: str) -> str:
        """A path of the definition, appended to the base URL as text."""
        return self.base_url + path

    def within(self, link: str, at: str | None = None, what: str = "the next link") -> str:
        """An absolute or relative link as an absolute one. Raises FetchRefused for another origin;
        `what` it is, for people.
        """
        try:
            target = URL(_NOT_IN_URLS.sub(_escaped, link), encoded=True)
            found = URL(at or self.base_url + "/").join(target)
            whole = str(found)
        except (ValueError, TypeError):
            raise FetchRefused(f"{what} is no URL") from None
        if origin_of(whole) != self._origin:
            raise FetchRefused(
                f"{what} leads to {found.scheme}://{found.host}:{found.port}, another origin "
                "than base_url; credentials are not sent there"
            )
        return whole

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        params: list[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
        body: object | None = None,
        form: Mapping[str, str] | None = None,
        proof_params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Fetched:
        """One answer, redirects within the origin followed. Raises FetchFailed or FetchRefused.

        `body` is sent as JSON, `form` as a form; `timeout_s` shortens the time-out, never raises it.
        """
        target = URL(url, encoded=True)
        proof = proof_params or {}
        asked = [*(params or []), *proof.items()]
        if asked:
            # a link may repeat the key that it was asked with; one is sent, and it is ours
            own = [(name, value) for name, value in target.query.items() if name not in proof]
            target = target.update_query([*own, *asked])
        content = _content(body, form)
        limit_s = self._timeout_s if timeout_s is None else min(self._timeout_s, timeout_s)
        for _ in range(REDIRECTS_MAX):
            fetched = await self._once(method, target, dict(headers or {}), content, limit_s)
            location = fetched.headers.get("location")
            if fetched.status not in (301, 302, 307, 308) or location is None:
                return fetched
            if method != "GET" and fetched.status in (301, 302):
                return fetched
            here = self.within(location, str(target), f"a redirect ({fetched.status})")
            target = URL(here, encoded=True)
        raise FetchRefused(f"more than {REDIRECTS_MAX} redirects")

    async def _once(
        self,
        method: str,
        target: URL,
        headers: dict[str, str],
        content: tuple[str, bytes] | None,
        timeout_s: float,
    ) -> Fetched:
        headers.setdefault("Accept", "application/json")
        headers.setdefault("User-Agent", "gapless")
        headers.setdefault("Cache-Control", "no-cache")
        data = None
        if content is not None:
            kind, data = content
            headers.setdefault("Content-Type", kind)
        requested_at = self._now_us()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client().request(
                    method, target, headers=headers, data=data, allow_redirects=False
                ) as answer,
            ):
                found = await self._body(answer)
                seen = _headers(answer.headers)
                return Fetched(
                    answer.status, seen, found, requested_at, self._now_us(), _server_time(seen)
                )
        except aiohttp.ConnectionTimeoutError:
            text = f"{_host(target)} accepts no connection within {CONNECT_S:g} s"
            help_ = "a `base_url` that is right, a firewall that lets this machine out, or the provider answering again"
            raise FetchFailed(text, unblocked_by=help_) from None
        except TimeoutError:
            text = f"no whole answer of {_host(target)} within {timeout_s:.3g} s"
            help_ = "the provider answering sooner; smaller pages; or a longer `limits.timeout`"
            raise FetchFailed(text, slow=True, unblocked_by=help_) from None
        except (aiohttp.ClientError, zlib.error, ConnectionError, OSError) as error:
            why = unanswered(error, target)
            raise FetchFailed(
                why.text, lasting=why.lasting, unblocked_by=why.unblocked_by
            ) from None
        except ValueError as error:
            raise FetchFailed(f"not a valid answer: {type(error).__name__}") from None

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        """The decoded body; a body cut short raises, whatever the status was."""
        parts: list[bytes] = []
        size = 0
        decoder = _decoder(answer.headers.get("Content-Encoding", ""))
        async for raw in answer.content.iter_chunked(_CHUNK):
            for part in decoder.feed(raw):
                size += len(part)
                if size > self._most:
                    raise FetchRefused(
                        f"the answer is larger than body_max, {self._most:,} bytes after "
                        "decompression; ask for smaller pages, or raise limits.body_max"
                    )
                parts.append(part)
        decoder.finish()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,  # decompressed below, a bounded piece at a time
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "gzip, deflate"},
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=min(CONNECT_S, self._timeout_s)
                ),
                proxy=proxy_for(self.base_url),
                middlewares=(self._sent,),
            )
        return self._session

    async def _sent(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Around each request as it goes out, so that none goes uncounted."""
        self.before_request()
        return await send(request)


def _host(url: URL) -> str:
    return url.host_port_subcomponent or "the provider"


def _content(body: object | None, form: Mapping[str, str] | None) -> tuple[str, bytes] | None:
    """Media type and bytes of what is sent."""
    if form is not None:
        return "application/x-www-form-urlencoded", urlencode(form).encode()
    return None if body is None else ("application/json", msgspec.json.encode(body))


def proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names; unlike aiohttp's `trust_env`, no password of a .netrc."""
    scheme, host, _ = origin_of(base_url)
    if host is None or proxy_bypass(host):
        return None
    return getproxies().get(scheme)


class _Plain:
    def feed(self, raw: bytes) -> Iterator[bytes]:
        yield raw

    def finish(self) -> None:
        """Nothing is open."""


class _Inflate:
    """gzip or deflate, a bounded piece at a time, so that a bomb is noticed before it explodes."""

    def __init__(self, window_bits: int) -> None:
        self._bits = window_bits
        self._inflater = zlib.decompressobj(window_bits)
        self._begun = False

    def feed(self, raw: bytes) -> Iterator[bytes]:
        if not raw:
            return
        if not self._begun and self._bits == zlib.MAX_WBITS and raw[0] & 0x0F != 8:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # deflate without its header
        self._begun = True
        while True:
            part = self._inflater.decompress(raw, _CHUNK)
            if part:
                yield part  # the caller counts before it asks for more
            raw = self._inflater.unconsumed_tail
            if self._inflater.eof:
                raw = self._inflater.unused_data
                if not raw:
                    return
                self._inflater = zlib.decompressobj(self._bits)  # gzip may have several members
            elif not raw and len(part) < _CHUNK:
                return

    def finish(self) -> None:
        if self._begun and not self._inflater.eof:
            raise zlib.error("the compressed body ends early")


def _decoder(encoding: str) -> _Plain | _Inflate:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name in ("gzip", "x-gzip"):
        return _Inflate(zlib.MAX_WBITS | 16)
    if name == "deflate":
        return _Inflate(zlib.MAX_WBITS)
    raise FetchRefused(f"the answer is encoded as {name[:20]!r}, which was not asked for")


def _headers(found: Mapping[str, str]) -> dict[str, str]:
    """Lower-case names; several values joined by commas; cookies dropped."""
    kept: dict[str, str] = {}
    for name, value in found.items():
        lower = name.lower()
        if lower in _DROPPED_HEADERS:
            continue
        value = _text(value)
        value = f"{kept[lower]}, {value}" if lower in kept else value
        kept[lower] = value[:HEADER_BYTES_MAX]
    return kept


def _text(value: str) -> str:
    """A header's value as text that can be stored; what is no UTF-8 is Latin-1, as HTTP says."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def _server_time(headers: Mapping[str, str]) -> int | None:
    """`Date` less `Age`: when the origin made the answer, not when a cache sent it."""
    try:
        made = parsedate_to_datetime(headers["date"]).timestamp()
        age = min(max(0, int(headers.get("age", "0").split(",")[0])), _AGE_MAX_S)
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None
    return int((made - age) * US)
