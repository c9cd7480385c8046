"""What `gapless check` says of the stretches that it passed over on its way to the first page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner

from ops.cli.main import build_app
from ops.problems import UNREACHABLE
from tests.unit.ops.answering import Handler, Server, serving

SOURCE = """\
gapless: 1
source: shop
base_url: URL
get: /orders
records: body.items
streams: {orders: {PLAN}}
"""
WINDOWS = (
    'pages: none, params: {since: "{start}", until: "{end}"}, '
    "plan: {interval: {time: t, start: 2024-01-01, width: 1d, bounds: '[)'}}"
)
LISTING = "pages: none, plan: {snapshot: {every: 1d}}"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def check(folder: Path, server: Server, plan: str) -> tuple[str, int]:
    """The lines of the text behind `Answer`, and the number of the JSON."""
    path = folder / "sources/shop.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SOURCE.replace("URL", server.url).replace("PLAN", plan))
    words = ["check", "shop", "--definitions", str(folder)]
    text = CliRunner().invoke(build_app(), words).stdout
    told = json.loads(CliRunner().invoke(build_app(), [*words, "--json"]).stdout)
    answer = text.partition("\nAnswer")[2].partition("Risks")[0]
    return " ".join(answer.split()), told[0]["streams"][0]["answer"]["empty"]


@pytest.mark.parametrize(
    ("begins", "said", "empty"),
    [
        ("2024-01-01", "", 0),
        ("2024-01-02", "no records in the stretch before it", 1),
        ("2024-01-03", "no records in the 2 stretches before it", 2),
    ],
)
def test_stretches_without_records_are_counted(
    tmp_path: Path, server: Server, begins: str, said: str, empty: int
) -> None:
    def answer(request: web.Request) -> web.Response:
        found = request.query["since"] >= begins
        items = [{"id": 1, "t": f"{begins}T01:00:00Z"}] if found else []
        return web.json_response({"items": items})

    server.answer = answer
    text, number = check(tmp_path, server, WINDOWS)
    assert "1 records, no next page" in text
    assert text.endswith(said or "0 kB")
    assert number == empty


def test_a_listing_has_no_stretches(tmp_path: Path, server: Server) -> None:
    assert check(tmp_path, server, LISTING) == ("no records", 0)
    server.answer = lambda request: web.json_response({"items": [{"id": 1}]})
    text, number = check(tmp_path, server, LISTING)
    assert text.endswith("1 records, no next page, 0 kB")
    assert number == 0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda _: web.json_response({}, status=429, headers={"Retry-After": "9" * 12}),
            "the provider asks to wait until 20",
        ),
        (
            lambda _: web.Response(status=302, headers={"Location": "https://elsewhere.example/x"}),
            "a redirect (302) leads to https://elsewhere.example:443, another origin than base_url",
        ),
    ],
)
def test_why_there_is_no_page(tmp_path: Path, server: Server, answer: Handler, said: str) -> None:
    server.answer = answer
    path = tmp_path / "sources/shop.yaml"
    path.parent.mkdir()
    path.write_text(SOURCE.replace("URL", server.url).replace("PLAN", LISTING))
    done = CliRunner().invoke(build_app(), ["check", "shop", "--definitions", str(tmp_path)])
    assert done.exit_code == UNREACHABLE
    assert said in done.stdout


@pytest.mark.parametrize("verb", ["check", "probe"])
def test_where_no_tenant_is_listed_nobody_is_asked_for(
    tmp_path: Path, server: Server, verb: str
) -> None:
    """Ingest polls nobody either, whether or not the request names the tenant."""
    path = tmp_path / "sources/shop.yaml"
    path.parent.mkdir()
    (tmp_path / "tenants.json").write_text("[]")
    text = SOURCE.replace("URL", server.url).replace("PLAN", LISTING)
    path.write_text(text + "tenants: {file: tenants.json}\n")
    done = CliRunner().invoke(build_app(), [verb, "shop", "--definitions", str(tmp_path)])
    assert done.exit_code == UNREACHABLE
    assert "no tenant is listed, so nobody is asked for" in done.stdout
    assert "a tenant in the list of `tenants`" in done.stdout
    assert server.seen == []


def test_a_command_for_tenants_is_run_once(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "sources/shop.yaml"
    path.parent.mkdir()
    (tmp_path / "list.sh").write_text("echo run >> runs; echo '[{id: a}]'\n")
    text = SOURCE.replace("URL", server.url).replace("PLAN", LISTING)
    text = text.replace("streams: {", f"streams: {{lines: {{{LISTING}}}, ")
    path.write_text(text + "tenants: {command: [sh, list.sh]}\n")
    words = ["check", "shop", "--explain", "--definitions", str(tmp_path)]
    assert CliRunner().invoke(build_app(), words).exit_code == 0
    assert (tmp_path / "runs").read_text() == "run\n"
