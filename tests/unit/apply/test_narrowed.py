"""Which changes of a column by hand leave it fit for what its mapping makes."""

from __future__ import annotations

import pytest

from apply.narrowed import narrower
from apply.target_tables import Differing, Found


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        ("numeric(14,2)", "numeric(12,2)", True),
        ("numeric", "numeric(12,2)", True),
        ("numeric(14,4)", "numeric(12,2)", True),
        ("numeric(12,4)", "numeric(12,2)", False),
        ("numeric(12,1)", "numeric(12,2)", False),
        ("numeric(12,2)", "numeric", False),
        ("numeric(12,2)[]", "numeric(14,2)[]", False),
        ("text", "character varying(20)", True),
        ("character varying", "character varying(20)", True),
        ("character varying(30)", "character varying(20)", True),
        ("character varying(19)", "character varying(20)", False),
        ("character varying", "text", False),
        ("character varying(9)", "text", False),
        ("character(9)", "character(8)", False),
        ("bigint", "integer", False),
        ("integer", "bigint", False),
        ("timestamp(3) with time zone", "timestamp with time zone", False),
        ("date", "timestamp with time zone", False),
        ("json", "jsonb", False),
    ],
)
def test_it_fits_if_it_takes_every_value_as_it_is(found: str, wanted: str, fits: bool) -> None:
    assert narrower(Differing("t", "c", Found(found, ""), Found(wanted, ""))) is not fits


def test_what_the_guard_compares_is_ordered_by_bytes() -> None:
    """A key in the order of a language would not be sorted as the fold sorts it."""
    assert narrower(Differing("t", "c", Found("text", "de_DE"), Found("text", "C")))
    assert not narrower(Differing("t", "c", Found("text", "C"), Found("text", "de_DE")))
