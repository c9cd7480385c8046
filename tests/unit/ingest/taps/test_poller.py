"""Taps that behave and taps that do not: nothing is skipped, and what holds them up is visible."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ingest.emission import Emission, StreamState
from ingest.pollers import Pollers
from schemas.definitions.load import load_folder
from schemas.failpoints import none
from schemas.records import PlanState
from schemas.settings import Settings
from tests.unit.ingest.taps.tapping import notes, run, source, tapping
from tests.waiting import until


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is tried at once."""
    monkeypatch.setattr("ingest.taps.poller.backoff_s", lambda attempt, share: 0.0)


def test_records_become_pages_and_the_last_state_the_checkpoint(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"records": 25, "state_every": 10})
    assert tapped.numbers == list(range(25))
    assert tapped.done == 25
    assert tapped.claims_too_much() == []
    first = tapped.emissions[0].observations[0]
    assert json.loads(first.records[3]) == {"id": 3, "text": "record 3 "}
    assert json.loads(first.envelope) == {"type": "RECORD", "stream": "numbers"}
    assert (first.plan, first.page, first.part) == ("singer", 1, 1)
    assert first.url.startswith("singer:python") and first.url.endswith("/numbers")
    [mark] = tapped.emissions[-1].marks
    assert (mark.kind, tapped.plan.walk) == ("caught_up", None)
    assert tapped.plan.polled_at == first.requested_at
    assert tapped.poller.due_at == first.requested_at + 3_600_000_000


def test_the_next_run_begins_where_the_stored_state_says(tmp_path: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        async with tapping(tmp_path, {"records": 10}) as tapped:
            await tapped.poll()
            state = tapped.state
        async with tapping(tmp_path, {"records": 10}) as tapped:
            tapped.poller.restore(StreamState(plans=_due(state)))
            await tapped.poll()
            assert tapped.numbers == []
            assert tapped.done == 10
            return tapped.runs

    first, second = asyncio.run(main())
    assert (first["from"], second["from"]) == (0, 10)


def test_another_configuration_is_another_question_and_begins_again(tmp_path: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        async with tapping(tmp_path, {"records": 10}) as tapped:
            await tapped.poll()
            state = tapped.state
        async with tapping(tmp_path, {"records": 10, "since": "2020"}) as tapped:
            tapped.poller.restore(state)
            await tapped.poll()
            assert tapped.numbers == list(range(10))
            return tapped.runs

    assert [one["from"] for one in asyncio.run(main())] == [0, 0]


def _due(state: StreamState) -> dict[str, PlanState]:
    return {name: replace(plan, polled_at=None) for name, plan in state.plans.items()}


@pytest.mark.parametrize("fault", ["exit:3", "kill", "half:0", "half:1", "garbage:Traceback …"])
@pytest.mark.parametrize("at", [0, 4, 10])
def test_a_run_that_breaks_once_is_repeated_from_its_last_state(
    tmp_path: Path, fault: str, at: int
) -> None:
    tapped = run(tmp_path, {"state_every": 3, "faults": {str(at): fault}})
    assert set(tapped.numbers) == set(range(10))
    assert tapped.done == 10
    assert tapped.claims_too_much() == []
    assert [one["from"] for one in tapped.runs] == [0, at - at % 3]
    assert tapped.blocked == ""
    passes = {page.pass_ for one in tapped.emissions for page in one.observations}
    assert len(passes) == (1 if at == 0 else 2), "a repeated page never replaces an earlier one"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("exit:3", "the tap ended with exit code 3"),
        ("kill", "the tap ended with exit code 137"),
        ("garbage:{}", "a line that is no message"),
        ("garbage:[1, 2]", "a line that is no message"),
        ('garbage:{"type": "RECORD", "stream": "numbers"}', "a RECORD without"),
        ('garbage:{"type": "STATE"}', "a STATE without"),
        ("half:0", "a line that is no message"),
        ("long:1100000", "a line of the tap is longer than 1,048,576 bytes"),
        ("other:letters", "records of the stream letters"),
        ('say:{"type": "BATCH", "stream": "numbers", "manifest": []}', "(BATCH)"),
        ("big_state:60000", "a checkpoint holds 49,152"),
    ],
)
def test_a_tap_that_breaks_every_time_is_blocked_with_what_it_gave(
    tmp_path: Path, fault: str, reason: str
) -> None:
    tapped = run(tmp_path, {"state_every": 3, "faults": {"5": fault}, "again": True})
    assert set(tapped.numbers) == set(range(5))
    assert tapped.done == 3
    assert tapped.claims_too_much() == []
    assert reason in tapped.blocked
    assert tapped.poller.due_at > tapped.emissions[0].observations[0].requested_at
    assert len(tapped.runs) <= 3


def test_a_silent_tap_is_ended_and_tried_again(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"state_every": 3, "faults": {"5": "hang"}}, hang="1s")
    assert set(tapped.numbers) == set(range(10))
    assert tapped.claims_too_much() == []
    assert [one["from"] for one in tapped.runs] == [0, 3]
    assert not _alive(tapped.runs[0]["pid"])


def test_a_tap_that_is_silent_every_time_stalls_visibly(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"faults": {"0": "hang"}, "again": True}, hang="500ms")
    assert "no message for 0.5 s" in tapped.blocked
    assert tapped.state.blocked is not None and "hang" in tapped.state.blocked.unblocked_by
    assert [one for one in tapped.runs if _alive(one["pid"])] == []


def test_records_without_a_state_behind_them_are_not_believed_complete(tmp_path: Path) -> None:
    """A wrapper may hide the exit code of a tap that broke off."""
    tapped = run(tmp_path, {"state_every": 4, "ends": False})
    assert "ended without a STATE behind its last 2 records" in tapped.blocked
    assert (set(tapped.numbers), tapped.done) == (set(range(10)), 8)
    assert [one["from"] for one in tapped.runs] == [0, 8, 8]
    assert [mark for one in tapped.emissions for mark in one.marks] == []


def test_a_tap_without_state_that_says_so_reads_everything_each_time(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"state_every": 4, "ends": False}, state="none")
    assert (tapped.blocked, tapped.numbers, tapped.plan.state) == ("", list(range(10)), None)
    assert tapped.emissions[-1].marks[0].kind == "caught_up"


def test_states_without_records_are_stored_too(tmp_path: Path) -> None:
    faults = {"0": 'say:{"type": "STATE", "value": {"done": 0, "seen": 5}}'}
    tapped = run(tmp_path, {"records": 0, "ends": False, "faults": faults})
    assert [bool(one.observations) for one in tapped.emissions] == [False, False]
    assert tapped.plan.state == b'{"done": 0, "seen": 5}'


def test_a_flood_on_standard_error_holds_nothing_up(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"faults": {"5": "flood:2000"}})
    assert (tapped.numbers, tapped.blocked) == (list(range(10)), "")


def test_a_record_that_no_log_record_can_hold_becomes_an_empty_slot(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"faults": {"5": "long:50000"}})
    missing = [one for e in tapped.emissions for page in e.observations for one in page.missing]
    assert [one.why for one in missing] == ["oversized"]
    assert missing[0].size > 50_000
    assert tapped.done == 10


def test_records_of_other_streams_are_passed_over_if_that_is_declared(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"faults": {"5": "other:letters"}}, others="ignore")
    assert (tapped.numbers, tapped.blocked) == (list(range(10)), "")


def test_messages_of_unknown_types_carry_no_record(tmp_path: Path) -> None:
    faults = {"5": 'say:{"type": "ACTIVATE_VERSION", "stream": "numbers", "version": 5}'}
    assert run(tmp_path, {"faults": faults}).numbers == list(range(10))


def test_the_tap_is_asked_for_its_catalog_and_one_stream_is_selected(tmp_path: Path) -> None:
    tapped = run(tmp_path, {}, catalog="discover")
    assert tapped.numbers == list(range(10))
    assert tapped.runs[0]["selected"] == ["numbers"]


def test_a_stream_that_the_catalog_lacks_is_named_with_those_it_has(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"stream": "numbers"}, catalog="discover", stream="figures")
    assert "no stream figures; it has letters, numbers" in tapped.blocked


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    tapped = run(tmp_path, {}, command=["no-such-tap-anywhere"])
    assert "there is no program no-such-tap-anywhere" in tapped.blocked


def test_secrets_reach_the_tap_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAP_KEY", "open sesame")
    monkeypatch.setenv("GAPLESS_POSTGRES", "postgresql://somebody:else@host/x")
    config = {"key": {"env": "TAP_KEY"}, "faults": {"5": "leak"}, "again": True}
    tapped = run(tmp_path, config, environment={"TAP_MODE": "quick"})
    [first, *_] = tapped.runs
    assert first["config"]["key"] == "open sesame"
    assert "TAP_MODE" in first["environment"] and "PATH" in first["environment"]
    assert not {"TAP_KEY", "GAPLESS_POSTGRES"} & set(first["environment"])
    assert "the tap's STATE holds a secret" in tapped.blocked
    assert "sesame" not in repr(tapped.emissions) + "".join(capsys.readouterr())
    assert not Path(first["folder"]).exists(), "the private folder is gone"


def test_a_secret_that_is_not_there_blocks_this_partition_id_alone(tmp_path: Path) -> None:
    tapped = run(tmp_path, {"key": {"env": "GAPLESS_TEST_NO_SUCH_VARIABLE"}})
    assert "GAPLESS_TEST_NO_SUCH_VARIABLE" in tapped.blocked


def test_a_poll_that_is_cancelled_ends_the_tap_and_all_it_started(tmp_path: Path) -> None:
    left = tmp_path / "left"

    async def main() -> None:
        faults = {"3": f"child:{left}", "5": "hang"}
        async with tapping(tmp_path, {"faults": faults}) as tapped:
            poll = asyncio.create_task(tapped.poll())
            hanging = tapped.traces / "hanging"
            await until(hanging.exists, 20, "the tap hangs")
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            [first] = tapped.runs
            assert not _alive(first["pid"])
            assert not _alive(int(left.read_text()))
            assert not _exists(first["folder"])
            await tapped.poll()
            assert set(tapped.numbers) == set(range(10))
            assert tapped.claims_too_much() == []

    asyncio.run(main())


def test_a_log_that_takes_nothing_is_no_silence_of_the_tap(tmp_path: Path) -> None:
    """While an emission waits for room the tap waits in its pipe, and no time runs out."""

    async def main() -> None:
        config = {"records": 3000, "bytes": 1_000, "state_every": 100}
        async with tapping(tmp_path, config, hang="1s") as tapped:
            room = asyncio.Event()

            async def emit(emission: Emission) -> None:
                await room.wait()
                await tapped.emit(emission)

            poll = asyncio.create_task(tapped.poller.poll(emit))
            await until(tapped.log.exists, 20, "the tap runs")
            await asyncio.sleep(
                1.5
            )  # longer than `hang`: nothing may happen, so nothing can be awaited
            assert not poll.done()
            room.set()
            await asyncio.wait_for(poll, 30)
            assert tapped.numbers == list(range(3000))
            assert len(tapped.runs) == 1

    asyncio.run(main())


@pytest.mark.parametrize("per", ["credential", "tenant"])
def test_no_more_taps_of_a_source_run_at_once_than_it_allows(tmp_path: Path, per: str) -> None:
    tenants = [{"id": name} for name in ("a", "b", "c")]
    log = tmp_path / "runs"
    text = json.loads(source({"records": 3, "wait_s": 0.1, "log": str(log)}))
    text |= {"limits": {"concurrency": 1, "per": per}, "tenants": {"list": tenants}}
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "s.yaml").write_text(json.dumps(text))

    async def nothing(emission: Emission) -> None:
        """Whatever comes is thrown away."""

    async def main() -> None:
        pollers = Pollers(load_folder(tmp_path).check(), Settings(partitions=1), none)
        found = pollers.of(0).values()
        async with asyncio.timeout(30):
            await asyncio.gather(*(poller.poll(nothing) for poller in found))

    asyncio.run(main())
    lines = notes(log)
    ended = {line["pid"]: line["ended"] for line in lines if "ended" in line}
    spans = sorted((line["began"], ended[line["pid"]]) for line in lines if "began" in line)
    assert len(spans) == 3
    apart = all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert apart == (per == "credential")


def _exists(path: str) -> bool:
    return Path(path).exists()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"
