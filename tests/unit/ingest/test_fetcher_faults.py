"""Polls against a provider that fails: what is asked again, waited for, split, blocked or refused."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace as changed

from tests.unit.ingest.polling import (
    EVENTS,
    Polled,
    after,
    good,
    page,
    polling,
    run,
    stamp,
)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda r: web.Response(text="<html>busy</html>", content_type="text/html"), "not a page"),
        (lambda r: web.json_response({"error": "busy"}), "no body.items"),
        (lambda r: web.Response(body=b'{"items": [{"id": 1}, {"i'), "not a page"),
        (lambda r: web.Response(status=503), "answered 503"),
        (lambda r: web.Response(status=403), "answered 403"),
        (
            lambda r: web.Response(status=302, headers={"Location": "http://evil.example/"}),
            "origin",
        ),
        (lambda r: page([{"id": 1}], "http://"), "used already"),
    ],
    ids=["html", "no_records", "cut", "503", "403", "redirect", "loop"],
)
def test_a_terminal_fault_is_visible_and_logs_nothing_wrong(
    tmp_path: Path, answer: Callable[[web.Request], web.StreamResponse], said: str
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return answer(request)

    polled = run(tmp_path, EVENTS, handler)
    assert said in polled.blocked
    assert polled.blocked.startswith("interval: ")
    assert polled.state.blocked is not None and polled.state.blocked.unblocked_by
    assert not polled.marks
    assert polled.state.plans["interval"].complete_before == "2024-01-01T00:00:00.000000Z"
    assert time.time_ns() // 1000 < polled.poller.due_at <= time.time_ns() // 1000 + 61_000_000


@pytest.mark.parametrize(
    "answer",
    [
        lambda r: web.Response(text="<html>busy</html>", content_type="text/html"),
        lambda r: web.json_response({"error": "busy"}),
        lambda r: web.Response(status=500),
        lambda r: web.Response(status=429, headers={"Retry-After": "0"}),
        lambda r: web.Response(body=b"{", headers={"Content-Encoding": "gzip"}),
    ],
    ids=["html", "no_records", "500", "429", "not_gzip"],
)
def test_what_passes_by_itself_is_asked_again(
    tmp_path: Path, answer: Callable[[web.Request], web.StreamResponse]
) -> None:
    polled = run(tmp_path, EVENTS, after(1, answer, good))
    assert polled.blocked == ""
    assert len(polled.records) == 1
    assert [mark.kind for mark in polled.marks] == ["interval_complete"]


def test_a_body_cut_short_is_no_page_although_the_status_was_200(tmp_path: Path) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        await answer.write(b'{"items":[],"next":null}')
        assert request.transport is not None
        request.transport.close()  # whole JSON, but the last chunk never comes
        return answer

    asked = [0]

    async def handler(request: web.Request) -> web.StreamResponse:
        asked[0] += 1
        return await (cut if asked[0] == 1 else good)(request)

    polled = run(tmp_path, EVENTS, handler)
    assert len(polled.provider.requests) == 2 and len(polled.records) == 1


def test_a_bomb_is_refused_before_it_explodes(tmp_path: Path) -> None:
    body = gzip.compress(b" " * 40_000_000)

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    polled = run(tmp_path, EVENTS, handler)
    assert "larger than body_max" in polled.blocked
    assert len(polled.provider.requests) == 1


def test_a_long_wait_is_durable_and_holds_nobody_in_memory(tmp_path: Path) -> None:
    def busy(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "3600, 7200"})

    async def main() -> None:
        async with polling(tmp_path, EVENTS, after(1, busy, good)) as polled:
            await polled.poll()
            assert polled.blocked == ""
            until = polled.state.not_before
            assert until is not None
            assert 7_100 < until / 1e6 - time.time() < 7_300
            assert polled.poller.due_at == until
            await polled.poll()
            assert len(polled.provider.requests) == 1
            polled.poller.restore(None)
            await polled.poll()
            assert len(polled.records) == 1 and polled.state.not_before is None

    asyncio.run(main())


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_beyond_the_budget_is_durable_too(tmp_path: Path, status: int) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Retry-After": "60"})

    text = EVENTS.replace("wait_max: 2s", "wait_max: 5m")

    async def main() -> None:
        async with polling(tmp_path, text, handler, budget_s=30) as polled:
            await polled.poll()
            assert 50 < (polled.state.not_before or 0) / 1e6 - time.time() < 61
            assert len(polled.provider.requests) == 1

    asyncio.run(main())


def test_a_blocked_stream_recovers_and_says_so(tmp_path: Path) -> None:
    def refused(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404)

    async def main() -> Polled:
        async with polling(tmp_path, EVENTS, after(2, refused, good)) as polled:
            await polled.poll()
            since = polled.state.blocked
            assert since is not None
            polled.poller.restore(polled.state)
            await polled.poll()
            assert polled.state.blocked == since, "the same fault keeps its beginning"
            polled.poller.restore(polled.state)
            await polled.poll()
            return polled

    polled = asyncio.run(main())
    assert polled.blocked == "" and polled.records


def test_a_window_that_is_too_slow_is_asked_in_halves(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.query["from"] < "2024-06" and request.query["to"] > "2025-06":
            await asyncio.sleep(5)
        return page([])

    text = EVENTS.replace("timeout: 10s", "timeout: 300ms")
    polled = run(tmp_path, text, handler)
    assert polled.blocked == ""
    assert [mark.kind for mark in polled.marks] == ["caught_up"] * len(polled.marks)
    assert polled.marks[-1].start == "2024-01-01T00:00:00.000000Z"
    assert polled.state.plans["interval"].width_us is not None


def test_a_cached_answer_does_not_prove_the_end_of_a_window(tmp_path: Path) -> None:
    def cached(request: web.Request) -> web.StreamResponse:
        answer = page([])
        answer.headers["Age"] = "3600"
        return answer

    polled = run(tmp_path, EVENTS, after(1, cached, good))
    assert len(polled.records) == 1
    assert polled.provider.requests[0].headers["Cache-Control"] == "no-cache"


LINKED = EVENTS.replace('after: "{token}", ', "").replace("next: body.next", "next: header.link")


def test_links_are_followed_within_the_origin_only(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = page([{"id": 1, "t": stamp(60)}])
        number = int(request.query.get("page", "1"))
        if number == 1:
            answer.headers["Link"] = '</v1/other?page=2&x=%2B>; rel="next", </p>; rel="prev"'
        elif number == 2:
            answer.headers["Link"] = '<https://evil.example/steal>; rel="next"'
        return answer

    polled = run(tmp_path, LINKED, handler)
    assert [r.path_qs for r in polled.provider.requests][1] == "/v1/other?page=2&x=%2B"
    assert "another origin" in polled.blocked
    assert len(polled.records) == 1, "the page whose next link is refused is not taken"


def test_a_body_that_cannot_be_split_is_kept_whole_where_a_header_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "page" not in request.query:
            return web.Response(body=b'{"items": [oops', headers={"Link": "</?page=2>; rel=next"})
        return page([{"id": 2, "t": stamp(50)}])

    polled = run(tmp_path, LINKED, handler)
    first = polled.pages[0]
    assert first.records == [b'{"items": [oops']
    assert [(m.index, m.why, m.size) for m in first.missing] == [(0, "unsplittable", 15)]
    assert [mark.kind for mark in polled.marks] == ["interval_complete"]


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


def test_a_missing_secret_blocks_this_partition_id_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAPLESS_TEST_KEY", raising=False)
    monkeypatch.delenv("GAPLESS_TEST_ADDRESS", raising=False)
    polled = run(tmp_path, SECRET, good)
    assert "GAPLESS_TEST_KEY" in polled.blocked
    polled = run(tmp_path, SECRET.replace("URL", "{env: GAPLESS_TEST_ADDRESS}"), good)
    assert "GAPLESS_TEST_ADDRESS" in polled.blocked


BOTH = EVENTS.replace(
    "        schedule:", "          snapshot: {every: 1d, params: {all: 1}}\n        schedule:"
)


def test_a_fault_of_the_snapshot_does_not_hold_up_the_changes(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "all" in request.query:
            return web.Response(status=404)
        return page([{"id": 1, "t": stamp(60)}])

    async def main() -> None:
        async with polling(tmp_path, BOTH, handler) as polled:
            await polled.poll()
            assert polled.blocked.startswith("snapshot: ")
            plans = polled.state.plans
            older = {**plans}
            assert plans["interval"].polled_at is not None
            older["interval"] = changed(plans["interval"], polled_at=1)
            polled.poller.restore(replace(polled.state, plans=older))
            await polled.poll()
            assert [m.kind for m in polled.marks].count("interval_complete") == 2
            assert polled.blocked.startswith("snapshot: "), "still visible"

    asyncio.run(main())
