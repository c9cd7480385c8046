"""What of a batch can be done before its transaction: one row per key, and the bytes that are sent.

The reading thread does it when it cuts a batch, so that the writing thread, which waits for Postgres
most of the time, only sends. It counts for the batch as it was cut; whatever takes something out of
a batch leaves this behind. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

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
    rows: list[Row] = []
    for work in works:
        rows += work.mapped.rows
    folded = fold(rows, compiled)
    copy = _joined(folded, [(work.mapped.rows, work.forms) for work in works])
    question = _joined(folded, [(work.mapped.rows, work.questions) for work in works])
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


def _joined(folded: Folded, pages: Sequence[tuple[Sequence[Row], Forms]]) -> list[bytes] | None:
    if not folded.winners or not any(forms for _, forms in pages):
        return None
    found: list[bytearray | None]
    if folded.places is not None and all(len(rows) == len(forms) for rows, forms in pages):
        every = [form for _, forms in pages for form in forms]
        found = [every[at] for at in folded.places]
    else:
        known = by_identity(pages)
        found = [known.get(id(row)) for row in folded.winners]
    if None in found:
        return None
    return list(chunks(cast(list[bytearray], found)))
