"""What is read from answers, and what is asked: tokens, links, ids, times, placeholders."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from ingest.plans.opaque import give, keep
from ingest.plans.protocol import Ask, Now
from ingest.reading import Read, leads_into_records, link_next, next_of, page_of
from ingest.requests import placeholder_values, request_for, says
from ingest.responses import Answer
from ingest.split import split
from schemas.definitions.load import load_folder
from schemas.definitions.source import IntervalSpec, PlanSpec, Tenant
from schemas.records import PlanState

NOW = Now(0, 0, 0)


def spec_of(folder: Path, stream: str, plan: str = "interval") -> PlanSpec:
    """A plan of a stream whose keys are given."""
    (folder / "sources").mkdir(exist_ok=True)
    head = (
        "gapless: 1\nsource: s\nbase_url: http://localhost\ntenants: {list: [{id: t1, x: a/b}]}\n"
    )
    text = (
        head + "streams:\n  r:\n" + "".join(f"    {line}\n" for line in dedent(stream).splitlines())
    )
    (folder / "sources" / "s.yaml").write_text(text, encoding="utf-8")
    found = load_folder(folder).check().sources["s"].streams["r"].plan(plan)
    assert found is not None
    return found


BY_TOKEN = """\
    post: /q/{tenant.x}/{tenant.x:path}
    params: {flag: true, "ids[]": [a, "{tenant.id}"], from: "{start}", absent: "{token}"}
    headers: {X-Token: "{token}"}
    body: {after: "{token}", n: "{size}", query: "from:{start}", both: {a: "{token}"}}
    records: body.data.items
    id: key.id
    pages: {next: body.next, size: 5, total: body.count}
    plan: {interval: {time: at, format: unix_s, start: 2024-01-01}}
    """


def ask_of(spec: PlanSpec, **values: Any) -> Ask:
    state = PlanState(definition_hash="h")
    known = {name.replace("_id", ".id"): value for name, value in values.items()}
    return Ask(
        spec.plan, state, "scope", "pass", 1, "changes", known, window=(5_000_000, 9_000_000)
    )


def read(spec: PlanSpec, body: object, ask: Ask | None = None) -> Any:
    content = json.dumps(body).encode()
    answer = Answer(200, {}, lambda: body)
    steps = tuple(step for step in spec.request.records.steps if isinstance(step, str))
    parts = Read(answer, split(content, steps), NOW, 1, 0)
    return page_of(parts, ask or ask_of(spec), spec, next_of(answer, spec))


def test_every_placeholder_stands_where_it_is_written(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, BY_TOKEN)
    tenant = Tenant("t1", {"id": "t1", "x": "a/b"})

    def ask(**more: Any) -> Any:
        values = placeholder_values(
            ask_of(spec, start=5_000_000, end=6_000_000, size=5, **more), spec, tenant, str
        )
        return request_for(ask_of(spec), spec, values, str)

    first = ask()
    assert first.path == "/q/a%2Fb/a/b"
    assert first.params == [("flag", "true"), ("ids[]", "a"), ("ids[]", "t1"), ("from", "5")]
    assert first.body == {"n": 5, "query": "from:5", "both": {}}
    assert first.headers == {}
    second = ask(token=keep(["x", 7]))
    assert second.body["after"] == ["x", 7], "a lone placeholder keeps its type"
    assert ask(token="t/+").headers == {"X-Token": "t/+"}
    assert says(spec, "start") and not says(spec, "end")


@pytest.mark.parametrize("value", ["t", "", "json:x", 7, 1.5, True, ["a", 1], {"k": None}, "ü\n"])
def test_opaque_values_come_back_unchanged(value: Any) -> None:
    assert give(keep(value)) == value
    assert type(give(keep(value))) is type(value)


@pytest.mark.parametrize(
    ("found", "token"),
    [
        ("abc", "abc"),
        (17, "json:17"),
        (None, None),
        ("", None),
        (False, None),
        (["a"], 'json:["a"]'),
    ],
)
def test_the_next_token(tmp_path: Path, found: Any, token: str | None) -> None:
    spec = spec_of(tmp_path, BY_TOKEN)
    assert read(spec, {"data": {"items": []}, "next": found}).next == token
    assert read(spec, {"data": {"items": []}}).next is None


def test_totals_ids_and_times(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, BY_TOKEN)
    items = [
        {"key": {"id": 1}, "at": 6},
        {"key": {"id": 1}, "at": 7},
        {"at": 70},
        {"key": {"id": 2}},
    ]
    page = read(spec, {"data": {"items": items}, "count": "12"})
    assert (page.records, page.total) == (4, 12)
    ids = page.read_ids()
    assert ids[0] == ids[1] and len(set(ids)) == 3
    compared = page.read_compared()
    assert len(set(compared)) == 3, "two states of one id are two; what is outside proves nothing"
    assert read(spec, {"data": {"items": items}, "count": True}).total is None


@pytest.mark.parametrize(
    ("header", "target"),
    [
        ('<https://a.example/?p=2>; rel="next", <https://a.example/?p=9>; rel="last"', "?p=2"),
        ('</x?a=1,2>; title="a, b"; rel="prev next"', "/x?a=1,2"),
        ("</y>;rel=next", "/y"),
        ('</z>; rel="last"', None),
        ("", None),
        ("<unclosed; rel=next", None),
    ],
)
def test_the_next_link(header: str, target: str | None) -> None:
    found = link_next(header)
    assert found is None if target is None else (found or "").endswith(target)


def test_a_path_into_the_last_record(tmp_path: Path) -> None:
    text = """\
        get: /c
        params: {after: "{token}", from: "{start}"}
        records: body.items
        pages: {next: "body.items[-1].id", end: {body.more: false}}
        plan: {interval: {time: at, start: 2024-01-01, order: asc}}
        """
    spec = spec_of(tmp_path, text)
    assert leads_into_records(spec) and not leads_into_records(spec_of(tmp_path, BY_TOKEN))
    page = read(spec_of(tmp_path, text), {"items": [{"id": 1}, {"id": 2}], "more": True})
    assert (page.next, page.ended) == ("json:2", False)
    page = read(
        spec, {"items": [{"id": 1, "at": "1970-01-01T00:00:06Z"}, {"at": "?"}], "more": False}
    )
    assert page.ended
    assert isinstance(spec, IntervalSpec)
    assert list(page.times) == [6_000_000, None]
