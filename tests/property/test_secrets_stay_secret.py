"""Whatever the secrets are, however they are sent, and whatever a provider echoes: none is written down."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from aiohttp import web
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY, generate_latest
from structlog.testing import capture_logs

from ingest import committer
from ingest.committer import Transaction
from ingest.emission import Emission
from schemas import codec
from tests.unit.ingest.polling import Polled, polling, stamp

NAMES = ("A", "B", "C", "D")
STREAM = """
    limits: {attempts: 5, timeout: 10s, wait_max: 2s}
    headers: {X-Extra: {env: GAPLESS_TEST_D}}
    streams:
      events:
        get: /v1/EVENTS
        params: {from: "{start}", to: "{end}"}
        records: body.items
        pages: {next: body.next, next_is: link, stable: true}
        deletes: not_shown
        plan: {interval: {time: t, start: 2024-01-01, settle: 1s, width: 100000d}}
"""
TENANTS = "tenants: {list: [{id: t, a: {env: GAPLESS_TEST_A}, b: {env: GAPLESS_TEST_B}}]}\n"
OAUTH = "oauth2: {token_url: /token, client_id: {env: GAPLESS_TEST_A}, client_secret: {env: GAPLESS_TEST_B}"
SESSION = "session: {post: /login, body: {u: {env: GAPLESS_TEST_A}, p: {env: GAPLESS_TEST_B}}, token: body.t"
KINDS = {
    "bearer": "auth: {bearer: {env: GAPLESS_TEST_A}}",
    "basic": "auth: {basic: {user: {env: GAPLESS_TEST_A}, password: {env: GAPLESS_TEST_B}}}",
    "header": "auth: {api_key: {header: X-Key, value: {env: GAPLESS_TEST_A}}}",
    "param": "auth: {api_key: {param: key, value: {env: GAPLESS_TEST_A}}}",
    "session": f"auth: {{{SESSION}, scheme: Bearer}}}}",
    "client_credentials": f"auth: {{{OAUTH}}}}}",
    "client_in_body": f"auth: {{{OAUTH}, client_auth: body}}}}",
    "refresh": f"auth: {{{OAUTH}, refresh_token: {{env: GAPLESS_TEST_C}}, store: tokens.json}}}}",
    "tenant_bearer": TENANTS + "auth: {bearer: '{tenant.a}'}",
    "tenant_param": TENANTS + "auth: {api_key: {param: key, value: '{tenant.a}'}}",
    "tenant_basic": TENANTS + "auth: {basic: {user: '{tenant.a}', password: '{tenant.b}'}}",
    "tenant_path": TENANTS + "auth: {bearer: '{tenant.b}'}",
    "tenant_session": TENANTS
    + "auth: {session: {post: /login, token: body.t, body: {p: '{tenant.a}'}}}",
}
# What a header may hold; a prefix that no other text has.
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=40).map(
    lambda text: f"S~{text}"
)


class Echo:
    """Answers with all that it was sent, in every place of an answer, and every kind of trouble."""

    def __init__(self, token: str) -> None:
        self.token, self.asked = token, 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        sent = f"{request.raw_path} {dict(request.headers)} {await request.text()}"
        if request.path in ("/login", "/token"):
            return web.json_response(
                {"t": self.token, "access_token": self.token, "refresh_token": self.token + "r",
                 "seen": sent}
            )  # fmt: skip
        self.asked += 1
        credential = request.headers.get("Authorization") or request.headers.get("X-Key") or ""
        echoed = credential or request.query.get("key", "")
        heard = {"X-Heard": quote(credential), "X-Raw": credential}
        if self.asked == 1:
            return web.json_response({"error": sent}, status=500, headers=heard)
        if self.asked == 2:
            return web.json_response(
                {"error": sent}, status=429, headers={**heard, "Retry-After": credential or "0"}
            )
        if self.asked == 3:
            record = {"id": 1, "t": stamp(60), "sent": echoed, "url": quote(echoed)}
            following = f"{request.raw_path}&page=2&echo={quote_plus(credential)}"
            return web.json_response(
                {"items": [record], "next": following, "sent": sent}, headers=heard
            )
        return web.json_response({"error": sent}, status=403, headers=heard)


def written(polled: Polled) -> bytes:
    """All that would stand in the topics, as the log holds it."""
    out = []
    for number, emission in enumerate(polled.emissions):
        transaction = committer.next_transaction([emission], committer.Limits())
        assert isinstance(transaction, Transaction)
        offsets = list(range(number * 10, number * 10 + len(transaction.records)))
        checkpoints = committer.checkpoints(transaction, offsets, {}, "w", 1)
        contents = [record.content for record in transaction.records]
        out += [codec.encode(one) for one in (*contents, *checkpoints) if one is not None]
    return b"\n".join(out)


def forms(secret: str) -> set[str]:
    escaped = json.dumps(secret)[1:-1]
    encoded = base64.b64encode(secret.encode()).decode()
    return {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), escaped, encoded}


def poll(folder: Path, kind: str, token: str) -> Polled:
    echo = Echo(token)
    path = "{tenant.a}/events" if kind == "tenant_path" else "events"
    text = f"gapless: 1\nsource: shop\nbase_url: URL\n{KINDS[kind]}"
    text += STREAM.replace("\n    ", "\n").replace("EVENTS", path)

    async def main() -> Polled:
        async with polling(folder, text, echo.handle) as polled:
            await polled.poll()
            assert echo.asked == 4, polled.blocked
            return polled

    return asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.generate],  # an example is a provider of its own: too slow to be made small
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(VALUES, min_size=5, max_size=5, unique=True))
def test_no_secret_is_written_down(
    caplog: pytest.LogCaptureFixture, kind: str, secrets: list[str]
) -> None:
    caplog.clear()
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        capture_logs() as logs,
        caplog.at_level(logging.DEBUG),
    ):
        for name, secret in zip(NAMES, secrets, strict=False):
            patch.setenv(f"GAPLESS_TEST_{name}", secret)
        patch.setattr("ingest.exchange.backoff_s", lambda attempt, share: 0.0)
        polled = poll(Path(folder), kind, secrets[4])
    assert len(polled.records) == 1 and "403" in polled.blocked
    topics = written(polled)
    theirs = ("aiohttp.access", "aiohttp.server")  # the provider of this test
    ours = [one.getMessage() for one in caplog.records if one.name not in theirs]
    said: list[Any] = [logs, ours, polled.state, generate_latest(REGISTRY)]
    texts = "\n".join(map(repr, said))
    for secret in secrets:
        for form in forms(secret):
            assert form.encode() not in topics
            assert form not in texts


def test_a_link_that_repeats_the_key_is_asked_with_the_key_of_now(tmp_path: Path) -> None:
    """The provider builds its next link from the question, key and all: it is sent once, ours."""
    asked: list[list[str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.query.getall("key"))
        following = f"{request.path_qs}&page=2" if "page" not in request.query else None
        return web.json_response({"items": [{"id": 1, "t": stamp(60)}], "next": following})

    emissions: list[Emission] = []

    async def main() -> None:
        text = f"gapless: 1\nsource: shop\nbase_url: URL\n{KINDS['param']}"
        text += STREAM.replace("\n    ", "\n").replace("EVENTS", "events")
        async with polling(tmp_path, text, handler) as polled:
            await polled.poll()
            assert polled.blocked == ""
            emissions.extend(polled.emissions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GAPLESS_TEST_A", "k&y/of+sixteen%characters")
        patch.setenv("GAPLESS_TEST_D", "another-secret-value")
        asyncio.run(main())
    assert asked == [["k&y/of+sixteen%characters"]] * 2
    [first, _] = [page for emission in emissions for page in emission.observations]
    assert first.next_token is not None and "{env: GAPLESS_TEST_A}" in first.next_token
