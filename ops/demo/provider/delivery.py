"""How an answer leaves the server: whole, in halves around a hold, or spoilt by a fault."""

from __future__ import annotations

import asyncio
import zlib
from functools import lru_cache

from aiohttp import web

from .faults import Rule
from .holds import Hold, Holds

_HTML = b"<!doctype html><html><body><h1>We will be back soon</h1></body></html>"
_BLOCK = b" " * (1024 * 1024)


@lru_cache(maxsize=4)
def gzip_bomb(size_bytes: int) -> bytes:
    """Gzip of a JSON text of at least `size_bytes` blanks."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(_BLOCK) for _ in range(-(-size_bytes // len(_BLOCK)))]
    return b"".join([*parts, packer.compress(b'{"items":[]}'), packer.flush()])


async def instead(request: web.Request, fault: Rule) -> web.StreamResponse | None:
    """The answer that a fault puts in place of the right one; None when the right one is needed."""
    if fault.delay_s:
        await asyncio.sleep(fault.delay_s)
    if fault.kind == "status":
        body = fault.body.encode()
        return web.Response(
            status=fault.status,
            body=body,
            content_type=fault.content_type,
            headers=dict(fault.headers),
        )
    if fault.kind == "html":
        return web.Response(body=_HTML, content_type="text/html", headers=dict(fault.headers))
    if fault.kind == "gzip_bomb":
        packed = await asyncio.to_thread(gzip_bomb, fault.bomb_bytes)
        return web.Response(
            body=packed, content_type="application/json", headers={"Content-Encoding": "gzip"}
        )
    if fault.kind in ("close", "reset") and request.transport is not None:
        if fault.kind == "reset":
            request.transport.abort()
        else:
            request.transport.close()
        return web.Response()
    return None


async def cut(request: web.Request, answer: web.Response, fault: Rule) -> web.StreamResponse:
    """Sends the head and a share of the body, then ends the connection."""
    body = answer.body if isinstance(answer.body, bytes) else b""
    spoilt = web.StreamResponse(status=answer.status, headers=answer.headers)
    spoilt.headers.pop("Content-Length", None)
    if fault.chunked:
        spoilt.enable_chunked_encoding()
    else:
        spoilt.content_length = len(body)
    await spoilt.prepare(request)
    await spoilt.write(body[: int(len(body) * fault.keep)])
    if request.transport is not None:
        request.transport.close()
    return spoilt


async def around_hold(
    request: web.Request, answer: web.Response, holds: Holds, hold: Hold
) -> web.StreamResponse:
    """Sends half of the body, waits for the release, sends the rest."""
    body = answer.body if isinstance(answer.body, bytes) else b""
    halved = web.StreamResponse(status=answer.status, headers=answer.headers)
    halved.headers.pop("Content-Length", None)
    halved.content_length = len(body)
    await halved.prepare(request)
    await halved.write(body[: len(body) // 2])
    await holds.wait(hold, request.path_qs)
    await halved.write(body[len(body) // 2 :])
    await halved.write_eof()
    return halved
