"""Plans that are classes of the user's, against a real HTTP server in this process."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

import pytest
from aiohttp import web
from msgspec.structs import replace

from ingest.emission import StreamState
from schemas.records import PlanState
from tests.unit.ingest.polling import Handler, Polled, polling

HEAD = '''\
"""A plan for a test."""
import json, time
from datetime import timedelta
from ingest.python_plan import Complete, Fault, Page, Request, WaitUntil

class Export:
    def __init__(self, settings, tenant):
        self.settings, self.tenant, self.position, self.over = settings, tenant, 0, False
    def restore(self, state, now):
        self.position = int(state or b"0")
    def state(self):
        return str(self.position).encode()
    def ask(self, now):
        if self.over:
            self.over = False
            return Complete()
        return Request("/rows", params={"from": self.position})
    def take(self, request, answer):
        rows = answer.json()["rows"]
        self.position += len(rows)
        self.over = not rows
        return Page([json.dumps(row).encode() for row in rows], envelope=b"{}")
'''


@pytest.fixture
def module(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of definitions and the name of a module in it that no other test has."""
    yield tmp_path, f"jobs_{secrets.token_hex(6)}"


def source(module: str, extra: str = "", plan: str = "") -> str:
    """`extra`: lines of the source; `plan`: lines below `plan:`, indented as they stand there."""
    head = "gapless: 1\nsource: shop\nbase_url: URL/v1\n"
    head += f"limits: {{attempts: 3, timeout: 10s, wait_max: 2s}}\n{extra}\n"
    stream = "streams:\n  rows:\n    deletes: shown\n    schedule: {every: 1h}\n"
    own = f"    plan:\n      python:\n        class: {module}:Export\n        hang: 2s\n"
    return f"{head}{stream}{own}{plan}\n"


def run(
    at: tuple[Path, str],
    handler: Handler,
    code: str = "",
    *,
    polls: int = 1,
    extra: str = "",
    plan: str = "",
    restored: StreamState | None = None,
) -> Polled:
    """So many polls of the class in HEAD, with `code` as its last methods."""
    folder, module = at
    (folder / f"{module}.py").write_text(HEAD + indent(dedent(code), "    "))

    async def main() -> Polled:
        async with polling(folder, source(module, extra, plan), handler) as polled:
            polled.poller.restore(restored)
            for _ in range(polls):
                await polled.poll()
            return polled

    return asyncio.run(main())


def rows(total: int, size: int = 3) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        first = int(request.query["from"])
        found = [{"id": n} for n in range(first, min(first + size, total))]
        return web.json_response({"rows": found})

    return handler


def ids(polled: Polled) -> list[int]:
    return [json.loads(record)["id"] for record in polled.records]


def state(polled: Polled) -> bytes | None:
    return polled.state.plans["python"].state


def test_the_class_asks_and_its_state_stands_behind_its_pages(module: tuple[Path, str]) -> None:
    polled = run(module, rows(7))
    assert ids(polled) == list(range(7))
    assert [len(e.observations) for e in polled.emissions] == [1, 1, 1, 0]
    assert [e.state.plans["python"].state for e in polled.emissions] == [b"3", b"6", b"7", b"7"]
    first = polled.pages[0]
    assert first.url.endswith("/v1/rows?from=0")
    assert (first.plan, first.page, first.envelope) == ("python", 1, b"{}")
    assert first.as_of is not None and first.as_of < first.requested_at
    [mark] = polled.marks
    assert mark.kind == "caught_up"
    assert polled.state.plans["python"].walk is None
    assert polled.poller.due_at > first.received_at + 3_000_000_000


def test_it_goes_on_from_its_stored_state(module: tuple[Path, str]) -> None:
    first = run(module, rows(4)).state
    due = {n: _due(plan) for n, plan in first.plans.items()}
    again = run(module, rows(9), restored=StreamState(plans=due))
    assert ids(again) == [4, 5, 6, 7, 8]


def test_wherever_it_is_interrupted_nothing_is_left_out(module: tuple[Path, str]) -> None:
    whole = run(module, rows(7)).emissions
    for stored in range(1, len(whole)):
        kept = [
            json.loads(record)["id"]
            for emission in whole[:stored]
            for page in emission.observations
            for record in page.records
        ]
        again = run(module, rows(7), restored=whole[stored - 1].state)
        assert kept + ids(again) == list(range(7))
        assert again.marks[-1].kind == "caught_up"


def _due(plan: PlanState) -> PlanState:
    return replace(plan, polled_at=None)


def test_settings_secrets_and_tenant_reach_the_class(
    module: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "open sesame")
    code = """
        def ask(self, now):
            if self.over: return Complete()
            signed = self.settings["key"][::-1] + self.tenant["id"] + str(self.settings["n"])
            return Request("/rows", params={"from": 0, "sig": signed}, headers={"X-Own": "1"})
        def take(self, request, answer):
            self.over = True
            return Page([b'{"id": 1}'])
    """
    seen: list[tuple[str, str | None, str | None]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(
            (request.query["sig"], request.headers.get("X-Own"), request.headers.get("X-All"))
        )
        return web.json_response({})

    polled = run(
        module,
        handler,
        code,
        extra="tenants: {list: [{id: north}]}\nheaders: {X-All: every}",
        plan="        settings: {key: {env: SHOP_KEY}, n: 5}",
    )
    assert seen == [("emases neponorth5", "1", "every")]
    assert polled.blocked == ""


BROKEN = [
    ("def ask(self, now): raise ValueError('a secret text')", "ask raised ValueError at jobs_"),
    ("def ask(self, now): return 5", "ask returned int"),
    ("def ask(self, now): return Request('rows')", "does not begin with /"),
    ("def ask(self, now): return Request('/../x')", "climbs out of base_url"),
    ("def ask(self, now): return Request('/x', body=object())", "cannot be written as JSON"),
    ("def ask(self, now): return Request(link='http://elsewhere.test/')", "another origin"),
    ("def ask(self, now): time.sleep(60)", "ask hangs: no return within"),
    ("def take(self, request, answer): return None", "take returned NoneType"),
    ("def take(self, request, answer): return Page([{'id': 1}])", "records that are not bytes"),
    ("def take(self, request, answer): return Page(b'text')", "no list of bytes"),
    ("def take(self, request, answer): return answer.nothing", "take raised AttributeError"),
    ("def take(self, request, answer): return Fault('explode', 'x')", "take raised ValueError"),
    ("def take(self, request, answer): return Fault('fail', 'gone wrong')", "gone wrong"),
    ("def take(self, request, answer): return Fault('retry', 'not ready')", "not ready"),
    ("def state(self): return 'text'", "state returned str"),
    ("def state(self): return b'x' * 50_000", "a checkpoint holds 49,152"),
    ("def restore(self, state, now): import sys; sys.exit(1)", "restore raised SystemExit"),
    ("def __init__(self, settings): pass", "__init__ raised TypeError"),
    ("ask = None", "the class has no ask"),
    ("    nonsense(", "importing it raised SyntaxError"),
]


@pytest.mark.parametrize(("code", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
def test_what_a_class_does_wrong_blocks_its_partition_id_alone(
    module: tuple[Path, str], code: str, reason: str
) -> None:
    polled = run(module, rows(7), code)
    assert reason in polled.blocked
    assert "a secret text" not in polled.blocked
    assert polled.marks == []
    assert polled.state.plans["python"].state is None
    assert polled.state.blocked is not None and polled.state.blocked.unblocked_by


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module_at_all:Export", "no module no_such_module_at_all"),
        ("json:Export", "no class"),
    ],
)
def test_a_class_that_is_not_there(module: tuple[Path, str], name: str, reason: str) -> None:
    folder, own = module

    async def main() -> str:
        text = source(own).replace(f"{own}:Export", name)
        async with polling(folder, text, rows(1)) as polled:
            await polled.poll()
            return polled.blocked

    assert reason in asyncio.run(main())


def test_after_a_failure_a_new_instance_continues_from_the_stored_state(
    module: tuple[Path, str],
) -> None:
    """What the failed instance had in mind is forgotten with it."""
    code = """
        def take(self, request, answer):
            rows = answer.json()["rows"]
            self.position += len(rows)
            if "stumble" in answer.json():
                raise RuntimeError
            self.over = not rows
            return Page([json.dumps(row).encode() for row in rows])
    """
    stumbled: list[int] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        first = int(request.query["from"])
        answer = {"rows": [{"id": n} for n in range(first, min(first + 3, 7))]}
        if first == 3 and not stumbled:
            stumbled.append(first)
            answer["stumble"] = []
        return web.json_response(answer)

    folder, name = module
    (folder / f"{name}.py").write_text(HEAD + indent(dedent(code), "    "))

    async def main() -> None:
        async with polling(folder, source(name), handler) as polled:
            await polled.poll()
            assert "take raised RuntimeError" in polled.blocked
            assert state(polled) == b"3"
            polled.poller.restore(polled.state)
            await polled.poll()
            assert (ids(polled), polled.blocked) == (list(range(7)), "")
            assert len({page.pass_ for page in polled.pages}) == 2

    asyncio.run(main())


def test_waiting_is_durable_and_counted_by_our_clock(module: tuple[Path, str]) -> None:
    code = """
        def ask(self, now):
            self.position = 77
            return WaitUntil(now + timedelta(hours=1), "the job runs")
    """
    polled = run(module, rows(1), code)
    [emission] = polled.emissions
    assert emission.state.not_before is not None
    assert emission.state.plans["python"].state == b"77"
    assert polled.poller.due_at == emission.state.not_before
    assert polled.provider.requests == []


def test_faults_that_ask_to_wait_and_gaps(module: tuple[Path, str]) -> None:
    code = """
        def take(self, request, answer):
            self.position += 1
            if self.position == 1:
                return Fault("source_gap", "older than thirty days")
            return Fault("rate_limited", "slow down", wait_s=900)
    """
    polled = run(module, rows(3), code)
    [mark] = polled.marks
    assert (mark.kind, mark.reason) == ("gap", "older than thirty days")
    assert polled.emissions[0].state.plans["python"].state == b"1"
    assert polled.state.not_before is not None
    assert len(polled.provider.requests) == 2


def test_a_fault_that_passes_is_asked_again_from_the_stored_state(module: tuple[Path, str]) -> None:
    code = """
        def take(self, request, answer):
            if "again" in answer.json():
                self.position = 1_000
                return Fault("retry", "not ready")
            rows = answer.json()["rows"]
            self.position += len(rows)
            self.over = not rows
            return Page([json.dumps(row).encode() for row in rows])
    """
    turns = []

    async def handler(request: web.Request) -> web.StreamResponse:
        turns.append(int(request.query["from"]))
        if len(turns) in (1, 3):
            return web.json_response({"again": True})
        return await rows(4)(request)

    polled = run(module, handler, code)
    assert (ids(polled), polled.blocked) == ([0, 1, 2, 3], "")
    assert turns == [0, 0, 3, 3, 4]


def test_a_class_that_never_gets_a_record_is_stopped(
    module: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.python_poller._IDLE_MAX", 5)
    code = """
        def take(self, request, answer):
            return Page()
    """
    polled = run(module, rows(1), code)
    assert "5 answers in a row gave no record" in polled.blocked
    assert len(polled.provider.requests) == 5


def test_retries_and_credentials_are_the_definitions_business(module: tuple[Path, str]) -> None:
    count = []

    async def handler(request: web.Request) -> web.StreamResponse:
        count.append(1)
        if len(count) == 1:
            return web.Response(status=503)
        return await rows(2)(request)

    polled = run(module, handler)
    assert (ids(polled), polled.blocked) == ([0, 1], "")


def test_a_secret_in_the_state_is_refused(
    module: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "open sesame")
    code = """
        def state(self):
            return self.settings["key"].encode()
    """
    polled = run(module, rows(2), code, plan="        settings: {key: {env: SHOP_KEY}}")
    assert "holds a secret" in polled.blocked
    assert "sesame" not in repr(polled.emissions)


def test_a_snapshot_beside_the_class(module: tuple[Path, str]) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/all":
            return web.json_response([{"id": 1}, {"id": 2}])
        return await rows(3)(request)

    polled = run(
        module,
        handler,
        extra="pages: none",
        plan="      snapshot: {every: 1d, get: /all, records: body}",
    )
    assert [page.plan for page in polled.pages] == ["python", "snapshot"]
    kinds = [mark.kind for mark in polled.marks]
    assert kinds == ["caught_up", "snapshot_begin", "snapshot_complete"]
