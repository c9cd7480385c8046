"""What an audit found: one finding per broken statement, with coordinates and what it means.

Bounded: every finding is counted, of each kind only the first ones are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MEANING: Mapping[str, str] = {
    "unaccounted": "a logged page below the applied offset has no outcome for a live mapping: "
    "its records were skipped",
    "outcome_above_applied": "outcomes stand at or above the applied offset: effects were committed "
    "without moving it",
    "outcome_without_page": "the ledger speaks of a page that the log does not have at that offset",
    "ledger_differs": "the ledger's row does not describe the page at its offset",
    "counts_differ": "outcomes, counts and records of a page do not balance",
    "outcome_contradicts_page": "an erased, oversized or unsplittable record has another outcome",
    "exception_missing": "a record is quarantined or retryable, and no exception holds its evidence",
    "exception_differs": "an exception and the outcome of its record contradict each other",
    "row_without_record": "a row names a record that is not an applied record of the log",
    "child_of_another": "a row of a child table is not of the observation that its parent's row is of: "
    "the set was not replaced with its parent",
    "child_missing": "a set of child rows has holes: some were deleted by other hands",
    "key_twice": "a page key was written twice, and the second copy is no erasure's rewrite: "
    "the first copy may be lost by compaction",
    "wrong_key": "a record's key is not the key of its content: compaction may drop it wrongly",
    "wrong_partition": "a record lies in a log partition that its partition id is not routed to",
    "unreadable": "a value of the log cannot be decoded",
    "mark_without_pages": "a mark names pages that the log does not have as it says",
    "mark_not_applied": "a mark below the applied offset is unknown to Postgres",
    "mark_without_record": "Postgres knows a mark that the log does not have",
    "mark_pending": "a mark is held back although every page it names is applied, or for too long",
    "coverage_differs": "coverage is not what the applied marks say",
    "checkpoint_ahead": "a source checkpoint claims more than the log proves",
    "checkpoint_names_nothing": "a source checkpoint names a record that does not stand there",
    "checkpoint_order": "the sequence of a partition id's checkpoints does not rise",
    "applied_past_end": "an applied offset lies past the end of the log: the log was cut, "
    "or another topic took its name",
    "position_differs": "the record that an applied offset remembers is not the one in the log",
    "mirror_ahead": "Kafka's committed offset is past the applied offset of Postgres",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken statement; `what` says it in words, the rest says where."""

    kind: str
    what: str
    partition: int | None = None
    offset: int | None = None
    index: int | None = None
    partition_id: str | None = None
    mapping: str | None = None

    @property
    def meaning(self) -> str:
        return MEANING[self.kind]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "meaning": self.meaning}

    def __str__(self) -> str:
        where = [self.partition_id] if self.partition_id else []
        if self.partition is not None:
            where.append(f"partition {self.partition}")
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.index is not None:
            where.append(f"record {self.index}")
        if self.mapping is not None:
            where.append(f"mapping {self.mapping}")
        return f"{self.kind}: {self.what} ({', '.join(where)})" if where else self.what


class Findings:
    """Collects findings; `keep_per_kind` of each kind are kept, all are counted."""

    def __init__(self, keep_per_kind: int = 50) -> None:
        self._keep = keep_per_kind
        self.kept: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def add(
        self,
        kind: str,
        what: str,
        *,
        partition: int | None = None,
        offset: int | None = None,
        index: int | None = None,
        partition_id: str | None = None,
        mapping: str | None = None,
    ) -> None:
        """Record one finding; `kind` is one of MEANING."""
        if kind not in MEANING:
            raise KeyError(kind)
        self.counts[kind] += 1
        if self.counts[kind] <= self._keep:
            self.kept.append(Finding(kind, what, partition, offset, index, partition_id, mapping))

    def take(self, others: Findings) -> None:
        """Add what others found, within the same bound."""
        for one in others.kept:
            have = sum(kept.kind == one.kind for kept in self.kept)
            if have < self._keep:
                self.kept.append(one)
        self.counts.update(others.counts)

    def to_json(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "kept": [asdict(one) for one in self.kept]}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Findings:
        """The inverse of `to_json`; raises KeyError or TypeError for anything else."""
        self = cls()
        self.counts.update(found["counts"])
        self.kept = [Finding(**one) for one in found["kept"]]
        return self

    @property
    def clean(self) -> bool:
        return not self.counts
