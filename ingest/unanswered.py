"""Why no whole answer came, for people: the host, what happened to it, and what would help. Pure.

Names a host and its port alone: paths and parameters may hold what is secret.
"""

from __future__ import annotations

import errno
import socket
import ssl
import zlib
from dataclasses import dataclass

import aiohttp
from yarl import URL

_PASSES = "the provider answering again"
_NO_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_NO_WAY = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH})
_VALID = "a valid certificate of the provider"
# OpenSSL's codes of what is wrong with a certificate (X509_V_ERR_*), what that is, and what would help.
_CERTIFICATES = (
    ((10,), "has expired", f"{_VALID}; or this machine's clock set right"),
    ((9,), "is not valid yet", f"{_VALID}; or this machine's clock set right"),
    ((62, 64), "is for another name", "a `base_url` with the name that the certificate has"),
    (
        (18, 19),
        "is self-signed",
        f"{_VALID}; or its authority in the file that SSL_CERT_FILE names",
    ),
    (
        (2, 20, 21),
        "comes from an authority that is not known here",
        "the authority's certificate in the file that SSL_CERT_FILE names",
    ),
)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """What happened, and what would help. `lasting`: a second try within seconds will hardly help."""

    text: str
    unblocked_by: str = _PASSES
    lasting: bool = False


def unanswered(error: Exception, url: URL) -> Unanswered:
    """Of an error of the HTTP client that asked this URL; time-outs are the caller's to tell."""
    host = url.host_port_subcomponent or "the provider"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return Unanswered(
            f"the proxy refuses to reach {host} ({error.status})", _proxy(url), lasting=True
        )
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        proxy = f"the proxy {error.host}:{error.port}"
        return Unanswered(f"{proxy} cannot be reached", _proxy(url), lasting=True)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error, host)
    if isinstance(error, aiohttp.ClientSSLError):
        return _no_tls(error.os_error, host)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _no_address(error.os_error, url.host or host)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _no_connection(error.os_error, host)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Unanswered(f"{host} closed the connection without an answer")
    if isinstance(error, aiohttp.ClientPayloadError):
        return Unanswered(f"{host} cut the connection in the middle of its answer")
    if isinstance(error, zlib.error):
        return Unanswered(f"the compressed answer of {host} is damaged or ends early")
    if isinstance(error, aiohttp.ClientResponseError):
        return Unanswered(f"what {host} answers is not HTTP", "a `base_url` that names an API")
    if isinstance(error, OSError):
        return Unanswered(f"the connection to {host} broke: {error.strerror or 'no reason given'}")
    return Unanswered(f"no whole answer of {host}: {type(error).__name__}")


def _no_address(error: OSError, host: str) -> Unanswered:
    help_ = f"a `base_url` that is right, or a name server that knows {host}"
    if getattr(error, "errno", None) in _NO_NAME:
        return Unanswered(f"{host} has no address (DNS): is `base_url` right?", help_, lasting=True)
    return Unanswered(
        f"the address of {host} was not told (DNS: {error.strerror or 'no answer'})",
        f"a name server that answers, or a `base_url` that is right instead of {host}",
    )


def _no_connection(error: OSError, host: str) -> Unanswered:
    if isinstance(error, ConnectionRefusedError):
        return Unanswered(
            f"{host} refuses connections: nothing listens there",
            "a `base_url` with the right host and port, or the provider answering again",
            lasting=True,
        )
    if error.errno in _NO_WAY:
        return Unanswered(
            f"no way leads to {host} ({error.strerror})",
            "a network, or a firewall, that lets this machine reach it",
            lasting=True,
        )
    return Unanswered(f"no connection to {host}: {error.strerror or 'no reason given'}")


def _certificate(error: Exception, host: str) -> Unanswered:
    code = getattr(error, "verify_code", None)
    for codes, what, help_ in _CERTIFICATES:
        if code in codes:
            return Unanswered(f"the certificate of {host} {what}", help_, lasting=True)
    text = f"the certificate of {host} is not valid"
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        text += f": {error.verify_message}"
    return Unanswered(text, _VALID, lasting=True)


def _no_tls(error: OSError, host: str) -> Unanswered:
    reason = getattr(error, "reason", None) or "no reason given"
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return Unanswered(
            f"{host} does not speak TLS there",
            "http:// in `base_url`, or another port",
            lasting=True,
        )
    said = reason.lower().replace("_", " ")
    return Unanswered(f"no TLS connection to {host}: {said}", lasting=True)


def _proxy(url: URL) -> str:
    name = url.scheme.upper()
    return f"a proxy that answers in {name}_PROXY, or this host in NO_PROXY"
