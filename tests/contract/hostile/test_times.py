"""Time stamps and clocks: late, early, coarse, mixed, in another order than the commits."""

from __future__ import annotations

import pytest

from tests.contract.hostile.scene import FEED, KEYSET, LINKED, WINDOW, Scene, text, us

BY_TIME = pytest.mark.parametrize("definition", [WINDOW, KEYSET], ids=["interval", "keyset"])
MINUTE_US = 60_000_000


@BY_TIME
def test_a_late_row_with_an_old_stamp_is_found_within_the_lookback(
    scene: Scene, definition: str
) -> None:
    scene.fill(5)
    scene.poll(definition)
    [plan] = scene.state.plans.values()
    late = us(plan.complete_before or "") - 4_000_000
    written = scene.put(updated_at=text(late))
    assert written["id"] in scene.skipped()
    scene.poll(definition)
    scene.whole()


@BY_TIME
def test_a_future_dated_record_does_not_drag_the_watermark(scene: Scene, definition: str) -> None:
    scene.fill(3)
    future = scene.put(updated_at=text(scene.now_us() + 60 * MINUTE_US))
    scene.poll(definition)
    [plan] = scene.state.plans.values()
    assert scene.blocked == "" and us(plan.complete_before or "") <= scene.now_us()
    assert scene.unclaimed() == [future["id"]] and scene.skipped() == []
    scene.put()
    scene.poll(definition)
    assert scene.unclaimed() == [future["id"]] and scene.skipped() == []
    scene.poll(definition, wait_s=7_200)
    scene.whole()


def test_a_future_dated_record_without_an_end_to_ask_for_is_kept(scene: Scene) -> None:
    scene.fill(3)
    future = scene.put(updated_at=text(scene.now_us() + 60 * MINUTE_US))
    scene.poll(LINKED)
    assert (future["id"], 1) in scene.found(), "it was shown, and may be the only copy"
    assert us(scene.state.plans["interval"].complete_before or "") <= scene.now_us()
    scene.put()
    scene.poll(LINKED)
    assert scene.unclaimed() == [future["id"]] and scene.skipped() == []


@BY_TIME
def test_rows_searchable_seconds_after_they_were_acknowledged(
    scene: Scene, definition: str
) -> None:
    scene.fill(3)
    scene.provider.settings(visibility_lag_ms=4_000)
    scene.put()
    scene.poll(definition, ("settle: 1s", "settle: 5s"), wait_s=4.5)
    assert scene.skipped() == []
    scene.poll(definition, ("settle: 1s", "settle: 5s"))
    scene.whole()


@BY_TIME
def test_a_visibility_lag_above_settle_is_caught_by_the_lookback(
    scene: Scene, definition: str
) -> None:
    scene.fill(3)
    scene.poll(definition)
    scene.provider.settings(visibility_lag_ms=40_000)
    hidden = scene.put()
    scene.poll(definition, ("lookback: 10s", "lookback: 60s"), wait_s=35)
    assert scene.skipped() == [hidden["id"]]
    scene.poll(definition, ("lookback: 10s", "lookback: 60s"), wait_s=35)
    scene.whole()


@BY_TIME
def test_rows_committed_in_another_order_than_their_stamps(scene: Scene, definition: str) -> None:
    scene.fill(3)
    stamp = scene.now_us()
    later = scene.put(updated_at=text(stamp + 2_000))
    earlier: list[str] = []

    def commit(emissions: int) -> None:
        if not earlier:
            earlier.append(scene.put(updated_at=text(stamp + 1_000))["id"])

    settle = ("settle: 1s", "settle: 3s"), ("lookback: 10s", "lookback: none")
    scene.poll(definition, *settle, wait_s=1.0, between=commit)
    assert (later["id"], 1) not in scene.found(), "held back, since others may come before it"
    assert earlier
    scene.poll(definition, *settle)
    scene.whole()


def test_microsecond_cursors_are_asked_as_they_were_shown(scene: Scene) -> None:
    scene.provider.settings(stored_us=1, shown_us=1)
    base = (scene.now_us() - 60 * MINUTE_US) // 1_000_000 * 1_000_000
    scene.provider.put_together(
        [{"updated_at": text(base + 100_001 + n)} for n in range(8)], scene.tenant
    )
    scene.poll(KEYSET, ("format: rfc3339_ms", 'format: "%Y-%m-%dT%H:%M:%S.%6fZ"'))
    asked = [entry["target"] for entry in scene.asked()]
    assert any(".100003Z" in target for target in asked), asked
    assert len(scene.records) == 8, "rows of one millisecond were read again"
    scene.whole()


@pytest.mark.parametrize("bounds", ["[)", "[]", "()", "(]"])
def test_a_time_shown_in_seconds_but_stored_and_filtered_in_microseconds(
    scene: Scene, bounds: str
) -> None:
    scene.provider.settings(bounds=bounds, stored_us=1, shown_us=1_000_000)
    second = (scene.now_us() - 60 * MINUTE_US) // 1_000_000 * 1_000_000
    stamps = [second - 1, second, second + 1, second + 999_999, second + 1_000_000]
    stamps += [second + 4_000_000 + n for n in (-1, 0, 1)]
    scene.provider.put_together([{"updated_at": text(at)} for at in stamps], scene.tenant)
    scene.poll(
        WINDOW,
        ("format: rfc3339_ms", "format: rfc3339"),
        ('bounds: "[)"', f'bounds: "{bounds}"'),
        ("start: 2024-01-01", f'start: "{text(second - 3_000_000)[:19]}Z"'),
        ("width: 100000d", "width: 1s"),
        wait_s=0.0,
    )
    # Windows of one second, two, four: one of them ends and the next begins at the second.
    assert {second, second + 4_000_000} <= {end for _, end in scene.claimed()}
    scene.whole()


def test_a_keyset_over_times_that_are_stored_finer_than_shown_stalls_visibly(scene: Scene) -> None:
    scene.provider.settings(stored_us=1, shown_us=1_000_000)
    second = (scene.now_us() - 60 * MINUTE_US) // 1_000_000 * 1_000_000
    scene.provider.put_together(
        [{"updated_at": text(second + 7 * n)} for n in range(1, 8)], scene.tenant
    )
    scene.poll(KEYSET, ("format: rfc3339_ms", "format: rfc3339"))
    assert "circle" in scene.blocked or "order" in scene.blocked
    assert scene.claimed() == []


@pytest.mark.parametrize("definition", [WINDOW, KEYSET, FEED], ids=["interval", "keyset", "cursor"])
def test_two_edits_of_one_record_in_one_second_are_two_states(
    scene: Scene, definition: str
) -> None:
    scene.provider.settings(stored_us=1_000_000, shown_us=1_000_000)
    stamp = text((scene.now_us() - 2_000_000) // 1_000_000 * 1_000_000)
    first = scene.put(updated_at=stamp)
    seconds = () if definition is FEED else (("format: rfc3339_ms", "format: rfc3339"),)
    scene.poll(definition, *seconds, wait_s=4.0)
    scene.put(id=first["id"], updated_at=stamp)
    scene.poll(definition, *seconds, wait_s=31.0)
    assert {(first["id"], 1), (first["id"], 2)} <= scene.found()
    assert scene.blocked == "" and scene.skipped() == []


def test_naive_and_aware_times_mixed_are_kept_as_they_are(scene: Scene) -> None:
    scene.fill(3)
    base = scene.now_us() - 30 * MINUTE_US
    for n, shown in enumerate(("2026-01-01T00:00:00", "2026-01-01T01:00:00+01:00", None, 17)):
        scene.put(updated_at=text(base + n * 1_000_000), fields={"updated_at": shown})
    scene.poll(WINDOW)
    scene.whole()
    scene.poll(WINDOW)
    scene.whole()


def test_a_naive_time_at_the_end_of_a_keyset_page_stalls_visibly(scene: Scene) -> None:
    base = scene.now_us() - 30 * MINUTE_US
    for n in range(5):
        fields = {"updated_at": "2026-01-01T00:00:00"} if n == 2 else {}
        scene.put(updated_at=text(base + n * 1_000_000), fields=fields)
    scene.poll(KEYSET)
    assert "no time" in scene.blocked
    assert scene.skipped() == [] and scene.claimed() == []


@BY_TIME
def test_a_leap_second_is_a_time_like_others(scene: Scene, definition: str) -> None:
    base = us("2016-12-31T23:59:59Z")
    for n in range(5):
        shown = {"updated_at": "2016-12-31T23:59:60.000Z"} if n == 2 else {}
        scene.put(updated_at=text(base + n * 500_000), fields=shown)
    scene.poll(definition, ("start: 2024-01-01", "start: 2016-01-01"))
    scene.whole()


@BY_TIME
@pytest.mark.parametrize("hours", [-2, 2])
def test_a_local_clock_two_hours_off(scene: Scene, definition: str, hours: int) -> None:
    scene.local_ahead_s = hours * 3_600.0
    scene.fill(4)
    scene.poll(definition)
    [plan] = scene.state.plans.values()
    assert 0 < scene.now_us() - us(plan.complete_before or "") < 10_000_000
    scene.put()
    scene.poll(definition)
    scene.whole()
    # The clock is set right: nothing is asked twice for ever, nothing is waited for.
    scene.local_ahead_s = 0.0
    scene.put()
    scene.poll(definition, wait_s=7_300)
    scene.whole()


@BY_TIME
@pytest.mark.parametrize("fault", [None, 503, 429], ids=["answers", "is_down", "throttles"])
def test_a_local_clock_two_hours_ahead_of_a_provider_that_tells_no_time_beforehand(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, definition: str, fault: int | None
) -> None:
    """The first answer tells the time; until then the end of the window is a guess."""

    async def silent(access: object) -> None:
        """No answer to a question for nothing but the time."""

    monkeypatch.setattr("ingest.fetcher.learn_clock", silent)
    scene.local_ahead_s = 7_200.0
    scene.fill(4)
    if fault is not None:
        scene.provider.faults(
            {
                "path": f"/t/{scene.tenant}/",
                "kind": "status",
                "status": fault,
                "headers": {"Retry-After": "30"},
                "times": 1,
            }
        )
    scene.poll(definition)
    for _ in range(3):
        scene.put()
        scene.poll(definition)
    scene.whole()
