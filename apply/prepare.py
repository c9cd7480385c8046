"""What of a batch can be done before its transaction: one row per key, and the bytes that are sent.

The reading thread does it when it cuts a batch, so that the writing thread, which waits for Postgres
most of the time, only sends. It counts for the batch as it was cut; whatever takes something out of
a batch leaves this behind. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apply.batch import Batch, Work
from apply.copy_frame import chunks
from apply.fold import Folded, fold
from apply.mapping.types import CompiledMapping, Row


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows of one mapping version. `copy`, `question`: the winners as a whole binary COPY, as they
    are stored or as the prefilter asks about them; None: they were not formed that way."""

    folded: Folded
    copy: Sequence[bytes] | None
    question: Sequence[bytes] | None


def prepare(batch: Batch) -> None:
    """Fold the rows of every mapping version, and join their forms, which are needed no more."""
    works: dict[int, list[Work]] = {}
    for page in batch.pages():
        for work in page.works:
            if work.compiled is not None:
                works.setdefault(work.mapping_version, []).append(work)
    batch.prepared = {version: _prepared(of) for version, of in works.items()}


def _prepared(works: Sequence[Work]) -> Prepared:
    compiled: CompiledMapping | None = works[0].compiled
    assert compiled is not None
    folded = fold((row for work in works for row in work.mapped.rows), compiled)
    copy = _joined(folded.winners, ((work.mapped.rows, work.forms) for work in works))
    question = _joined(folded.winners, ((work.mapped.rows, work.questions) for work in works))
    if copy is not None or question is not None:
        for work in works:
            work.forms = work.questions = ()
    return Prepared(folded, copy, question)


Forms = Sequence[bytearray | None]


def by_identity(pages: Iterable[tuple[Sequence[Row], Forms]]) -> dict[int, bytearray]:
    """The form of each row that has one, by the identity of the row."""
    return {
        id(row): form
        for rows, forms in pages
        for row, form in zip(rows, forms, strict=False)
        if form is not None
    }


def _joined(
    rows: Sequence[Row], pages: Iterable[tuple[Sequence[Row], Forms]]
) -> list[bytes] | None:
    known = by_identity(pages)
    try:
        return list(chunks(known[id(row)] for row in rows)) if rows else None
    except KeyError:
        return None
