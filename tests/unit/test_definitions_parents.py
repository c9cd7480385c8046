"""What the loader says of streams that are read parent by parent."""

from pathlib import Path

import pytest

from schemas.definitions import Definitions
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
        ("when: {archived: {not: true}}", "on: changed", "`on: changed` is part of the language"),
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


def test_a_parent_of_which_nothing_is_sent(tmp_path: Path) -> None:
    wrong = changed(ISSUES, ("{parent.id}", "all"), ('key: "{parent.key}", ', ""))
    found = messages(load(tmp_path, wrong, None))
    assert any("all would be asked the same" in one for one in found), found


def test_a_parent_at_the_source(tmp_path: Path) -> None:
    wrong = changed(ISSUES, ("source: shop\n", "source: shop\nparent: {stream: projects}\n"))
    assert any("Write it at the stream." in one for one in messages(load(tmp_path, wrong, None)))
