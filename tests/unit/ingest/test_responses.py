"""What an answer means and how long it asks to wait, in every form that providers use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.responses import WAIT_MAX_S, Answer, judge
from ingest.retry import CAP_S, backoff_s
from schemas.definitions.paths import Path, Root
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Check
from schemas.definitions.source import Action, ErrorRule

NOW = 1_790_000_000_000_000
NOW_S = NOW // 1_000_000
GMT_20, GMT_60 = "Mon, 21 Sep 2026 14:13:40 GMT", "Mon, 21 Sep 2026 14:14:20 GMT"


def answer(status: int, body: Any = None, **headers: str) -> Answer:
    return Answer(status, {k.replace("_", "-"): v for k, v in headers.items()}, lambda: body)


def rule(status: int, do: Action, **more: Any) -> ErrorRule:
    line = Line(Path(Root.STATUS, (), "status"), (Check(Operator.EQUALS, status),))
    return ErrorRule(Predicate(((line,),)), do, **more)


@pytest.mark.parametrize(
    ("status", "action"),
    [
        (200, Action.SUCCESS),
        (204, Action.SUCCESS),
        (301, Action.FAIL),
        (400, Action.FAIL),
        (401, Action.REFRESH_CREDENTIALS),
        (403, Action.FAIL),
        (408, Action.RETRY),
        (429, Action.RATE_LIMITED),
        (500, Action.RETRY),
        (503, Action.RETRY),
        (599, Action.RETRY),
        (100, Action.FAIL),
    ],
)
def test_without_rules(status: int, action: Action) -> None:
    assert judge(answer(status), (), NOW).action is action


def test_the_first_own_rule_wins_over_the_defaults() -> None:
    rules = (rule(429, Action.SPLIT_INTERVAL), rule(429, Action.FAIL))
    assert judge(answer(429), rules, NOW).action is Action.SPLIT_INTERVAL


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry_after": "120"}, 120),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "-5"}, 0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "10, 30"}, 30),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "NaN"}, None),
        ({"retry_after": "9" * 30}, WAIT_MAX_S),
        ({"retry_after": "Mon, 21 Sep 2026 14:13:20 GMT"}, 0),
        ({"retry_after": "Mon, 21 Sep 2026 14:14:20 GMT"}, 60),
        ({"retry_after": "Mon, 21 Sep 2020 14:14:20 GMT"}, 0),
        ({"x_ratelimit_reset": str(NOW_S + 45)}, 45),
        ({"x_ratelimit_reset": str((NOW_S + 45) * 1000)}, 45),
        ({"x_ratelimit_reset": "45"}, 45),
        ({"ratelimit_reset": "7"}, 7),
        ({"ratelimit": '"default";r=0;t=30'}, 30),
        ({"ratelimit": "limit=10, remaining=0, reset=12"}, 12),
        ({"retry_after": "3", "x_ratelimit_reset": "45"}, 3),
        ({"retry_after": "soon", "x_ratelimit_reset": "45"}, 45),
        ({"retry_after": "", "ratelimit_reset": "7"}, 7),
        ({"retry_after": "1e999"}, WAIT_MAX_S),
        ({"retry_after": "Monday, 21-Sep-26 14:14:20 GMT"}, 60),
        ({"retry_after": "Mon Sep 21 14:14:20 2026"}, 60),
        ({"retry_after": "Mon, 21 Sep 2026 16:14:20 +0200"}, 60),
        ({"retry_after": f"{GMT_20}, {GMT_60}"}, 60),
        ({"retry_after": f"{GMT_60}, 5"}, 60),
        ({"retry_after": f"90, {GMT_60}"}, 90),
        ({"retry_after": "Mon, 99 Sep 2026 14:14:20 GMT"}, None),
        ({"retry_after": "Mon, 21 Sep 99999 14:14:20 GMT"}, None),
        ({"x_ratelimit_reset": str(NOW_S - 45)}, 0),
        ({"x_ratelimit_reset": "9" * 40}, WAIT_MAX_S),
        ({"x_ratelimit_reset": f"{NOW_S + 1.5}"}, 1.5),
        ({"x_ratelimit_reset": "2026-09-21T14:14:20Z"}, 60),
        ({"x_ratelimit_reset": f"{NOW_S + 5}, {NOW_S + 9}"}, 9),
        ({"x_ratelimit_reset": "unknown", "ratelimit_reset": "8"}, 8),
        ({"x_rate_limit_reset": str(NOW_S + 20)}, 20),
        ({"x_ratelimit_reset_after": "1.25"}, 1.25),
        ({"ratelimit_reset": "7, 60;w=1"}, 7),
        ({"ratelimit": '"default";r=50;t=30'}, 30),
        ({"ratelimit": '"burst";r=0;t=5, "daily";r=900;t=40000'}, 5),
        ({"ratelimit": '"burst";r=0;t=5, "daily";r=0;t=400'}, 400),
        ({"ratelimit": '"burst";r=1;t=5, "daily";r=2;t=400'}, 400),
        ({"ratelimit": '"a;t=9";r=0;t=30'}, 30),
        ({"ratelimit": '"default";r=0'}, None),
        ({"ratelimit": '"default";r=0;t=-3'}, 0),
        ({"ratelimit": "limit=10, remaining=0, reset=never"}, None),
        ({"ratelimit": "Limit=10, Remaining=0, Reset=12"}, 12),
        ({"ratelimit": ",;=;"}, None),
    ],
)
def test_how_long_it_asks_to_wait(headers: dict[str, str], wait_s: float | None) -> None:
    assert NOW_S == 1_790_000_000
    found = judge(answer(429, **headers), (), NOW).wait_s
    assert found == (pytest.approx(wait_s) if wait_s is not None else None)


def test_a_rule_says_where_and_how_long() -> None:
    until = rule(400, Action.PARK, until=Path(Root.BODY, ("reset",), "body.reset"))
    assert judge(answer(400, {"reset": "2026-09-21T14:14:20Z"}), (until,), NOW).wait_s == 60
    fixed = rule(400, Action.RETRY, wait_s=5.0)
    assert judge(answer(400, retry_after="90"), (fixed,), NOW).wait_s == 5
    told = rule(400, Action.RETRY, wait=Path(Root.BODY, ("in",), "body.in"))
    assert judge(answer(400, {"in": 8}), (told,), NOW).wait_s == 8
    assert judge(answer(400, {"in": True}, retry_after="9"), (told,), NOW).wait_s == 9


@given(st.integers(1, 200), st.floats(0, 1, exclude_max=True))
def test_backoff_is_bounded_and_never_nothing(attempt: int, share: float) -> None:
    assert 0 < backoff_s(attempt, share) <= CAP_S


HEADERS = st.sampled_from(
    ["retry-after", "x-ratelimit-reset", "x-rate-limit-reset", "ratelimit-reset", "ratelimit"]
)
TOKENS = st.sampled_from(
    ["0", "30", "-1", "1.5", "NaN", "inf", "1e400", "r=0", "t=30", '"d"', GMT_20, GMT_60, "reset=3"]
)
VALUES = st.one_of(
    st.text(max_size=40),
    st.lists(TOKENS, max_size=5).map(", ".join),
    st.lists(TOKENS, max_size=5).map(";".join),
)


@given(st.dictionaries(HEADERS, VALUES))
def test_whatever_a_provider_writes_the_wait_is_none_or_bounded(headers: dict[str, str]) -> None:
    found = judge(Answer(429, headers, lambda: None), (), NOW).wait_s
    assert found is None or 0 <= found <= WAIT_MAX_S


FAR = str(NOW_S + 3000)


@pytest.mark.parametrize(
    ("status", "headers", "wait_s"),
    [
        (502, {"x-ratelimit-reset": FAR, "x-ratelimit-remaining": "4990"}, None),
        (502, {"x-ratelimit-reset": FAR}, None),
        (502, {"x-ratelimit-reset": FAR, "x-ratelimit-remaining": "0"}, 3000),
        (502, {"ratelimit": '"default";r=50;t=3000'}, None),
        (502, {"ratelimit": '"default";r=0;t=3000'}, 3000),
        (502, {"x-ratelimit-reset": FAR, "retry-after": "5"}, 5),
        (429, {"x-ratelimit-reset": FAR, "x-ratelimit-remaining": "4990"}, None),
        (429, {"x-ratelimit-reset": FAR, "x-ratelimit-remaining": "0"}, 3000),
        (429, {"x-ratelimit-reset": FAR, "x-ratelimit-remaining": "none"}, 3000),
        (429, {"x-ratelimit-reset-after": "9", "x-ratelimit-remaining": "0"}, 9),
    ],
)
def test_a_quota_that_has_something_left_is_not_waited_for(
    status: int, headers: dict[str, str], wait_s: float | None
) -> None:
    """Many providers send their quota with every answer, also with a gateway's 502."""
    assert judge(Answer(status, headers, lambda: None), (), NOW).wait_s == wait_s


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_of_several_waits_the_longest_counts(seconds: list[int]) -> None:
    headers = {"retry-after": ", ".join(map(str, seconds))}
    assert judge(Answer(503, headers, lambda: None), (), NOW).wait_s == max(seconds)
