"""Answers that are nearly pages: whatever stands beside a token must not hide it, and end a walk."""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from ingest.bounds import RECORDS_MAX
from ingest.plans.opaque import give
from tests.unit.ingest.polling import EVENTS, one_page, page, polling, run, stamp

LINES = """\
    gapless: 1
    source: shop
    base_url: URL/v1
    streams:
      events:
        get: /events
        params: {from: "{start}", to: "{end}"}
        records: body
        read_as: ndjson
        pages: none
        deletes: not_shown
        plan:
          interval: {time: t, format: rfc3339_ms, start: 2024-01-01, bounds: "[)", settle: 1s,
                     width: 100000d}
        schedule: {every: 1m}
    """

LINKS = EVENTS.replace('after: "{token}", ', "").replace(
    "next: body.next", "next: body.next, next_is: link"
)


def record(number: int) -> bytes:
    return json.dumps({"id": number, "t": stamp(60)}).encode()


def first_with(beside: bytes, token: bytes = b'"two"') -> web.Response:
    body = b'{"items": [%s], "beside": %s, "next": %s}' % (record(1), beside, token)
    return web.Response(body=body, content_type="application/json")


@pytest.mark.parametrize(
    "beside",
    [b"NaN", b"-Infinity", b"1e999", b'"caf\xe9"', b'"\\ud800"', b'"a\x01b"', b"9" * 400],
    ids=["nan", "infinity", "huge", "latin1", "surrogate", "control", "digits"],
)
def test_the_next_token_is_found_whatever_stands_beside_it(tmp_path: Path, beside: bytes) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return one_page(request) if "after" in request.query else first_with(beside)

    polled = run(tmp_path, EVENTS, handler)
    assert [asked.get("after") for asked in polled.provider.asked] == [None, "two"]
    assert len(polled.records) == 2
    assert [mark.kind for mark in polled.marks] == ["interval_complete"]


@pytest.mark.parametrize(
    ("beside", "token"),
    [(b"[" * 100_000 + b"]" * 100_000, b'"two"'), (b"1", b'"\\ud800"'), (b"1", b'"\xff"')],
    ids=["deep", "surrogate", "no_utf8"],
)
def test_what_cannot_be_read_or_kept_is_no_last_page(
    tmp_path: Path, beside: bytes, token: bytes
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return first_with(beside, token)

    polled = run(tmp_path, EVENTS, handler)
    assert not polled.marks
    assert "body.next" in polled.blocked


def test_an_answer_of_too_many_records_is_refused_and_says_what_to_ask(tmp_path: Path) -> None:
    async def many(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'{"items": [' + b"0," * RECORDS_MAX + b"0]}")

    polled = run(tmp_path, EVENTS.replace("body_max: 1MiB", "body_max: 4MiB"), many)
    assert "more than 500,000 records" in polled.blocked
    assert polled.state.blocked is not None
    assert "`pages.size`" in polled.state.blocked.unblocked_by
    assert not polled.marks and not polled.pages


def test_a_rule_looks_into_a_large_answer(tmp_path: Path) -> None:
    """One value is read of it; all that stands beside would take a hundred times its bytes."""

    async def many(request: web.Request) -> web.StreamResponse:
        body = b'{"items": [], "beside": [' + b"[]," * 1_000_000 + b'0], "error": {"code": "cold"}}'
        return web.Response(body=body)

    rule = "errors: [{when: {status: 200, body.error.code: cold}, do: fail}]\n"
    text = EVENTS.replace("body_max: 1MiB", "body_max: 4MiB")
    text = text.replace("deletes: not_shown\n", f"deletes: not_shown\n        {rule}")
    polled = run(tmp_path, text, many)
    assert "answered 200" in polled.blocked


def test_a_long_number_goes_back_unchanged(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "after" in request.query:
            return one_page(request)
        return first_with(b"1", b"18446744073709551617")

    polled = run(tmp_path, EVENTS, handler)
    assert polled.provider.asked[1]["after"] == "18446744073709551617"
    assert give(str(polled.pages[1].request_token)) == 18446744073709551617


@pytest.mark.parametrize(
    "body",
    [
        b"<html>\n<body>\nBad gateway\n</body>\n</html>\n",
        b"internal error\n",
        record(1) + b"\n" + record(2)[:20],
    ],
    ids=["html", "text", "cut"],
)
def test_lines_that_are_no_records_do_not_make_an_interval_complete(
    tmp_path: Path, body: bytes
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    polled = run(tmp_path, LINES, handler)
    assert not polled.marks and not polled.records
    assert "not a page" in polled.blocked


def test_one_bad_line_costs_itself_alone(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"garbage\n" + record(1) + b"\n" + record(2))

    polled = run(tmp_path, LINES, handler)
    assert len(polled.records) == 3
    assert [mark.kind for mark in polled.marks] == ["interval_complete"]


@pytest.mark.parametrize(
    "port", ["99999", "x"], ids=["port_out_of_range", "port_that_is_no_number"]
)
def test_a_link_that_is_no_url_blocks_and_says_so(tmp_path: Path, port: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"items": [], "next": f"http://127.0.0.1:{port}/x"})

    assert "no URL" in run(tmp_path, LINKS, handler).blocked


@pytest.mark.parametrize("following", [5, True, {"href": "/x"}], ids=str)
def test_a_link_that_is_no_text_is_not_followed(tmp_path: Path, following: object) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"items": [], "next": following})

    assert "the next link is no text" in run(tmp_path, LINKS, handler).blocked


def test_answers_with_a_time_long_past_hold_the_polls_up_no_longer_than_they_come(
    tmp_path: Path,
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return one_page(request)

    async def main() -> None:
        async with polling(tmp_path, EVENTS, handler) as polled:
            polled.provider.dates = ["Thu, 01 Jan 1970 00:00:00 GMT"] * 4
            await polled.poll()
            assert polled.provider.asked[0]["to"] >= stamp(30)

    asyncio.run(main())


def test_one_answer_with_a_time_far_ahead_is_not_believed_alone(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return one_page(request)

    async def main() -> None:
        async with polling(tmp_path, EVENTS, handler) as polled:
            polled.provider.dates = [formatdate(time.time() + 86_400, usegmt=True)]
            await polled.poll()
            assert polled.provider.asked[0]["to"] <= stamp(0)

    asyncio.run(main())


def test_a_provider_whose_time_is_two_hours_ahead_of_its_rows_loses_none(tmp_path: Path) -> None:
    """Its answers and its rows come from machines of which one is wrong; every poll looks again."""
    rows = [{"id": 1, "t": stamp(60)}]

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = request.query
        return page([row for row in rows if asked["from"] <= str(row["t"]) < asked["to"]])

    async def main() -> None:
        async with polling(tmp_path, EVENTS.replace("every: 1m", "every: 1s"), handler) as polled:
            polled.provider.date = formatdate(time.time() + 7_200, usegmt=True)
            await polled.poll()
            rows.append({"id": 2, "t": stamp(0)})
            await asyncio.sleep(1)  # the schedule
            polled.provider.date = formatdate(time.time() + 7_200, usegmt=True)
            await polled.poll()
            seen = {json.loads(record)["id"] for record in polled.records}
            assert seen == {1, 2}

    asyncio.run(main())
