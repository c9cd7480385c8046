"""A provider that costs next to nothing, so that a benchmark measures who reads it.

A process of its own: `python -m tests.benchmarks.cheap_server`. A page is one template of orders of
about 800 bytes, filled with their numbers. Tenants whose id begins with `idle` have no orders, those
with `busy` have five new ones whenever they are asked; all others have as many as told at the start.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import select
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.benchmarks.records import record

_ROOT = Path(__file__).parents[2]
_READY_S = 30.0
_BUSY_RECORDS = 5
_EMPTY = b'{"items":[],"next_page_token":null}'


class Pages:
    """The bodies. `per_tenant`: orders of an ordinary tenant."""

    def __init__(self, per_tenant: int) -> None:
        self._per_tenant = per_tenant
        dice = random.Random(1)
        self._orders = [
            record(dice, slot).replace(b"%", b"%%").replace(b"ord_%08d" % slot, b"ord_%08d")
            for slot in range(1_000)
        ]
        self._templates: dict[int, bytes] = {}
        self._busy = 0

    def body(self, tenant: str, first: int, size: int) -> bytes:
        """The page of `size` orders that begins with number `first`."""
        if tenant.startswith("idle"):
            return _EMPTY
        if tenant.startswith("busy"):
            self._busy += _BUSY_RECORDS
            return self._filled(self._busy, _BUSY_RECORDS, b"null")
        end = min(first + size, self._per_tenant)
        following = b'"%d"' % end if end < self._per_tenant else b"null"
        return self._filled(first, end - first, following)

    def _filled(self, first: int, count: int, following: bytes) -> bytes:
        template = self._templates.get(count)
        if template is None:
            items = b",".join(self._orders[:count])
            template = b'{"items":[' + items + b'],"next_page_token":%b}'
            self._templates[count] = template
        return template % (*range(first, first + count), following)


class _Connection(asyncio.Protocol):
    """Requests without a body, one after the other, on a connection that stays open."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._received = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            body = self._body(target)
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: %b\r\n"
                b"Content-Length: %d\r\n\r\n"
                % (_date(int(time.time())), len(body))
                + (b"" if method == "HEAD" else body)
            )

    def _body(self, target: str) -> bytes:
        parts = urlsplit(target)
        steps = parts.path.split("/")
        if len(steps) < 4:
            return b"{}"
        asked = parse_qs(parts.query)
        first, size = int(asked.get("page_token", ["0"])[0]), int(asked["limit"][0])
        return self._pages.body(steps[2], first, size)


def _date(now_s: int) -> bytes:
    return formatdate(now_s, usegmt=True).encode()


class CheapServer:
    """The running process; a context manager. `per_tenant`: orders of an ordinary tenant."""

    def __init__(self, per_tenant: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, f"--orders={per_tenant}"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,  # it ends with this pipe
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _READY_S)
        line = self._process.stdout.readline().decode().strip() if ready else ""
        if not line:
            self._process.kill()
            raise SystemExit(f"the server of the benchmark did not start within {_READY_S} s")
        self.url = line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()


async def _serve(per_tenant: int) -> None:
    pages, loop = Pages(per_tenant), asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(pages), "127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)  # until whoever started it is gone
    server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, required=True, help="of an ordinary tenant")
    asyncio.run(_serve(parser.parse_args().orders))
