"""A walk that ends at a total, against every meaning that providers give to one."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from ingest.plans.protocol import IDLE_PAGES_MAX, Now
from ingest.plans.walk import Outcome, Walker
from schemas.definitions.source import End, PagesSpec, Turn
from schemas.records import Walk
from tests.property.plan_source import EPOCH, Fact, page_of

NOW = Now(EPOCH, EPOCH, EPOCH)


@given(
    turn=st.sampled_from([Turn.PAGE, Turn.OFFSET, Turn.TOKEN, Turn.LAST_ID]),
    rows=st.integers(0, 12),
    size=st.integers(2, 4),
    repeats=st.booleans(),
    left=st.booleans(),
)
def test_a_total_never_ends_a_walk_before_its_last_row(
    turn: Turn, rows: int, size: int, repeats: bool, left: bool
) -> None:
    """`repeats`: {last.id} is inclusive; `left`: the total counts what is behind it, not everything."""
    facts = [Fact(n, EPOCH, EPOCH) for n in range(rows)]
    pages = PagesSpec(turn=turn, end=End.TOTAL, size=size, stable=True)
    walker, walk, seen = Walker(pages, iter("abc").__next__), Walk(scope="s"), set[int]()
    for _ in range(3 * rows + IDLE_PAGES_MAX + 2):
        values = walker.values(walk)
        first = int(str(values.get("token", values.get("offset", 0))))
        if turn is Turn.PAGE:
            first = (int(str(values["page"])) - 1) * size
        if turn is Turn.LAST_ID and "last.id" in values:
            first = int(str(values["last.id"])) + (0 if repeats else 1)
        found = facts[first : first + size]
        counted = rows - first if left and turn is Turn.LAST_ID else rows
        page = page_of(found, NOW, total=counted, next=str(first + size))
        turned = walker.turn(walk, page)
        seen |= {fact.number for fact in found}
        if turned.outcome is not Outcome.MORE:
            break
        walk = turned.walk
    if turned.outcome is Outcome.END:
        assert seen == set(range(rows))
    else:  # an inclusive last id never gives an empty page: a stall that says so, and no claim
        assert turned.outcome is Outcome.STALL and turn is Turn.LAST_ID and repeats
