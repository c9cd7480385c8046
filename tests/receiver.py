"""A receiver of events over real HTTP: answers as a test says, and keeps what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = int | tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Received:
    """One POST: its path with the query, its headers with their names in lower case, its body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["idempotency-key"]


@dataclass
class Receiver:
    """What came, in order. `answer` decides the status, and headers; it may block."""

    answer: Callable[[Received], Reply] = lambda _: 204
    came: list[Received] = field(default_factory=list)
    url: str = ""


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port, until the end of the block."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(self.path, headers, body)
            found.came.append(received)
            reply = found.answer(received)
            status, more = reply if isinstance(reply, tuple) else (reply, {})
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests look at `came`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
