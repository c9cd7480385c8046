"""Polls of streams that are read parent by parent, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from ingest.pollers import now_us
from tests.unit.ingest.polling import Polled, polling, run, stamp
from tests.waiting import until

ISSUES = """\
    gapless: 1
    source: shop
    base_url: URL
    limits: {attempts: 2}
    streams:
      issues:
        get: /projects/{parent.key}/issues
        params: {since: "{start}", after: "{token}"}
        records: body.items
        pages: {next: body.next, stable: true}
        parent: {stream: projects, when: {archived: {not: true}}}
        plan:
          interval: {time: t, format: rfc3339_ms, start: 2024-01-01, settle: 1s, width: 100000d}
          snapshot: {every: 7d, params: {since: null}}
      projects:
        get: /projects
        params: {page: "{page}"}
        records: body.projects
        pages: {stable: true}
        deletes: shown
        plan: {snapshot: {every: 1d}}
    """
PROJECTS = [
    {"id": 1, "key": "a b"},
    {"id": 2, "key": "old", "archived": True},
    {"id": 3, "key": "c/d"},
    {"id": 4, "key": "e"},
]


async def serve(request: web.Request) -> web.StreamResponse:
    if request.path == "/projects":
        first = 2 * (int(request.query["page"]) - 1)
        return web.json_response({"projects": PROJECTS[first : first + 2]})
    key = request.path.split("/")[2]
    items: list[dict[str, Any]] = [{"id": f"{key}{n}", "t": stamp(60)} for n in range(3)]
    if key == "a b":
        after = int(request.query.get("after", "0"))
        return web.json_response(
            {"items": items[after : after + 2], "next": str(after + 2) if after + 2 < 3 else None}
        )
    return web.json_response({"items": [] if key == "e" else items, "next": None})


def _issues(pages: list[Any], plan: str) -> list[str]:
    return [json.loads(r)["id"] for p in pages if p.plan == plan for r in p.records]


def test_changes_and_listing_of_every_parent(tmp_path: Path) -> None:
    polled = run(tmp_path, ISSUES, serve)
    wanted = ["a b0", "a b1", "a b2", "c0", "c1", "c2"]
    assert polled.blocked == ""
    assert _issues(polled.pages, "interval") == wanted
    assert _issues(polled.pages, "snapshot") == wanted
    kinds = [mark.kind for mark in polled.marks]
    assert kinds == ["interval_complete", "snapshot_begin", "snapshot_complete"]
    assert [(r.first, r.last, r.records) for r in polled.marks[0].passes] == [(1, 3, 6)]
    paths = [request.raw_path for request in polled.provider.requests]
    assert "/projects/a%20b/issues?since=2023-12-31T23:59:59.999Z" in paths
    assert any(path.startswith("/projects/c%2Fd/issues") for path in paths)
    assert not any("/old/" in path for path in paths)
    assert [page.request_token for page in polled.pages[:3]] == [None, "2", None]
    last = polled.state.plans["interval"]
    assert last.complete_before == polled.marks[0].end


CHANGED = ISSUES.replace(
    "parent: {stream: projects, when: {archived: {not: true}}}",
    "parent: {stream: projects, on: changed}",
).replace(
    "plan: {snapshot: {every: 1d}}",
    """plan:
          interval: {time: touched, start: 2024-01-01, get: /touched, bounds: "[)", pages: none, settle: 1s,
                     params: {after: "{start}", before: "{end}", page: null}}
          snapshot: {every: 1d}""",
)


def test_changes_of_the_parents_that_changed_and_the_listing_of_all(tmp_path: Path) -> None:
    """Since when is asked in the parents' own format; there is no end: they may change again."""
    asked: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/touched":
            asked.append(dict(request.query))
            return web.json_response({"projects": [PROJECTS[2]]})
        return await serve(request)

    polled = run(tmp_path, CHANGED, handler)
    assert polled.blocked == ""
    assert asked == [{"after": "2024-01-01T00:00:00Z"}]
    assert _issues(polled.pages, "interval") == ["c0", "c1", "c2"]
    assert set(_issues(polled.pages, "snapshot")) == {
        *("a b0", "a b1", "a b2"), *("c0", "c1", "c2"), *("old0", "old1", "old2"),
    }  # fmt: skip
    kinds = [mark.kind for mark in polled.marks]
    assert kinds == ["interval_complete", "snapshot_begin", "snapshot_complete"]


def test_a_parent_that_cannot_be_asked_stalls_visibly_and_is_asked_again(tmp_path: Path) -> None:
    denied = [True]

    async def handler(request: web.Request) -> web.StreamResponse:
        if denied[0] and request.path.startswith("/projects/c"):
            return web.json_response({}, status=403)
        return await serve(request)

    async def main() -> Polled:
        async with polling(tmp_path, ISSUES, handler) as polled:
            await polled.poll()
            assert "403" in polled.blocked
            assert not [m for m in polled.marks if m.kind == "interval_complete"]
            denied[0] = False
            before = len(polled.provider.requests)
            polled.poller.restore(polled.state)
            await polled.poll()
            asked = [request.path for request in polled.provider.requests[before:]]
            assert not any(path.startswith("/projects/a") for path in asked[:4])
            return polled

    polled = asyncio.run(main())
    assert polled.marks[0].kind == "interval_complete"
    assert set(_issues(polled.pages, "interval")) == {"a b0", "a b1", "a b2", "c0", "c1", "c2"}


def test_a_parent_that_goes_while_it_is_listed_is_asked_no_more(tmp_path: Path) -> None:
    """Else the stream would wait for what nobody can answer, until a new owner lists the parents."""
    gone: set[str] = set()
    often = ISSUES.replace(
        "params: {since: null}}", "params: {since: null}}\n        schedule: {every: 1s}"
    )

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/projects":
            answer = await serve(request)
            left = [one for one in _projects(answer) if one["key"] not in gone]
            return web.json_response({"projects": left})
        if request.path.startswith("/projects/c"):
            gone.add("c/d")
            return web.json_response({}, status=404)
        return await serve(request)

    async def main() -> Polled:
        async with polling(tmp_path, often, handler) as polled:
            await polled.poll()
            assert "404" in polled.blocked
            await until(lambda: polled.poller.due_at <= now_us(), 5, "the next poll is due")
            await polled.poll()
            return polled

    polled = asyncio.run(main())
    assert polled.blocked == ""
    assert {"interval_complete", "snapshot_complete"} <= {mark.kind for mark in polled.marks}
    assert set(_issues(polled.pages, "interval")) == {"a b0", "a b1", "a b2"}


def _projects(answer: web.StreamResponse) -> list[dict[str, Any]]:
    assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
    found: list[dict[str, Any]] = json.loads(answer.body)["projects"]
    return found


def test_a_parent_without_the_field_that_is_sent_stalls(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/projects":
            return web.json_response({"projects": [{"id": 1}] * (request.query["page"] == "1")})
        return await serve(request)

    assert "{parent.key} has no value" in run(tmp_path, ISSUES, handler).blocked


def test_an_error_taken_for_no_parents_completes_no_snapshot(tmp_path: Path) -> None:
    """Else every row would count as absent."""
    gone = ISSUES.replace(
        "        records: body.projects\n",
        "        records: body.projects\n"
        "        errors: [{when: {status: 410}, do: treat_as_empty, because: switched off}]\n",
    )

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/projects":
            return web.json_response({}, status=410)
        return await serve(request)

    polled = run(tmp_path, gone, handler)
    kinds = [mark.kind for mark in polled.marks]
    assert "caught_up" in kinds and "snapshot_begin" in kinds
    assert "snapshot_complete" not in kinds


def test_a_cached_listing_from_before_the_intervals_end_is_no_proof(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = await serve(request)
        if request.path == "/projects":
            answer.headers["Age"] = "3600"
        return answer

    polled = run(tmp_path, ISSUES, handler)
    assert "a cache answered" in polled.blocked
    assert not polled.marks
