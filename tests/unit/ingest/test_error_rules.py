"""What the error rules of a definition make of a poll, by status, header and body."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import web

from tests.unit.ingest.polling import EVENTS, page, run, stamp

ACTIONS = [
    ("success", "", "not a page"),
    ("fail", "", "answered 418"),
    ("retry", ", wait: 10ms", "no answer after 3 attempts"),
    ("rate_limited", ", wait: 1h", "waits"),
    ("refresh_credentials", "", "refuses the credentials (418)"),
    ("park", ", wait: 2h", "waits"),
    ("park", ", until: body.until", "waits"),
    ("park", ", until: header.x-until", "waits"),
    ("treat_as_empty", ", because: that is how they say it", ""),
]


WHEN = ["{status: 418}", "{header.x-code: tea}", "{body.code: tea}"]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize(("action", "more", "said"), ACTIONS)
def test_a_rule_by_status_header_or_body_decides(
    tmp_path: Path, when: str, action: str, more: str, said: str
) -> None:
    rules = f"errors: [{{when: {when}, do: {action}{more}}}]\n        records: body.items"
    until = int(time.time()) + 7200

    async def teapot(request: web.Request) -> web.StreamResponse:
        headers = {"X-Code": "tea", "X-Until": str(until)}
        return web.json_response({"code": "tea", "until": until}, status=418, headers=headers)

    polled = run(tmp_path, EVENTS.replace("records: body.items", rules), teapot)
    if said == "waits":
        assert polled.blocked == ""
        left_s = (polled.state.not_before or 0) / 1e6 - time.time()
        assert 3500 < left_s < 7300
        assert action == "rate_limited" or left_s > 7100
    else:
        assert said in polled.blocked and bool(said) == bool(polled.blocked)


def test_what_is_gone_at_the_provider_is_a_gap_and_what_is_too_much_is_split(
    tmp_path: Path,
) -> None:
    rules = (
        "errors: [{when: {body.code: too_many}, do: split_interval},\n"
        "                 {when: {body.code: gone}, do: source_gap}]\n        records: body.items"
    )

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.query["to"] > "2025":
            if request.query["from"] < "2024-06":
                return web.json_response({"code": "too_many"}, status=422)
            return page([{"id": 1, "t": stamp(60)}])
        return web.json_response({"code": "gone"}, status=410)

    polled = run(tmp_path, EVENTS.replace("records: body.items", rules), handler)
    kinds = {mark.kind for mark in polled.marks}
    assert polled.blocked == "" and {"gap", "interval_complete"} <= kinds, kinds


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("action", ["token_expired", "split_interval", "source_gap"])
def test_a_rule_may_say_that_something_else_is_to_be_asked(
    tmp_path: Path, when: str, action: str
) -> None:
    rules = f"errors: [{{when: {when}, do: {action}}}]\n        records: body.items"
    refused: list[str] = []

    def wrong(asked: Mapping[str, str]) -> bool:
        if action == "token_expired":
            return "after" in asked and not refused
        return asked["from"] < "2024-06" and (action == "source_gap" or asked["to"] > "2025")

    async def handler(request: web.Request) -> web.StreamResponse:
        asked = request.query
        if wrong(asked):
            refused.append(str(request.rel_url))
            return web.json_response({"code": "tea"}, status=418, headers={"X-Code": "tea"})
        return page([{"id": 1, "t": stamp(60)}], None if "after" in asked else "two")

    polled = run(tmp_path, EVENTS.replace("records: body.items", rules), handler)
    kinds = {mark.kind for mark in polled.marks}
    assert polled.blocked == "" and refused
    assert kinds == {"interval_complete"} | ({"gap"} if action == "source_gap" else set())
    complete = [mark for mark in polled.marks if mark.kind == "interval_complete"]
    assert len({page.pass_ for page in polled.pages}) > 1 or action == "source_gap"
    assert (
        max(mark.end or "" for mark in complete) == polled.state.plans["interval"].complete_before
    )
    if action == "token_expired":
        assert [asked.get("after") for asked in polled.provider.asked] == [None, "two", None, "two"]
