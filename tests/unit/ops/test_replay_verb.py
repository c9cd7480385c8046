"""`gapless replay`: what it tells while it runs, and a name that it does not know."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from apply.replay_report import HIDDEN, ChildDiff, Diff, Progress, ReplayReport, Sample
from ops import problems
from ops.cli import replay
from ops.replay_text import as_json, as_text, progress_text
from tests.unit.definition_files import ORDERS, SHOP


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _progress(done: int) -> Progress:
    return Progress(done=done, total=1_000, pages=done // 2, outcomes=())


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = io.StringIO()
    tell = replay.Teller(out)
    for second in range(25):
        now[0] = float(second)
        tell(_progress(second * 40))
    tell.end()
    assert out.getvalue() == (
        " 40%  400 of 1,000 offsets, 200 pages\n 80%  800 of 1,000 offsets, 400 pages\n"
    )


def test_one_line_that_changes_on_a_terminal() -> None:
    out = Terminal()
    tell = replay.Teller(out)
    tell(_progress(500))
    tell.end()
    assert out.getvalue() == "\r\x1b[K 50%  500 of 1,000 offsets, 250 pages\r\x1b[K"


def test_a_mapping_that_is_not_there_is_a_wrong_argument() -> None:
    folder = Path(__file__).parents[3] / "ops/demo/definitions"
    with pytest.raises(problems.Stop) as stopped:
        replay.replay("normalised_accounts", definitions=folder)
    assert stopped.value.problem == problems.Problem(
        "There is no mapping normalised_accounts; known: normalized_accounts, pipeline_events.",
        problems.USAGE,
    )


def test_the_name_of_a_table_leads_to_its_mapping(tmp_path: Path) -> None:
    for name, text in (("sources/shop", SHOP), ("mappings/shop_orders", ORDERS)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(problems.Stop) as stopped:
        replay.replay("orders", definitions=tmp_path)
    assert stopped.value.problem.message == (
        "There is no mapping orders; the table orders is filled by `gapless replay shop_orders`."
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--shadow", "--tenant"], "would lack the rest"),
        (["--swap-back", "--since"], "would lack the rest"),
        (["--dry-run", "--shadow"], "are two things"),
        (["--shadow", "--drop"], "are two things"),
        (["--since", "--from"], "both say where to begin"),
        (["--no-swap"], "belongs to --shadow"),
        (["--accept-missing", "--dry-run"], "belongs to --shadow"),
    ],
)
def test_combinations_without_a_meaning_are_refused(given: list[str], says: str) -> None:
    with pytest.raises(problems.Stop) as stopped:
        replay.refuse({name: name in given for name in OPTIONS})
    assert says in stopped.value.problem.message
    assert stopped.value.problem.exit_code == problems.USAGE


@pytest.mark.parametrize(
    "given",
    [[], ["--dry-run", "--tenant", "--since"], ["--tenant", "--from"], ["--shadow", "--no-swap"]],
)
def test_what_has_a_meaning_is_not(given: list[str]) -> None:
    replay.refuse({name: name in given for name in OPTIONS})


IN_PLACE = (
    "In place, rows that nothing stands for stay as they are;"
    " gapless replay orders --shadow makes a table without them."
)
OPTIONS = (
    "--dry-run", "--shadow", "--swap-back", "--drop", "--no-swap", "--accept-missing", "--since",
    "--from", "--tenant",
)  # fmt: skip


def test_progress_as_objects_on_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    out = Terminal()
    tell = replay.Teller(out, json=True)
    now[0] = 10.0
    tell(
        Progress(done=5, total=10, pages=2, outcomes=(7, 0, 0, 1, 0, 0), rate_per_s=2.5, left_s=2.0)
    )
    tell.end()
    [line] = out.getvalue().splitlines()
    said = json.loads(line)
    assert (said["done"], said["rate_per_s"], said["left_s"]) == (5, 2.5, 2.0)
    assert said["outcomes"]["quarantined"] == 1


def test_progress_says_how_fast_how_long_and_why_it_rests() -> None:
    said = progress_text(
        Progress(
            done=500, total=1_000, pages=250, outcomes=(), phase="build", rate_per_s=1234.5,
            left_s=7_200, rest_s=1.6, lag_s=14.2,
        )
    )  # fmt: skip
    assert said == (
        "build  50%  500 of 1,000 offsets, 250 pages, 1,234/s, 2.0 h left,"
        " rests 1.6 s a batch (live lags 14 s)"
    )


def test_a_report_says_what_would_change_and_what_comes_next() -> None:
    diff = Diff(
        added=3, changed=7, unchanged=1, changed_columns={"total": 7},
        removed={"ignored": 2, "without_observation": 1}, newly_quarantined={"wrong_type": 2},
        healed={"unknown_value": 4}, children={"order_lines": ChildDiff(9, 1200, 0)},
        samples=[
            Sample("changed", "3:17 index 0", "total", "1", HIDDEN),
            Sample("without_observation", "3:9 index 4"),
        ],
    )  # fmt: skip
    report = ReplayReport("orders", 2, dry_run=True, diff=diff)
    report.outcomes[0] = 11
    text = as_text(report).splitlines()
    assert text == [
        "orders v2: 0 pages of 0 offsets",
        "  outcomes      applied 11",
        "                of sightings: a record that was read again counts again",
        "  would add     3 rows",
        "  would change  7 rows   total 7",
        "  would stay    1 rows",
        "  in order_lines would be added 9  changed 1,200  gone 0",
        "  would miss    2 rows: their record is now filtered by `where`",
        "  would miss    1 rows: the log no longer has an observation of them",
        "    3:9 index 4",
        "    what a row is from: gapless explain TABLE KEY",
        "  would fail    2 records (wrong_type 2) not in quarantine now",
        "  would heal    4 records (unknown_value 4)",
        "  for example",
        "    total: 1 → (not shown)   (3:17 index 0)",
        "Nothing was written.",
        IN_PLACE,
    ]
    report.why_shadow = ["column total is integer, would be text"]
    assert as_text(report).splitlines()[-2:] == [
        "The table cannot hold this: column total is integer, would be text.",
        "Next: gapless replay orders --shadow",
    ]
    assert as_json(report)["diff"]["removed"] == {"ignored": 2, "without_observation": 1}
    report.against = (
        "the mapping changed, its version did not. Write `version: 3` in mappings/shop.yaml."
    )
    assert as_text(report).splitlines()[-2:] == [
        "The table cannot hold this: column total is integer, would be text.",
        f"But {report.against}",
    ]


def test_a_swap_says_the_command_that_leads_away_and_which_version_it_brings() -> None:
    report = ReplayReport("orders", 3, dry_run=False, how="shadow", swapped=True, aside=2)
    report.file = "mappings/shop.yaml"
    there = as_text(report).splitlines()[-2:]
    report.swapped, report.way = False, "--swap-back"
    assert "not swapped. gapless replay orders --swap-back swaps, " in as_text(report)
    report.swapped = True
    assert there[0] == "Version 3 is live."
    assert there[1].startswith(
        "gapless replay orders --swap-back --definitions FOLDER, where FOLDER has"
    )
    assert "brings the table of version 2 back" in there[1]
    report.version, report.aside, report.back = 2, 3, True
    back = as_text(report).splitlines()[-3:]
    assert back[0] == "Version 2 is live."
    assert back[1] == (
        "Put version 2 into mappings/shop.yaml of every worker: one that starts with version 3 is refused."
    )
    assert "brings the table of version 3 back" in back[2]


def test_a_replay_in_place_says_that_it_is_done() -> None:
    report = ReplayReport("orders", 2, dry_run=False, diff=Diff())
    done = "Done. Every row that an observation in the log gives is of version 2."
    assert as_text(report).splitlines()[-1] == done
    report.diff = Diff(removed={"ignored": 2})
    assert as_text(report).endswith("is of version 2; the others stay as they are.")
    report.scope, report.diff = "tenant north", None
    assert as_text(report).endswith("observation of that part gives is of version 2.")


def test_it_tells_how_many_rows_were_not_compared() -> None:
    report = ReplayReport("orders", 2, dry_run=True, diff=Diff(unchanged=3, not_compared=1_200))
    assert "  not compared: 1,200 rows that live has written since this began" in as_text(report)
    assert as_json(report)["diff"]["not_compared"] == 1_200
    report.diff = Diff(unchanged=3)
    assert "not compared" not in as_text(report)
