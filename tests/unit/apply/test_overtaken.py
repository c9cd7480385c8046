"""When a later row of its entity makes a quarantined record superfluous, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from apply.mapping.casts import Moment
from apply.mapping.revision import revision_of
from apply.mapping.rules import resolve
from apply.mapping.types import REVISION, Row
from apply.overtaken import overtaken
from schemas.definitions.mapping import ByPlan, FunctionSpec, MappingSpec, RevisionKind
from schemas.definitions.paths import parse_mapping_path
from tests.unit.apply.mapped import FETCHED_US, column, dated, mapped, spec

EXACT, COARSE, NONE = RevisionKind.EXACT, RevisionKind.COARSE, RevisionKind.NONE


def row(revision: Any, offset: int, *, epoch: int = 0, began: int | None = None) -> Row:
    """What both sides have from the revision on."""
    return (revision, None, epoch, 0, 1, offset, 0, 1, False, 0, 0, began)


@pytest.mark.parametrize("kind", [EXACT, COARSE])
@pytest.mark.parametrize(
    ("record", "of_entity", "wanted"),
    [
        (row(3, 5), row(4, 9), True),
        (row(3, 5), row(3, 9), True),
        (row(3, 5), row(2, 9), False),  # observed later, but an older state
        (row(3, 5), row(None, 9), True),  # deleted by absence: only the order counts
        (row(None, 5), row(4, 9), False),  # nobody can tell
        (row(None, 5), row(4, 9, began=7), True),  # it was observed before that listing began
        (row(None, 5), row(4, 9, epoch=1), True),  # the collection was made again
        (row(9, 5, epoch=1), row(4, 9), False),
        (row(9, 5), row(1, 9, began=7), True),
    ],
)
def test_the_guard_decides(kind: RevisionKind, record: Row, of_entity: Row, wanted: bool) -> None:
    assert overtaken(record, of_entity, kind) is wanted


def test_without_revisions_the_later_observation_wins() -> None:
    assert overtaken(row(None, 5), row(None, 9), NONE)
    assert not overtaken(row(None, 9), row(None, 5), NONE)


def _revision(of: MappingSpec, raw: str) -> Any:
    observed = {"tenant": None, "plan": "interval", "fetched_at": Moment(FETCHED_US), "as_of": None}
    return revision_of(resolve(of, "interval"), observed, raw.encode())


def test_a_record_does_not_tell_the_revision_that_a_function_makes() -> None:
    """A field of the same name may be another thing; what stands around the row is known."""
    made = FunctionSpec("acme", "row", hang_s=1.0, memory_bytes=1 << 20)
    assert _revision(spec(revision=dated()), '{"rev": 7}') == 7
    assert _revision(spec(revision=dated(), python=made), '{"rev": 7}') is None
    around = dated(path=ByPlan(parse_mapping_path("$.rev")))
    assert _revision(spec(revision=around, python=made), '{"rev": 7}') == 7


@pytest.mark.parametrize(
    ("of", "written"),
    [
        ("bigint", "7"), ("numeric", "7.25"), ("text", '"01J9Z"'),
        ("timestamptz", '"2026-03-01T10:00:00.5+02:00"'), ("date", '"2026-03-01"'),
    ],
)  # fmt: skip
def test_a_refused_record_has_the_revision_that_it_would_have_as_a_row(
    of: str, written: str
) -> None:
    mapping = spec(column("n", "integer"), revision=dated(of))
    (good,) = mapped(mapping, f'{{"id": "a", "rev": {written}, "n": 1}}').rows
    refused = f'{{"id": "a", "rev": {written}, "n": "x"}}'
    assert mapped(mapping, refused).rows == []
    assert _revision(mapping, refused) == good[REVISION]


def test_a_revision_of_the_observation_is_read_too() -> None:
    fetched = ByPlan(parse_mapping_path("observation.fetched_at"))
    mapping = spec(revision=dated("timestamptz", path=fetched))
    (good,) = mapped(mapping, '{"id": "a"}').rows
    assert _revision(mapping, '{"id": "a"}') == good[REVISION]


@pytest.mark.parametrize("raw", ["{", '{"id": "a"}', '{"id": "a", "rev": "x"}', "3"])
def test_a_revision_that_cannot_be_read_is_none(raw: str) -> None:
    assert _revision(spec(revision=dated()), raw) is None
