"""Keys survive any text, and say the same after a round trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import keys
from schemas.records import Mark, Observation, PassRange

part = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable() or "/" in text)


def observation(partition_id: str, scope: str, pass_: str, page: int, number: int) -> Observation:
    return Observation(
        partition_id=partition_id,
        plan="interval",
        scope=scope,
        pass_=pass_,
        page=page,
        part=number,
        reason="poll",
        method="GET",
        url="u",
        definition_hash="h",
        status=200,
        requested_at=1,
        received_at=2,
    )


@given(part, part, st.none() | part, part, part, st.integers(1, 10**6), st.integers(1, 99))
def test_page_key_round_trip(
    source: str,
    stream: str,
    tenant: str | None,
    scope: str,
    pass_: str,
    page: int,
    number: int,
) -> None:
    owner = keys.partition_id(source, stream, tenant)
    assert keys.split_partition_id(owner) == (source, stream, tenant)
    key = keys.page_key(observation(owner, scope, pass_, page, number))
    parsed = keys.parse_key(key)
    assert parsed == keys.PageKey(owner, "interval", scope, pass_, page, number)
    assert isinstance(parsed, keys.PageKey)
    assert keys.page_key_of(parsed) == key
    assert key.isascii()


@given(part, part, part)
def test_different_owners_never_share_a_key(source: str, stream: str, tenant: str) -> None:
    with_tenant = keys.partition_id(source, stream, tenant)
    without = keys.partition_id(source, stream)
    assert with_tenant != without
    assert not with_tenant.startswith(without + "/interval/") or tenant == "interval"


def test_marks_have_keys_of_their_own() -> None:
    passes = [PassRange(pass_="n1", first=1, last=3, parts=3, records=250)]
    complete = Mark(
        kind="interval_complete",
        partition_id="a/b",
        plan="interval",
        scope="s~e",
        passes=passes,
        at=1,
    )
    assert keys.mark_key(complete) == "a/b/interval/s~e/n1/mark/interval_complete"
    assert keys.parse_key(keys.mark_key(complete)) == keys.MarkKey(
        "a/b", "interval", "s~e", "n1", "interval_complete"
    )


def test_caught_up_is_cumulative_under_one_key() -> None:
    marks = [
        Mark(kind="caught_up", partition_id="a/b/t", plan="cursor", scope=scope, at=1)
        for scope in ("one", "two")
    ]
    assert keys.mark_key(marks[0]) == keys.mark_key(marks[1])


def test_ticks_belong_to_no_configured_partition_id() -> None:
    tick = Mark(kind="tick", partition_id=keys.tick_id(3), plan="", scope="", at=1)
    parsed = keys.parse_key(keys.mark_key(tick))
    assert isinstance(parsed, keys.MarkKey)
    assert (parsed.partition_id, parsed.kind) == ("_gapless/3", "tick")


@pytest.mark.parametrize("text", ["", "a", "a/b", "a/b/c/d/e/f", "a/b/interval/s/p/one/1"])
def test_other_text_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        keys.parse_key(text)


@pytest.mark.parametrize("text", ["a", "a/b/c/d", "a//b", "/a"])
def test_other_text_is_no_partition_id(text: str) -> None:
    with pytest.raises(ValueError, match="not a partition id"):
        keys.split_partition_id(text)
