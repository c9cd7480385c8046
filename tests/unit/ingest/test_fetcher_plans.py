"""Polls of keyset plans, of GraphQL, of runs, and of listings without a filter, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from msgspec.structs import replace as changed

from ingest.emission import StreamState
from ingest.plans.ranges import to_text, to_us
from schemas.records import KeptSnapshot, PlanState
from tests.unit.ingest.polling import EVENTS, Polled, polling, run, stamp

POCKET = """\
    gapless: 1
    source: pocket
    base_url: URL
    limits: {attempts: 2}
    streams:
      items:
        get: /records
        params: {perPage: "{size}"}
        records: body.items
        pages: {size: 3, end: empty, stable: true}
        plan:
          keyset:
            time: updated
            start: 2020-01-01
            format: "%Y-%m-%d %H:%M:%S.%3fZ"
            settle: 1s
            lookback: LOOKBACK
            params:
              sort: updated,id
              filter: "(updated>'{after.time}' || (updated='{after.time}' && id>'{after.id}'))
                && updated<'{until}'"
          snapshot: {every: 1d, params: {sort: id, filter: "id>'{last.id}'"}}
    """


def _shown(seconds: float) -> str:
    return stamp(seconds).replace("T", " ")


class Pocket:
    """Understands just these filters, and compares times as texts."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        said = request.query.get("filter", "")
        rows = sorted(self.rows, key=lambda r: (r["updated"], r["id"]))
        if said.startswith("id>"):
            after = said.removeprefix("id>'").removesuffix("'")
            rows = sorted((r for r in self.rows if r["id"] > after), key=lambda r: r["id"])
        elif said:
            words = said.split("'")
            time, id_, until = words[1], words[5], words[7]
            assert words[3] == time
            rows = [
                r for r in rows if (r["updated"], r["id"]) > (time, id_) and r["updated"] < until
            ]
        return web.json_response({"items": rows[: int(request.query["perPage"])]})


def test_a_keyset_from_its_start_to_its_mark_with_a_snapshot_beside_it(tmp_path: Path) -> None:
    tied = _shown(60)
    pocket = Pocket([{"id": f"r{n}", "updated": tied} for n in range(7)])
    polled = run(tmp_path, POCKET.replace("LOOKBACK", "10m"), pocket)
    changes = [p for p in polled.pages if p.plan == "keyset"]
    assert [json.loads(r)["id"] for p in changes for r in p.records] == [f"r{n}" for n in range(7)]
    first, second = polled.provider.asked[:2]
    assert first["filter"].startswith("(updated>'2019-12-31 23:59:59.999Z' || ")
    assert "&& id>'')" in first["filter"]
    assert f"(updated='{tied}' && id>'r2')" in second["filter"]
    state = polled.state.plans["keyset"]
    assert not state.open
    assert next(m.kind for m in polled.marks if m.plan == "keyset") == "interval_complete"
    listed = [json.loads(r)["id"] for p in polled.pages if p.plan == "snapshot" for r in p.records]
    assert listed == [f"r{n}" for n in range(7)]
    assert polled.marks[-1].kind == "snapshot_complete"


def test_a_later_poll_of_a_keyset_begins_a_lookback_before_what_is_complete(tmp_path: Path) -> None:
    pocket = Pocket([{"id": "a", "updated": _shown(3600)}])

    async def main() -> Polled:
        async with polling(tmp_path, POCKET.replace("LOOKBACK", "10m"), pocket) as polled:
            await polled.poll()
            seen = len(polled.provider.asked)
            due = changed(polled.state.plans["keyset"], polled_at=None)
            polled.poller.restore(replace(polled.state, plans={"keyset": due}))
            pocket.rows.append({"id": "b", "updated": _shown(120)})
            await polled.poll()
            asked = next(a for a in polled.provider.asked[seen:] if a["sort"] == "updated,id")
            begin = to_us(due.complete_before or "") - 600_000_000 - 1_000
            shown = to_text(begin).replace("T", " ")[:23]
            assert asked["filter"].startswith(f"(updated>'{shown}Z' || ")
            return polled

    polled = asyncio.run(main())
    changes = [json.loads(r)["id"] for p in polled.pages if p.plan == "keyset" for r in p.records]
    assert changes == ["a", "b"]


def test_a_plan_that_was_replaced_leaves_the_checkpoint_and_claims_nothing(tmp_path: Path) -> None:
    """Its lag would grow for ever; what a snapshot left in the log stays known."""
    pocket = Pocket([{"id": "a", "updated": _shown(3600)}])
    text = POCKET.replace("LOOKBACK", "10m")
    without_snapshot = "\n".join(line for line in text.split("\n") if "snapshot:" not in line)

    async def main() -> Polled:
        async with polling(tmp_path, without_snapshot, pocket) as polled:
            old = PlanState(definition_hash="h", complete_before="2024-01-01T00:00:00.000000Z")
            kept = PlanState(definition_hash="h", previous=[KeptSnapshot(snapshot_id="s")])
            plans = {"interval": old, "cursor": old, "snapshot": kept}
            polled.poller.restore(StreamState(plans=plans))
            await polled.poll()
            return polled

    state = asyncio.run(main()).state
    assert sorted(state.plans) == ["keyset", "snapshot"]
    assert state.plans["snapshot"].previous[0].snapshot_id == "s"


GRAPHQL = """\
    gapless: 1
    source: shop
    base_url: URL
    limits: {attempts: 2}
    streams:
      orders:
        post: /graphql
        graphql: "query($after: String) { orders(after: $after) { nodes { id t } } }"
        variables: {after: "{token}", since: "{start}", until: "{end}", first: "{size}"}
        records: body.data.orders.nodes
        pages: {next: body.data.orders.cursor, end: {body.data.orders.more: false}, size: 2,
                stable: true}
        deletes: shown
        plan: {interval: {time: t, start: 2024-01-01, settle: 1s, width: 100000d}}
    """


def _nodes(ids: list[int], cursor: str | None, more: bool) -> dict[str, Any]:
    nodes = [{"id": n, "t": stamp(60)} for n in ids]
    return {"data": {"orders": {"nodes": nodes, "cursor": cursor, "more": more}}}


def test_graphql_turns_its_pages_by_variables(tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        bodies.append(body)
        if "after" not in body["variables"]:
            return web.json_response(_nodes([1, 2], "c=", True))
        return web.json_response(_nodes([3], "end", False))

    polled = run(tmp_path, GRAPHQL, handler)
    assert [json.loads(r)["id"] for r in polled.records] == [1, 2, 3]
    assert bodies[0]["query"] == bodies[1]["query"]
    assert bodies[0]["query"].startswith("query($after: String) { orders")
    assert bodies[0]["variables"]["first"] == 2, "a lone placeholder keeps its type"
    assert bodies[1]["variables"]["after"] == "c="
    assert polled.marks[-1].kind == "interval_complete"


def test_errors_beside_the_data_are_no_page(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({**_nodes([1], None, False), "errors": [{"message": "timeout"}]})

    polled = run(tmp_path, GRAPHQL, handler)
    assert "no answer after 2 attempts" in polled.blocked
    assert polled.pages == []


def test_an_empty_list_of_errors_is_none(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({**_nodes([1], None, False), "errors": []})

    assert len(run(tmp_path, GRAPHQL, handler).records) == 1


def test_every_page_and_mark_of_a_run_carries_its_name(tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(days=2)
    nightly = (
        EVENTS.replace("schedule: {every: 1m}", "schedule: {cron: '0 0 * * *', zone: UTC}")
        .replace("start: 2024-01-01", f"start: {past:%Y-%m-%d}")
        .replace("lookback: 1s", "lookback: none")
        .replace('limit: "{size}"', 'run: "{run.id}", day: "{run.date}", till: "{run.end}"')
        .replace("size: 2, ", "")
    )

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"items": [{"id": 1, "t": request.query["from"]}], "next": None})

    polled = run(tmp_path, nightly, handler)
    ends = [(past + timedelta(days=n)).date() for n in (1, 2)]
    names = [f"shop/events@{end}T00:00:00Z" for end in ends]
    assert [page.run for page in polled.pages] == names
    assert [mark.run for mark in polled.marks] == names
    assert [asked["run"] for asked in polled.provider.asked] == names
    assert [asked["day"] for asked in polled.provider.asked] == [str(end) for end in ends]
    assert [asked["till"] for asked in polled.provider.asked] == [
        f"{end}T00:00:00.000Z" for end in ends
    ]
    assert [(mark.start or "")[11:19] for mark in polled.marks] == ["00:00:00"] * 2
    asked = len(polled.provider.asked)
    assert asked == 2, "the run of today is not over"
    assert polled.poller.due_at > datetime.now(UTC).timestamp() * 1e6


NEWEST_FIRST = """\
    gapless: 1
    source: shop
    base_url: URL
    streams:
      notes:
        get: /notes
        params: {page: "{page}", sort: "-t"}
        records: body.items
        pages: {end: empty}
        deletes: shown
        plan: {interval: {time: t, format: rfc3339_ms, start: 2024-01-01, order: desc, settle: 1s,
                          lookback: 1s}}
    """


def test_a_listing_without_a_filter_is_read_until_it_is_behind_the_start(tmp_path: Path) -> None:
    rows = [{"id": n, "t": stamp(3600 * n + 30)} for n in range(9)]
    rows.append({"id": 99, "t": "2023-06-01T00:00:00.000Z"})

    async def handler(request: web.Request) -> web.Response:
        first = 2 * (int(request.query["page"]) - 1)
        return web.json_response({"items": rows[first : first + 2]})

    polled = run(tmp_path, NEWEST_FIRST, handler)
    assert {json.loads(r)["id"] for r in polled.records} >= set(range(9))
    pages = [int(asked["page"]) for asked in polled.provider.asked]
    assert pages == [1, 2, 3, 4, 5] * 2, "the pages may shift: it is walked twice, and no further"
    assert polled.marks[-1].kind == "interval_complete"
