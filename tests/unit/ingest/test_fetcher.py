"""Polls of real definitions against a provider that behaves, and mostly one that does not."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace as changed

from ingest.control import obey
from ingest.emission import StreamState
from schemas.records import Control
from tests.unit.ingest.polling import Handler, Polled, polling, run, stamp

EVENTS = """\
    gapless: 1
    source: shop
    base_url: URL/v1
    limits: {attempts: 3, timeout: 10s, wait_max: 2s, body_max: 1MiB}
    streams:
      events:
        get: /events
        params: {from: "{start}", to: "{end}", after: "{token}", limit: "{size}"}
        records: body.items
        pages: {next: body.next, size: 2, stable: true}
        deletes: not_shown
        plan:
          interval: {time: t, format: rfc3339_ms, start: 2024-01-01, bounds: "[)", settle: 1s,
                     lookback: 1s, width: 100000d}
        schedule: {every: 1m}
    """


def page(items: list[Any], following: str | None = None, **more: Any) -> web.Response:
    return web.json_response({"items": items, "next": following, **more})


def one_page(request: web.Request) -> web.Response:
    return page([{"id": 1, "t": stamp(60)}])


def after(count: int, first: Callable[[web.Request], web.StreamResponse], then: Handler) -> Handler:
    """`first` answers so many requests, `then` the rest."""
    left = [count]

    async def handler(request: web.Request) -> web.StreamResponse:
        if left[0] > 0:
            left[0] -= 1
            return first(request)
        return await then(request)

    return handler


async def good(request: web.Request) -> web.StreamResponse:
    return one_page(request)


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
