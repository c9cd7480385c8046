"""From the rows of a batch to one row per key, as the upsert needs it.

Invariant: upserting the winners leaves what applying every row in log order would leave; each row
is a winner, a loser (superseded), or waits for a round of its own. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from apply.guard import beats, carried_began, observed_order
from apply.mapping.types import BEGAN, GENERATION, OFFSET, PARTITION_ID, CompiledMapping, Key, Row


@dataclass(slots=True)
class Folded:
    """`winners` sorted by key as Postgres sorts COLLATE "C"; `losers` are superseded.

    `contested`: rows whose key another partition id has in this batch too. Fold and upsert them
    after the winners: who does not hold the row by then is reported by `others_sql`. `places`: where
    the winners stand among the rows; None: some of these share a key.
    """

    winners: list[Row] = field(default_factory=list)
    losers: list[Row] = field(default_factory=list)
    contested: list[Row] = field(default_factory=list)
    places: list[int] | None = None


def fold(rows: Sequence[Row], compiled: CompiledMapping) -> Folded:
    """The newest row per key by the guard's order, and what it beat.

    A row that is there several times (the same observation, also under several mapping versions)
    is folded like any other: the highest mapping version stays, its copies lose.
    """
    width = len(compiled.key_positions)
    firsts = [row[0] for row in rows]
    if len(set(firsts)) == len(firsts):  # as nearly always, and it is sorted at half the cost
        places = sorted(range(len(firsts)), key=firsts.__getitem__)
        return Folded([rows[at] for at in places], places=places)
    keys = [row[:width] for row in rows]
    if len(set(keys)) == len(keys):
        places = sorted(range(len(keys)), key=keys.__getitem__)
        return Folded([rows[at] for at in places], places=places)
    folded = Folded()
    groups: dict[Key, list[Row]] = {}
    best: dict[Key, Row] = {}
    for key, row in zip(keys, rows, strict=True):
        if best.setdefault(key, row) is not row:
            groups.setdefault(key, [best[key]]).append(row)
    for key, group in groups.items():
        owner = group[0][PARTITION_ID]
        folded.contested += [row for row in group if row[PARTITION_ID] != owner]
        ours = [row for row in group if row[PARTITION_ID] == owner]
        best[key] = _newest(ours, compiled, folded.losers)
    folded.winners = [best[key] for key in sorted(best)]
    return folded


def _newest(group: list[Row], compiled: CompiledMapping, losers: list[Row]) -> Row:
    """In log order, because a listing decides about what came before it."""
    kind = compiled.spec.revision.kind
    group.sort(key=observed_order)
    winner = group[0]
    for row in group[1:]:
        won, lost = (row, winner) if beats(row, winner, kind) else (winner, row)
        losers.append(lost)
        winner = _with_began(won, carried_began(won, lost))
    return winner


def _with_began(row: Row, began: int | None) -> Row:
    if row[BEGAN] == began:
        return row
    return (*row[:BEGAN], began)


def split_barred(
    rows: Iterable[Row], barriers: Mapping[int, tuple[int, int]]
) -> tuple[list[Row], list[Row]]:
    """Rows that may be applied, and rows that are superseded since a sweep stands above them.

    `barriers`: (generation, offset) of the last applied sweep by number of partition id. What was
    observed below it would bring back what the sweep has cleared.
    """
    kept: list[Row] = []
    barred: list[Row] = []
    for row in rows:
        barrier = barriers.get(row[PARTITION_ID])
        below = barrier is not None and (row[GENERATION], row[OFFSET]) < barrier
        (barred if below else kept).append(row)
    return kept, barred
