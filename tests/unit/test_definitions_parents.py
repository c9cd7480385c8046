"""What the loader says of streams that are read parent by parent."""

from pathlib import Path

import pytest

from schemas.definitions import Definitions
from schemas.definitions.risks import risks_of_source
from schemas.definitions.source import SnapshotSpec
from tests.unit.definition_files import changed, load, messages

ISSUES = """\
gapless: 1
source: shop
base_url: https://api.shop.example
streams:
  projects:
    get: /projects
    params: {page: "{page}"}
    records: body.items
    pages: {}
    plan: {snapshot: {every: 1d}}
  issues:
    get: /projects/{parent.id}/issues
    params: {since: "{start}", key: "{parent.key}", after: "{token}"}
    records: body.items
    pages: {next: body.next, stable: true}
    parent: {stream: projects, when: {archived: {not: true}}}
    plan:
      interval: {time: updated, start: 2024-01-01}
      snapshot: {every: 7d, params: {since: null}}
"""


def issues_of(found: Definitions):  # type: ignore[no-untyped-def]
    return found.check().sources["shop"].streams["issues"]


def test_a_stream_bound_to_its_parents_listing(tmp_path: Path) -> None:
    issues = issues_of(load(tmp_path, ISSUES, None))
    assert issues.parent is not None
    assert (issues.parent.stream, issues.parent.fields) == ("projects", ("id", "key"))
    assert isinstance(issues.parent.listing, SnapshotSpec)
    assert issues.parent.when is not None
    assert issues.asked("interval", listing=True) is issues.parent.listing
    assert issues.asked("interval") is issues.changes


def test_absence_needs_two_listings_where_the_parents_may_shift(tmp_path: Path) -> None:
    issues = issues_of(load(tmp_path, ISSUES, None))
    assert issues.snapshot.listings_needed == issues.keep_snapshots == 2
    still = changed(ISSUES, ("    pages: {}\n", "    pages: {stable: true}\n"))
    issues = issues_of(load(tmp_path, still, None))
    assert issues.snapshot.listings_needed == issues.keep_snapshots == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("get: /projects\n", "get: /all-projects\n"),
        ("{archived: {not: true}}", "{archived: false}"),
        (", when: {archived: {not: true}}", ""),
    ],
)
def test_other_parents_begin_a_new_pass(tmp_path: Path, old: str, new: str) -> None:
    before = issues_of(load(tmp_path, ISSUES, None))
    after = issues_of(load(tmp_path, changed(ISSUES, (old, new)), None))
    assert before.changes.definition_hash != after.changes.definition_hash
    assert before.snapshot.definition_hash != after.snapshot.definition_hash


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("stream: projects", "stream: project", 'there is no stream "project"'),
        ("stream: projects", "stream: issues", "issues has a parent itself"),
        ("{stream: projects, when", "{when", "parent needs `stream:`"),
        (
            "    plan: {snapshot: {every: 1d}}",
            "    plan: {cursor: {next: body.c}}",
            "has no snapshot",
        ),
        ("when: {archived: {not: true}}", "on: changed", "projects has no `interval` plan"),
        ("when: {archived: {not: true}}", "on: some", '"some" is none of all, changed'),
        ("    parent: {stream: projects, when: {archived: {not: true}}}\n", "", "has no parent"),
        (
            "interval: {time: updated, start: 2024-01-01}",
            "cursor: {next: body.c}",
            "a cursor plan lacks",
        ),
    ],
)
def test_a_mistake_in_a_parent(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = messages(load(tmp_path, changed(ISSUES, (old, new)), None))
    assert any(message in one for one in found), found


CHANGED = changed(
    ISSUES,
    ("when: {archived: {not: true}}", "on: changed"),
    (
        "    plan: {snapshot: {every: 1d}}",
        """\
    plan:
      interval: {time: touched, start: 2020-01-01, get: /touched, params: {after: "{start}"}}
      snapshot: {every: 1d}""",
    ),
)


def test_changes_below_the_parents_that_changed(tmp_path: Path) -> None:
    found = load(tmp_path, CHANGED, None)
    source = found.check().sources["shop"]
    issues, projects = source.streams["issues"], source.streams["projects"]
    assert issues.asked("interval", listing=True) is projects.changes
    assert issues.asked("snapshot", listing=True) is projects.snapshot
    [risk] = [one for one in risks_of_source(source) if "on: changed" in one]
    assert risk.startswith("shop/issues: on: changed; what changes below a parent that does not")
    before = issues_of(load(tmp_path, changed(CHANGED, ("on: changed", "on: all")), None))
    assert before.changes.definition_hash != issues_of(found).changes.definition_hash
    assert before.snapshot.definition_hash == issues_of(found).snapshot.definition_hash


def test_only_parents_that_changed_make_a_poll_without_a_filter_small(tmp_path: Path) -> None:
    unfiltered = changed(CHANGED, ('since: "{start}", ', ""))
    assert not any(
        "{start} is never sent" in one for one in messages(load(tmp_path, unfiltered, None))
    )
    all_ = changed(unfiltered, ("on: changed", "on: all"))
    assert any("{start} is never sent" in one for one in messages(load(tmp_path, all_, None)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{after: "{start}"}', "{all: 1}", "are asked for without {start}"),
        ("{time: touched, ", "{time: touched, result_cap: 1000, ", "has a `result_cap`"),
        ("{time: touched, ", "{time: touched, settle: 5m, ", "the `settle` of projects is longer"),
        (
            "{time: touched, ",
            "{time: touched, lookback: 1d, ",
            "the `lookback` of projects is longer",
        ),
        ("      interval: {time: updated, start: 2024-01-01}\n", "", "issues has no changes"),
    ],
)
def test_a_mistake_in_parents_that_changed(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    found = messages(load(tmp_path, changed(CHANGED, (old, new)), None))
    assert any(message in one for one in found), found


def test_a_parent_of_which_nothing_is_sent(tmp_path: Path) -> None:
    wrong = changed(ISSUES, ("{parent.id}", "all"), ('key: "{parent.key}", ', ""))
    found = messages(load(tmp_path, wrong, None))
    assert any("all would be asked the same" in one for one in found), found


def test_a_parent_at_the_source(tmp_path: Path) -> None:
    wrong = changed(ISSUES, ("source: shop\n", "source: shop\nparent: {stream: projects}\n"))
    assert any("Write it at the stream." in one for one in messages(load(tmp_path, wrong, None)))
