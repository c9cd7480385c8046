"""What is said of a provider that gives no whole answer: its host, what happened, what would help."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import zlib
from pathlib import Path

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from ingest.exchange import Access, Exchange
from ingest.http import FetchFailed, Http
from ingest.plans.protocol import Stall
from ingest.pollers import Pollers
from ingest.requests import Request
from ingest.unanswered import unanswered
from ops.stack.folder import free_port
from schemas.definitions.load import load_folder
from schemas.failpoints import none
from schemas.settings import Settings

ASKED = URL("https://api.shop.example/v2/orders?key=s3cr3t-value")
KEY = ConnectionKey("api.shop.example", 443, True, True, None, None, None)


def certificate(code: int, message: str = "") -> Exception:
    fault = ssl.SSLCertVerificationError()
    fault.verify_code, fault.verify_message = code, message
    return aiohttp.ClientConnectorCertificateError(KEY, fault)


def no_tls(reason: str) -> Exception:
    fault = ssl.SSLError()
    fault.reason = reason
    return aiohttp.ClientConnectorSSLError(KEY, fault)


def unconnected(error: OSError) -> Exception:
    return aiohttp.ClientConnectorError(KEY, error)


def unnamed(number: int, text: str) -> Exception:
    return aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(number, text))


PROXY = ConnectionKey("proxy.example", 3128, False, True, None, None, None)
REFUSED = aiohttp.ClientProxyConnectionError(PROXY, ConnectionRefusedError(errno.ECONNREFUSED, "r"))


@pytest.mark.parametrize(
    ("error", "said", "helps"),
    [
        (
            unnamed(socket.EAI_NONAME, "Name or service not known"),
            "api.shop.example has no address (DNS): is `base_url` right?",
            "`base_url`",
        ),
        (
            unnamed(socket.EAI_AGAIN, "Temporary failure in name resolution"),
            "the address of api.shop.example was not told (DNS: Temporary failure",
            "a name server that answers",
        ),
        (
            unconnected(ConnectionRefusedError(111, "x")),
            "refuses connections",
            "right host and port",
        ),
        (unconnected(OSError(errno.ENETUNREACH, "Network is unreachable")), "no way", "firewall"),
        (unconnected(OSError(errno.EMFILE, "Too many open files")), "Too many open files", ""),
        (certificate(10), "the certificate of api.shop.example has expired", "clock"),
        (certificate(9), "not valid yet", "clock"),
        (certificate(62), "is for another name", "`base_url`"),
        (certificate(18), "is self-signed", "SSL_CERT_FILE"),
        (certificate(19), "is self-signed", "SSL_CERT_FILE"),
        (certificate(20), "an authority that is not known here", "SSL_CERT_FILE"),
        (
            certificate(23, "certificate revoked"),
            "is not valid: certificate revoked",
            "certificate",
        ),
        (no_tls("WRONG_VERSION_NUMBER"), "does not speak TLS there", "http:// in `base_url`"),
        (no_tls("TLSV1_ALERT_PROTOCOL_VERSION"), "tlsv1 alert protocol version", ""),
        (REFUSED, "the proxy proxy.example:3128 cannot be reached", "HTTPS_PROXY"),
        (aiohttp.ServerDisconnectedError(), "closed the connection without an answer", ""),
        (aiohttp.ClientPayloadError("Response payload"), "in the middle of its answer", ""),
        (zlib.error("ends early"), "damaged or ends early", ""),
        (aiohttp.ClientOSError(errno.ECONNRESET, "Connection reset by peer"), "reset by peer", ""),
    ],
)
def test_each_fault_has_words(error: Exception, said: str, helps: str) -> None:
    found = unanswered(error, ASKED)
    assert said in found.text
    assert helps in found.unblocked_by
    assert found.unblocked_by
    told = found.text + found.unblocked_by
    assert "shop.example" in told or "proxy.example" in told
    assert "s3cr3t" not in told
    assert "Error" not in told, "no name of a class"


def failed(base_url: str, timeout_s: float = 5.0) -> FetchFailed:
    async def run() -> FetchFailed:
        http = Http(base_url, timeout_s=timeout_s, body_max_bytes=1000)
        try:
            with pytest.raises(FetchFailed) as found:
                await http.fetch("GET", http.url_of("/orders?key=s3cr3t-value"))
        finally:
            await http.close()
        return found.value

    return asyncio.run(run())


def test_a_port_that_nobody_listens_on_is_named() -> None:
    port = free_port()
    found = failed(f"http://127.0.0.1:{port}")
    assert str(found) == f"127.0.0.1:{port} refuses connections: nothing listens there"
    assert found.lasting


def test_a_server_without_tls_is_named() -> None:
    async def run() -> FetchFailed:
        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await asyncio.to_thread(failed, f"https://127.0.0.1:{port}")

    assert "does not speak TLS there" in str(asyncio.run(run()))


SOURCE = """\
gapless: 1
source: shop
base_url: URL
limits: {attempts: 4, timeout: 5s}
streams:
  orders:
    get: /orders
    params: {since: "{start}", token: "{token}"}
    records: body.items
    pages: {next: body.next}
    plan: {interval: {time: t, start: 2024-01-01}}
"""


@pytest.mark.parametrize("one_shot", [False, True])
def test_who_looks_once_ends_early_and_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_shot: bool
) -> None:
    monkeypatch.setattr("ingest.exchange.backoff_s", lambda *_: 0.0)
    (tmp_path / "sources").mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "sources/shop.yaml").write_text(SOURCE.replace("URL", url))
    loaded = load_folder(tmp_path)
    tried: list[str] = []

    async def asked(access: Access) -> object:
        access.http.before_request = lambda: tried.append("")
        question = Request("GET", "/orders", [], {}, None)
        return await Exchange(access, question, (), can_split=False).run()

    async def run() -> object:
        pollers = Pollers(loaded, Settings(definitions=tmp_path), none, one_shot=one_shot)
        try:
            return await asked(pollers.access(loaded.sources["shop"], None))
        finally:
            await pollers.close()

    stall = asyncio.run(run())
    assert isinstance(stall, Stall)
    assert stall.passing
    assert stall.reason.startswith(f"no answer after {2 if one_shot else 4} attempts: 127.0.0.1:")
    assert ("asked again and again" in stall.unblocked_by) is not one_shot
    assert "`base_url`" in stall.unblocked_by
    assert len(tried) == (2 if one_shot else 4)
