"""What the edge keeps of an answer: ids, times however they are shown, tombstones, and no content."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from ingest.pollers import Pollers
from ops.probe.asking import Asker
from ops.probe.model import Question, Refused, Sight
from schemas.definitions.load import load_folder
from schemas.failpoints import none
from schemas.settings import Settings

SOURCE = """\
gapless: 1
source: shop
base_url: URL
limits: {attempts: 1, timeout: 5s}
streams:
  orders:
    get: /orders
    params: {since: "{start}", limit: "{size}", token: "{token}"}
    records: body.items
    pages: {next: body.next, size: 2}
    plan: {interval: {time: t, start: 2024-01-01, format: "%Y-%m-%d %H:%M"}}
  ranked:
    get: /orders
    params: {since: "{after.time}", id: "{after.id}", until: "{until}", limit: "{size}"}
    records: body.items
    pages: {size: 2}
    plan: {keyset: {time: t, start: 2024-01-01, format: unix_ms}}
"""
ITEMS = [
    {"id": 7, "t": "2024-01-01T10:00:00.250+0100", "name": "Ada"},
    {"id": "b", "t": "2024-01-02 09:30", "deleted": True},
    {"t": None},
]
MINUTE = 60_000_000


def asked(
    folder: Path, question: Question, seen: list[dict[str, str]], stream: str = "orders"
) -> Sight | Refused:
    """The answer of a server that refuses everything but this one question."""

    async def answer(request: web.Request) -> web.Response:
        seen.append(dict(request.query))
        if request.query.get("token") == "bad":
            return web.json_response({"items": "none"})
        return web.json_response({"items": ITEMS, "next": "t2"})

    async def run() -> Sight | Refused:
        app = web.Application()
        app.add_routes([web.get("/orders", answer)])
        async with TestServer(app) as server:
            path = folder / "sources/shop.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(SOURCE.replace("URL", str(server.make_url("")).rstrip("/")))
            loaded = load_folder(folder)
            source = loaded.check().sources["shop"]
            pollers = Pollers(loaded, Settings(definitions=folder), none)
            asker = Asker(source.streams[stream], None, pollers.access(source, None), ())
            try:
                return await asker.ask(question)
            finally:
                await asker.close()
                await pollers.close()

    return asyncio.run(run())


def test_records_are_reduced_to_what_is_needed(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    start = 1_704_067_200_000_000
    sight = asked(tmp_path, Question("interval", {"start": start, "size": 2}), seen)
    assert isinstance(sight, Sight)
    assert seen == [{"since": "2024-01-01 00:00", "limit": "2"}]
    assert sight.page.next == "t2"
    first, second, third = sight.rows
    assert (first.id, first.time, first.unit) == ("json:7", 1_704_099_600_250_000, 1_000)
    assert (second.id, second.time) == ("b", None)  # no zone is declared
    assert third.time is None
    assert [row.gone for row in sight.rows] == [False, True, False]
    assert "Ada" not in repr(sight.rows)


def test_over_a_connection_of_its_own(tmp_path: Path) -> None:
    sight = asked(tmp_path, Question("interval", {"token": "t2"}, apart=True), [])
    assert isinstance(sight, Sight)
    assert len(sight.rows) == 3


def test_what_is_no_page_is_refused(tmp_path: Path) -> None:
    answer = asked(tmp_path, Question("interval", {"token": "bad"}), [])
    assert isinstance(answer, Refused)
    assert answer.why.startswith("the answer is not a page: ")


def test_a_time_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    answer = asked(tmp_path, Question("interval", {"start": MINUTE + 1}), seen)
    assert isinstance(answer, Refused)
    assert seen == []


def test_a_position_is_asked_as_it_stood_there_and_times_in_the_notation(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    first = Question("keyset", {"after.time": 1_500, "after.id": "", "until": 9_000}, fine=1)
    behind = Question(
        "keyset", {"after.time": "json:1704099600250", "after.id": "json:7", "until": 9_000}
    )
    for question in (first, behind):
        assert isinstance(asked(tmp_path, question, seen, "ranked"), Sight)
    assert seen == [
        {"since": "1.500", "id": "", "until": "9.000"},
        {"since": "1704099600250", "id": "7", "until": "9"},
    ]
