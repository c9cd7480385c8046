"""The HTTP edge against a real server that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from ingest.clock import SECOND_US, ServerClock
from ingest.http import Fetched, FetchFailed, FetchRefused, Http
from ingest.limits import Limiter
from ingest.pressure import RAISE_AFTER

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(
    handler: Handler, *, timeout_s: float = 5, most: int = 1_000_000
) -> AsyncIterator[Http]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    http = Http(f"http://127.0.0.1:{port}/v1", timeout_s=timeout_s, body_max_bytes=most)
    try:
        yield http
    finally:
        await http.close()
        await runner.cleanup()


def fetch(handler: Handler, path: str = "/x", **limits: float) -> Fetched:
    async def run() -> Fetched:
        async with server(
            handler, timeout_s=limits.get("timeout_s", 5), most=int(limits.get("most", 1_000_000))
        ) as http:
            return await http.fetch("GET", http.url_of(path))

    return asyncio.run(run())


def test_parameters_and_headers_arrive_as_they_are() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response(
            {
                "q": request.rel_url.raw_query_string,
                "path": request.rel_url.raw_path,
                "body": await request.text(),
                "h": request.headers.get("X-A"),
            }
        )

    async def run() -> Fetched:
        async with server(echo) as http:
            return await http.fetch(
                "POST",
                http.url_of("/a%2Fb?fixed=1"),
                params=[("token", "a+/=%2B"), ("token", "ü &")],
                headers={"X-A": "1"},
                body={"n": 1},
                proof_params={"key": "s"},
            )

    found = asyncio.run(run())
    assert found.body.decode() == (
        '{"q": "fixed=1&token=a%2B/%3D%252B&token=%C3%BC+%26&key=s", "path": "/v1/a%2Fb", '
        '"body": "{\\"n\\":1}", "h": "1"}'
    )
    assert found.server_time is not None
    assert abs(found.server_time - found.received_at) < 2 * SECOND_US


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw"])
def test_bodies_are_decompressed(encoding: str) -> None:
    text = b'{"items":[' + b"1," * 200_000 + b"1]}"
    raw = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(text[:100]) + gzip.compress(text[100:]),
        "deflate": zlib.compress(text),
        "raw": raw.compress(text) + raw.flush(),
    }[encoding]

    async def handler(request: web.Request) -> web.Response:
        name = "deflate" if encoding == "raw" else encoding
        return web.Response(body=packed, headers={"Content-Encoding": name})

    assert fetch(handler).body == text


def test_a_bomb_is_refused_before_it_explodes() -> None:
    packed = gzip.compress(b"0" * 200_000_000, 9)

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    with pytest.raises(FetchRefused, match="body_max"):
        fetch(handler)


@pytest.mark.parametrize("how", ["length", "chunked", "gzip"])
def test_a_body_cut_short_is_no_answer(how: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        if how == "length":
            answer.content_length = 1000
        elif how == "gzip":
            answer.headers["Content-Encoding"] = "gzip"
        else:
            answer.enable_chunked_encoding()
        await answer.prepare(request)
        await answer.write(gzip.compress(b"x" * 1000)[:-12] if how == "gzip" else b'{"items":[1')
        if how == "gzip":
            return answer
        assert request.transport is not None
        request.transport.close()
        return answer

    with pytest.raises(FetchFailed) as failed:
        fetch(handler)
    assert not failed.value.slow


def test_a_slow_answer_says_that_it_was_slow() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(3)
        return web.Response()

    with pytest.raises(FetchFailed) as failed:
        fetch(handler, timeout_s=0.2)
    assert failed.value.slow


def test_redirects_stay_within_the_origin() -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/v1/x":
            return web.Response(status=307, headers={"Location": "/v1/y?z=1"})
        return web.Response(text=request.path_qs)

    assert fetch(handler).body == b"/v1/y?z=1"

    async def abroad(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://127.0.0.2/steal"})

    with pytest.raises(FetchRefused, match="another origin"):
        fetch(abroad)

    async def loop(request: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": "/v1/x"})

    with pytest.raises(FetchRefused, match="redirects"):
        fetch(loop)


@pytest.mark.parametrize(
    "link",
    [
        "http://evil.example/next",
        "https://api.shop.example/v2",
        "//other.example/x",
        "http://api.shop.example:81/",
        "http://api.shop.example@evil.example/",
        "ftp://api.shop.example/",
    ],
)
def test_links_to_another_origin_are_refused(link: str) -> None:
    http = Http("http://api.shop.example/v2", timeout_s=1, body_max_bytes=1)
    with pytest.raises(FetchRefused, match="another origin"):
        http.within(link)


def test_links_within_the_origin() -> None:
    http = Http("https://api.shop.example/v2", timeout_s=1, body_max_bytes=1)
    assert http.within("https://api.shop.example:443/x?t=%2B") == "https://api.shop.example/x?t=%2B"
    assert http.within("/other?page=2") == "https://api.shop.example/other?page=2"


def test_what_cannot_stand_in_a_request_line_is_escaped() -> None:
    http = Http("https://api.shop.example/v2", timeout_s=1, body_max_bytes=1)
    link = "/x?t=a b\r\nX: y&u=\u00e9&v=%20"
    found = http.within(link)
    assert found == "https://api.shop.example/x?t=a%20b%0D%0AX:%20y&u=%C3%A9&v=%20"


def test_headers_are_text_that_can_be_stored() -> None:
    async def main() -> Fetched:
        async def raw(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Odd: caf\xe9 \xff\r\nX-Utf: \xc3\xa9\r\n"
                b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nAge: " + b"9" * 400 + b"\r\n\r\n{}"
            )
            await writer.drain()
            writer.close()

        listening = await asyncio.start_server(raw, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        http = Http(f"http://127.0.0.1:{port}", timeout_s=5, body_max_bytes=100)
        async with listening:
            found = await http.fetch("GET", http.url_of("/x"))
        await http.close()
        return found

    found = asyncio.run(main())
    assert found.headers["x-odd"] == "caf\u00e9 \u00ff"
    assert found.headers["x-utf"] == "\u00e9"
    assert found.server_time is not None and abs(found.server_time) < 2**62


def test_cookies_are_dropped_and_a_token_in_a_header_stays_whole() -> None:
    async def handler(request: web.Request) -> web.Response:
        answer = web.Response(headers={"Next-Page": "x" * 4096})
        answer.set_cookie("session", "secret")
        return answer

    headers = fetch(handler).headers
    assert "set-cookie" not in headers
    assert headers["next-page"] == "x" * 4096


def test_the_servers_clock_is_never_believed_to_be_ahead() -> None:
    clock = ServerClock(slack_us=5 * SECOND_US)
    assert not clock.known
    assert clock.now(100 * SECOND_US).server == 95 * SECOND_US
    # the server is exactly one hour ahead; Date is cut to whole seconds
    hour = 3600 * SECOND_US
    for local in range(0, 10 * SECOND_US, 730_000):
        made = local + hour + 200_000
        clock.observe(local, local + 300_000, made - made % SECOND_US)
        now = clock.now(local + 300_000)
        assert now.server <= local + 300_000 + hour <= now.server_max
    assert now.server >= local + hour - 2 * SECOND_US


def test_a_throttled_credential_slows_down_and_recovers() -> None:
    async def run() -> None:
        limiter = Limiter(None, 4, asyncio.get_running_loop().time)
        limiter.throttled(0.05)
        assert limiter.allowed == 2
        begun = asyncio.get_running_loop().time()
        async with limiter.turn():
            assert asyncio.get_running_loop().time() - begun >= 0.04
        for _ in range(RAISE_AFTER):
            limiter.answered()
        assert limiter.allowed == 3

    asyncio.run(run())


def test_never_more_at_once_than_allowed() -> None:
    running = most = 0

    async def one(limiter: Limiter) -> None:
        nonlocal running, most
        async with limiter.turn():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    async def run() -> None:
        limiter = Limiter(None, 3, asyncio.get_running_loop().time)
        await asyncio.gather(*(one(limiter) for _ in range(30)))

    asyncio.run(run())
    assert most == 3


def test_a_request_that_the_client_sends_again_is_counted() -> None:
    """It repeats a GET by itself where a kept connection was closed under it."""
    seen, counted = list[int](), list[int]()

    async def closing(request: web.Request) -> web.Response:
        seen.append(1)
        if len(seen) == 2:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({})

    async def run() -> None:
        async with server(closing) as http:
            http.before_request = lambda: counted.append(1)
            for _ in range(2):
                assert (await http.fetch("GET", http.url_of("/x"))).status == 200

    asyncio.run(run())
    assert len(counted) == len(seen) == 3
