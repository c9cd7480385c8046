"""A probe of a provider that refuses who asks: one refusal says everything, and ends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from ops import problems
from ops.cli.main import build_app
from ops.stack.folder import free_port
from tests.unit.ops.answering import Handler, Server, serving

SOURCE = """\
gapless: 1
source: shop
base_url: URL
auth: AUTH
limits: {attempts: 2, timeout: 5s}
get: /orders
params: {since: "{start}", until: "{end}", token: "{token}", limit: "{size}"}
records: body.items
pages: {next: body.next, size: 2}
plan: {interval: {time: t, start: 2024-01-01}, snapshot: {every: 1d}}
streams:
  orders: {}
  lines: {get: /lines}
"""
BEARER = "{bearer: {env: SHOP_TOKEN}}"
SESSION = (
    "{session: {post: /login, body: {password: {env: SHOP_TOKEN}}, token: body.token, "
    "header: X-Session}}"
)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@dataclass(frozen=True)
class Done:
    """What a verb has left behind. `told`: its JSON."""

    code: int
    told: dict[str, object]

    def denied(self) -> object:
        return self.told.get("denied")

    def troubles(self) -> list[object]:
        streams = self.told["streams"]
        assert isinstance(streams, list)
        return [stream.get("trouble") for stream in streams]


def run(folder: Path, server: Server, auth: str, *options: str) -> Result:
    path = folder / "sources/shop.yaml"
    path.parent.mkdir()
    path.write_text(SOURCE.replace("URL", server.url).replace("AUTH", auth))
    words = ["probe", "shop", *options, "--definitions", str(folder)]
    return CliRunner().invoke(build_app(), words)


def probe(folder: Path, server: Server, auth: str = BEARER) -> Done:
    done = run(folder, server, auth, "--json")
    assert done.stderr == "", "its result says it"
    return Done(done.exit_code, json.loads(done.stdout))


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "a-token-that-is-wrong")


def refusing(status: int) -> Handler:
    return lambda request: web.json_response({"message": "no"}, status=status)


def test_a_wrong_token_ends_the_probe_at_once(tmp_path: Path, server: Server) -> None:
    server.answer = refusing(401)
    done = probe(tmp_path, server)
    assert server.seen == ["/orders"], "the reference, read anew, says the same"
    assert done.code == problems.UNREACHABLE
    assert done.told["requests"] == 1
    assert done.troubles() == ["the provider refuses the credentials (401)"] * 2
    assert done.denied() == {
        "why": "the provider refuses the credentials (401)",
        "unblocked_by": "a valid secret where `auth` refers to, or correct `auth`",
    }


def test_people_are_told_of_it_once(tmp_path: Path, server: Server) -> None:
    server.answer = refusing(401)
    done = run(tmp_path, server, BEARER)
    assert done.exit_code == problems.UNREACHABLE
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "shop/orders                unknown: see below",
        "",
        "shop/lines                 unknown: see below",
        "",
        "shop cannot be probed: the provider refuses the credentials (401). Nothing else was asked.",
        "    needed: a valid secret where `auth` refers to, or correct `auth`",
        "1 requests, read only.",
        "--fix would write nothing.",
    ]


def test_so_does_a_sign_in_that_is_refused(tmp_path: Path, server: Server) -> None:
    server.answer = refusing(403)
    done = probe(tmp_path, server, SESSION)
    assert server.seen == ["/login"]
    assert done.code == problems.UNREACHABLE
    assert "signing in at /login answered 403" in str(done.denied())


def test_so_does_a_reference_without_a_value(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_TOKEN")
    done = probe(tmp_path, server)
    assert server.seen == []
    assert done.code == problems.UNREACHABLE
    assert "the environment has no variable SHOP_TOKEN" in str(done.denied())
    assert "set what the reference names" in str(done.denied())


@pytest.mark.parametrize("status", [403, 404])
def test_a_stream_that_is_forbidden_ends_alone(tmp_path: Path, server: Server, status: int) -> None:
    def answer(request: web.Request) -> web.Response:
        if request.path == "/orders":
            return web.json_response({}, status=status)
        return web.json_response({"items": []})

    server.answer = answer
    done = probe(tmp_path, server)
    assert server.seen.count("/orders") == 1
    assert "/lines" in server.seen
    assert done.code == 0
    assert done.troubles() == [f"the provider answered {status}, which no rule names", None]


def test_a_token_that_ends_in_the_middle_keeps_what_was_found(
    tmp_path: Path, server: Server
) -> None:
    item = {"id": 1, "t": "2024-01-02T00:00:00Z"}

    def answer(request: web.Request) -> web.Response:
        if len(server.seen) > 2:
            return web.json_response({}, status=401)
        return web.json_response({"items": [item]})

    server.answer = answer
    done = probe(tmp_path, server)
    assert done.code == problems.UNREACHABLE
    assert len(server.seen) == 3
    assert done.troubles() == [None, "the provider refuses the credentials (401)"]
    assert "a valid secret where `auth` refers to" in json.dumps(done.told["streams"])


def test_a_window_that_is_forbidden_ends_nothing(tmp_path: Path, server: Server) -> None:
    item = {"id": 1, "t": "2024-01-02T00:00:00Z"}

    def answer(request: web.Request) -> web.Response:
        if request.query.get("since", "") > "2025":
            return web.json_response({}, status=403)
        return web.json_response({"items": [item]})

    server.answer = answer
    done = probe(tmp_path, server)
    assert done.denied() is None
    assert done.troubles() == [None, None]
    assert len(server.seen) > 10


def test_check_asks_a_provider_that_refuses_the_token_once(tmp_path: Path, server: Server) -> None:
    server.answer = refusing(401)
    path = tmp_path / "sources/shop.yaml"
    path.parent.mkdir()
    path.write_text(SOURCE.replace("URL", server.url).replace("AUTH", BEARER))
    done = CliRunner().invoke(build_app(), ["check", "shop", "--definitions", str(tmp_path)])
    assert done.exit_code == problems.UNREACHABLE
    assert server.seen == ["/orders", "/lines"]
    assert done.stdout.count("the provider refuses the credentials (401)") == 2
    assert "blocked" not in done.stderr, "the text says it, with what would help"


def test_check_of_a_host_that_does_not_answer_says_it_once(tmp_path: Path) -> None:
    path = tmp_path / "sources/shop.yaml"
    path.parent.mkdir()
    port = free_port()
    source = SOURCE.replace("URL", f"http://127.0.0.1:{port}").replace("AUTH", BEARER)
    path.write_text(source.replace("  lines: {get: /lines}\n", ""))
    done = CliRunner().invoke(build_app(), ["check", "shop", "--definitions", str(tmp_path)])
    assert done.exit_code == problems.UNREACHABLE
    told = done.stdout + done.stderr
    assert told.count(f"127.0.0.1:{port} refuses connections: nothing listens there") == 1
    assert "`base_url` with the right host" in told
    assert "again and again" not in told
