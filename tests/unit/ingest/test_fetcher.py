"""Polls of real definitions against a real HTTP server that behaves."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from aiohttp import web

from ingest.control import obey
from ingest.emission import StreamState
from schemas.records import Control
from tests.unit.ingest.polling import (
    EVENTS,
    Polled,
    good,
    page,
    polling,
    run,
    stamp,
)


def test_an_interval_from_its_first_page_to_its_mark(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        token = request.query.get("after")
        if token is None:
            return page([{"id": 1, "t": stamp(90)}, {"id": 2, "t": stamp(80)}], "tok+/=")
        assert token == "tok+/="
        return page([{"id": 3, "t": stamp(70)}])

    polled = run(tmp_path, EVENTS, handler)
    first, last = polled.pages
    assert [json.loads(r)["id"] for r in polled.records] == [1, 2, 3]
    assert (first.page, last.page, first.pass_) == (1, 2, last.pass_)
    assert (first.next_token, last.request_token) == ("tok+/=", "tok+/=")
    assert json.loads(first.envelope) == {"items": [], "next": "tok+/="}
    assert first.as_of is not None and first.as_of < first.requested_at - 4_000_000
    assert first.url.startswith(polled.provider.url + "/v1/events?from=2024-01-01T00%3A00%3A00")
    [mark] = polled.marks
    assert mark.kind == "interval_complete"
    assert [(r.first, r.last, r.records) for r in mark.passes] == [(1, 2, 3)]
    assert mark.end == polled.state.plans["interval"].complete_before
    assert [len(e.observations) for e in polled.emissions] == [1, 1]


def test_the_end_is_fixed_before_the_first_request_and_lies_behind_the_servers_clock(
    tmp_path: Path,
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return page([], None)

    polled = run(tmp_path, EVENTS, handler)
    [mark] = polled.marks
    assert (mark.kind, polled.pages) == ("caught_up", [])
    end = polled.provider.asked[0]["to"]
    assert end < stamp(0.9)


def test_a_window_ends_by_the_providers_clock_and_not_by_ours(tmp_path: Path) -> None:
    """It is asked for its time before the first window: nothing else has told it yet."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return page([])

    async def main() -> Polled:
        async with polling(tmp_path, EVENTS, handler) as polled:
            polled.provider.date = "Mon, 01 Jan 2024 12:00:00 GMT"
            await polled.poll()
            return polled

    [asked] = asyncio.run(main()).provider.asked
    assert "2024-01-01T11:59:5" < asked["to"] < "2024-01-01T12:00:00"


SESSION = """\
    gapless: 1
    source: shop
    base_url: URL
    auth:
      session: {post: /login, token: body.token, body: {user: me, password: {env: GAPLESS_TEST_KEY}},
                header: X-Session, lifetime: 12h}
    limits: {attempts: 3, timeout: 10s}
    streams:
      rows:
        get: /rows
        params: {page: "{page}"}
        records: body.items
        pages: {stable: true}
        plan: {snapshot: {every: 1d}}
    """


def test_a_session_signs_in_once_and_again_when_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAPLESS_TEST_KEY", "open sesame")
    signed: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/login":
            signed.append(await request.json())
            return web.json_response({"token": f"session-{len(signed)}"})
        number = int(request.query["page"])
        wanted = "session-1" if number < 3 else "session-2"
        if request.headers.get("X-Session") != wanted:
            return web.Response(status=401)
        return web.json_response({"items": [{"id": number}] if number < 5 else []})

    polled = run(tmp_path, SESSION, handler)
    assert polled.blocked == ""
    assert len(polled.records) == 4
    assert signed == [{"user": "me", "password": "open sesame"}] * 2
    assert "session-1" not in repr(polled.emissions)
    assert "sesame" not in repr(polled.emissions)


def test_an_expired_token_begins_the_interval_again_with_a_fresh_pass(tmp_path: Path) -> None:
    rules = "errors: [{when: {status: 410}, do: token_expired}]\n        records: body.items"
    gone = [True]

    async def handler(request: web.Request) -> web.StreamResponse:
        if "after" not in request.query:
            return page([{"id": 1, "t": stamp(60)}], f"tok{len(gone)}")
        if gone:
            gone.pop()
            return web.Response(status=410)
        return page([{"id": 2, "t": stamp(50)}])

    polled = run(tmp_path, EVENTS.replace("records: body.items", rules), handler)
    assert [json.loads(r)["id"] for r in polled.records] == [1, 1, 2]
    [mark] = polled.marks
    assert [r.records for r in mark.passes] == [2]
    assert len({page.pass_ for page in polled.pages}) == 2


def test_a_page_larger_than_a_record_of_the_log_is_logged_in_parts(tmp_path: Path) -> None:
    items = [{"id": n, "t": stamp(60), "text": "x" * 3_000} for n in range(10)]
    items[4]["text"] = "y" * 20_000

    async def handler(request: web.Request) -> web.StreamResponse:
        return page(items)

    polled = run(tmp_path, EVENTS, handler, record_max_bytes=16_000)
    assert len(polled.emissions) == 1
    parts = polled.pages
    assert len(parts) > 1
    assert [part.part for part in parts] == list(range(1, len(parts) + 1))
    assert {part.parts for part in parts} == {len(parts)}
    indices = [part.first_index + at for part in parts for at in range(len(part.records))]
    assert indices == list(range(10))
    [missing] = [m for part in parts for m in part.missing]
    assert (missing.index, missing.why) == (4, "oversized")
    [mark] = polled.marks
    assert [(r.records, r.parts) for r in mark.passes] == [(10, len(parts))]


SECRET = """\
    gapless: 1
    source: shop
    base_url: URL
    auth: {api_key: {param: key, value: {env: GAPLESS_TEST_KEY}}}
    limits: {attempts: 2, timeout: 2s}
    streams:
      rows:
        get: /rows
        records: body.items
        pages: none
        plan: {snapshot: {every: 1d}}
    """


def test_a_secret_is_sent_and_never_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAPLESS_TEST_KEY", "s3cr3t/value")

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.query["key"] == "s3cr3t/value"
        return web.json_response({"items": [], "you_sent": str(request.rel_url)})

    polled = run(tmp_path, SECRET, handler)
    assert [m.kind for m in polled.marks] == ["snapshot_begin", "snapshot_complete"]

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=401)

    polled = run(tmp_path, SECRET, refuse)
    assert "refuses the credentials" in polled.blocked
    assert len(polled.provider.requests) == 2, "asked once more with the secret read anew"
    assert "s3cr3t" not in repr(polled.emissions)


BOTH = EVENTS.replace(
    "        schedule:", "          snapshot: {every: 1d, params: {all: 1}}\n        schedule:"
)


def test_the_first_snapshot_begins_when_the_changes_have_a_position(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return page([{"id": 1, "t": stamp(60)}])

    polled = run(tmp_path, BOTH, handler)
    kinds = [mark.kind for mark in polled.marks]
    assert kinds == ["interval_complete", "snapshot_begin", "snapshot_complete"]
    assert [page.plan for page in polled.pages] == ["interval", "snapshot"]
    begin = polled.emissions[1]
    assert begin.marks and not begin.observations, "the begin mark stands before the first page"
    assert "from" not in polled.provider.asked[1]
    due = polled.poller.due_at / 1e6 - time.time()
    assert 50 < due < 61


def test_a_paused_partition_id_asks_nothing(tmp_path: Path) -> None:
    control = Control(action="pause", about="shop", by="me", note="maintenance", at=1)

    async def main() -> None:
        async with polling(tmp_path, EVENTS, good) as polled:
            paused = obey(StreamState(), control)
            polled.poller.restore(paused)
            await polled.poll()
            assert not polled.provider.requests
            assert polled.poller.due_at > time.time_ns() // 1000 + 10**15
            resume = Control(action="resume", about="shop", by="me", note="done", at=2)
            polled.poller.restore(obey(paused, resume))
            await polled.poll()
            assert len(polled.records) == 1

    asyncio.run(main())


def test_an_interrupted_poll_goes_on_from_what_was_emitted(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.query["from"] > "2025":
            return page([])  # of the second poll, behind what the first one asked for
        number = int(request.query.get("after", "0"))
        if number == 2 and not waiting.is_set():
            waiting.set()
            await asyncio.sleep(1)
        return page([{"id": number, "t": stamp(60)}], str(number + 1) if number < 4 else None)

    async def main() -> Polled:
        async with polling(tmp_path, EVENTS, handler) as polled:
            task = asyncio.create_task(polled.poll())
            await waiting.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            polled.poller.restore(polled.state)
            await polled.poll()
            return polled

    polled = asyncio.run(main())
    assert [json.loads(r)["id"] for r in polled.records] == [0, 1, 2, 3, 4]
    mark = polled.marks[0]
    assert [(r.first, r.last) for r in mark.passes] == [(1, 2), (3, 5)]
    assert len({r.pass_ for r in mark.passes}) == 2
