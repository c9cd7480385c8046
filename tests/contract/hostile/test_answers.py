"""Answers that are late, refused, broken, too large, or say something else than their status."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.hostile.scene import FEED, WINDOW, Scene


def fault(scene: Scene, kind: str, **more: Any) -> None:
    path = f"/t/{scene.tenant}/accounts"
    scene.provider.faults({"path": path, "kind": kind, **more})


def rule(when: str, do: str) -> tuple[str, str]:
    return (
        "records: body.items",
        f"records: body.items\n    errors: [{{when: {{{when}}}, do: {do}}}]",
    )


def test_a_503_on_one_poll(scene: Scene) -> None:
    scene.fill(8)
    scene.poll(WINDOW)
    scene.put()
    fault(scene, "status", status=503)
    scene.poll(WINDOW)
    assert "503" in scene.blocked and scene.skipped() == []
    scene.provider.faults()
    scene.poll(WINDOW)
    scene.whole()


def test_a_500_for_one_tenants_second_page_holds_nobody_else_up(scene: Scene) -> None:
    other = scene.beside()
    scene.fill(8)
    other.fill(8)
    fault(scene, "status", status=500, nth=[2, 3, 4])
    scene.poll(WINDOW, beside=other)
    assert "500" in scene.blocked and scene.claimed() == []
    assert len(scene.records) == 3, "the first page is there, and named by nothing yet"
    other.whole()
    scene.provider.faults()
    scene.poll(WINDOW, beside=other)
    scene.whole()
    other.whole()
    assert len(scene.records) == 8, "it goes on behind the first page"


def test_a_rate_limit_inside_a_200_body(scene: Scene) -> None:
    scene.fill(8)
    body = '{"error": {"code": "slow_down"}, "retry_in": 1, "items": []}'
    fault(scene, "status", status=200, body=body, nth=2)
    scene.poll(WINDOW, rule("status: 200, body.error.code: slow_down", "rate_limited"))
    assert [entry["fault"] for entry in scene.asked()].count("status") == 1
    scene.whole()


def test_an_error_object_under_200_is_no_page_even_if_nobody_declared_it(scene: Scene) -> None:
    scene.fill(8)
    fault(scene, "status", status=200, body='{"error": "down for maintenance"}')
    scene.poll(WINDOW)
    assert "body.items" in scene.blocked and scene.claimed() == []
    scene.provider.faults()
    scene.poll(WINDOW)
    scene.whole()


def test_an_error_object_beside_an_empty_list_under_200_is_what_the_rule_says(
    scene: Scene,
) -> None:
    scene.fill(8)
    fault(scene, "status", status=200, body='{"error": "shard 3 timed out", "items": []}', nth=3)
    scene.poll(WINDOW, rule("status: 200, body.error: {exists: true}", "retry"))
    scene.whole()


def test_html_under_200_is_no_page(scene: Scene) -> None:
    scene.fill(8)
    fault(scene, "html", nth=[2])
    scene.poll(WINDOW)
    scene.whole()
    fault(scene, "html")
    scene.put()
    scene.poll(WINDOW)
    assert "not a page" in scene.blocked and scene.skipped() == []
    scene.provider.faults()
    scene.poll(WINDOW)
    scene.whole()


def test_a_gzip_bomb_is_refused_and_the_next_answer_is_read(scene: Scene) -> None:
    scene.fill(8)
    fault(scene, "gzip_bomb", bomb_bytes=64 * 1024 * 1024, nth=2)
    scene.poll(WINDOW)
    assert "body_max" in scene.blocked and scene.claimed() == []
    scene.poll(WINDOW)
    scene.whole()


def test_a_byte_order_mark(scene: Scene) -> None:
    scene.fill(8)
    fault(scene, "bom")
    scene.poll(WINDOW)
    assert {entry["fault"] for entry in scene.asked()} == {"bom"}
    scene.whole()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id": "odd", "version": 1, "name": "caf\xe9 \xff\xfe"}',
        b'{"id": "odd", "version": 1, "name": "\\ud800 half a pair"}',
        b'{"id": "odd", "version": 1, "n": 123456789012345678901234567890}',
        b'{"id": "odd", "version": 1, "n": NaN, "m": -Infinity}',
        b'{"id": "odd", "version": 1, "n": 1e999, "m": 0.1000000000000000055511151231257827}',
        b'{"id": "odd", "id": "even", "version": 1, "version": 2}',
    ],
    ids=["bad_utf8", "lone_surrogate", "large_integer", "nan", "large_float", "duplicate_keys"],
)
@pytest.mark.parametrize("definition", [WINDOW, FEED], ids=["interval", "cursor"])
def test_odd_json_is_kept_to_the_byte_and_costs_nobody_else(
    scene: Scene, definition: str, raw: bytes
) -> None:
    scene.fill(4)
    scene.put(id="odd", raw=raw)
    scene.put()
    scene.poll(definition)
    assert scene.blocked == ""
    assert scene.records.count(raw) == 1
    assert scene.found() >= {(f.id, f.version) for f in scene.live() if f.raw is None}
    if definition is WINDOW:
        scene.whole()


def test_a_token_that_expires_during_a_long_wait(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(token_lifetime_s=60.0)
    fault(scene, "status", status=429, headers={"Retry-After": "3600"}, nth=2)
    change = rule("status: 410", "token_expired")
    scene.poll(WINDOW, change)
    assert scene.blocked == "" and scene.claimed() == []
    until = scene.state.not_before
    assert until is not None and 3_500 < (until - scene.now_us()) / 1e6 < 3_700
    scene.poll(WINDOW, change)
    assert scene.asked() == [], "it was asked before the wait was over"
    scene.poll(WINDOW, change, wait_s=3_700)
    assert 410 in [entry["status"] for entry in scene.asked()]
    scene.whole()


@pytest.mark.parametrize("kind", ["close", "reset"])
def test_a_connection_that_ends_without_an_answer(scene: Scene, kind: str) -> None:
    scene.fill(8)
    fault(scene, kind, nth=2)
    scene.poll(WINDOW)
    scene.whole()


def test_a_wait_told_inside_a_200_body_is_as_long_as_it_says(scene: Scene) -> None:
    scene.fill(8)
    body = '{"error": {"code": "slow_down"}, "retry_in": 900, "items": []}'
    fault(scene, "status", status=200, body=body, nth=2)
    wait = "rate_limited, wait: body.retry_in"
    change = rule("body.error.code: slow_down", wait)
    began = time.monotonic()
    scene.poll(WINDOW, change)
    assert time.monotonic() - began < 60
    assert 800 < ((scene.state.not_before or 0) - scene.now_us()) / 1e6 < 1_000
    scene.poll(WINDOW, change, wait_s=1_000)
    scene.whole()
