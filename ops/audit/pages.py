"""Does every record of every page have exactly one outcome per live mapping, and no more?

Pure: pages and ledger rows come in the order of their offsets, findings go out. Which pages are
still owed to a mapping follows from its replay and from where it went live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ops.audit.facts import ExceptionRow, LedgerRow, Logged, Page, Version
from ops.audit.findings import Findings
from schemas.keys import split_partition_id

# the bytes of page_ledger.outcomes; part of the agreed form of the table
APPLIED, SUPERSEDED, IGNORED, QUARANTINED, RETRYABLE, ERASED = range(1, 7)
OUTCOMES = ("applied", "superseded", "ignored", "quarantined", "retryable", "erased")
_EXPECTED = {QUARANTINED: ("quarantined", "repeated", "dismissed"), RETRYABLE: ("retryable",)}
_MISSING = {"erased": ERASED, "oversized": QUARANTINED, "unsplittable": QUARANTINED}


@dataclass(frozen=True, slots=True)
class Aligned:
    """Everything that is said about one offset."""

    offset: int
    page: Page | None
    ledger: tuple[LedgerRow, ...]
    exceptions: tuple[ExceptionRow, ...]


def align(
    pages: Iterable[Logged], ledger: Iterable[LedgerRow], exceptions: Iterable[ExceptionRow]
) -> Iterator[Aligned]:
    """Merge three streams, each sorted by offset, into one element per offset."""
    streams = (_groups(pages), _groups(ledger), _groups(exceptions))
    heads = [next(stream, None) for stream in streams]
    while True:
        offsets = [head[0] for head in heads if head is not None]
        if not offsets:
            return
        offset = min(offsets)
        taken: list[list[object]] = []
        for number, head in enumerate(heads):
            if head is not None and head[0] == offset:
                taken.append(head[1])
                heads[number] = next(streams[number], None)
            else:
                taken.append([])
        found = [item.value for item in taken[0] if isinstance(item, Logged)]
        page = found[0] if found and isinstance(found[0], Page) else None
        rows = tuple(item for item in taken[1] if isinstance(item, LedgerRow))
        faults = tuple(item for item in taken[2] if isinstance(item, ExceptionRow))
        yield Aligned(offset, page, rows, faults)


def _groups(
    stream: Iterable[Logged] | Iterable[LedgerRow] | Iterable[ExceptionRow],
) -> Iterator[tuple[int, list[object]]]:
    group: list[object] = []
    at: int | None = None
    for item in stream:
        if item.offset != at and at is not None:
            yield at, group
            group = []
        at = item.offset
        group.append(item)
    if at is not None:
        yield at, group


@dataclass(slots=True)
class Totals:
    """What was looked at. `outcomes`: of each record once for each mapping, by the version that speaks
    for it now. `awaiting_replay`: records per mapping version that a replay still owes."""

    pages: int = 0
    records: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    not_yet_applied: int = 0
    awaiting_replay: Counter[str] = field(default_factory=Counter)
    expired: int = 0
    foreign: int = 0

    def take(self, others: Totals) -> None:
        """Add what was looked at elsewhere."""
        self.pages += others.pages
        self.records += others.records
        self.outcomes.update(others.outcomes)
        self.not_yet_applied += others.not_yet_applied
        self.awaiting_replay.update(others.awaiting_replay)
        self.expired += others.expired
        self.foreign += others.foreign


class PageJudge:
    """Judges the pages of one partition; `next_offset` is the applied offset of the live pipeline.

    `replayed`: mapping version → next offset of its replay in this partition.
    """

    def __init__(
        self,
        partition: int,
        next_offset: int,
        versions: Sequence[Version],
        replayed: Mapping[int, int],
        findings: Findings,
        totals: Totals,
    ) -> None:
        self._partition, self._next = partition, next_offset
        self._versions = {version.id: version for version in versions}
        self._owed = _newest_live(versions)
        self._replayed = replayed
        self._live_since: set[int] = set()
        self._findings, self._totals = findings, totals

    def judge(self, at: Aligned) -> None:
        """One offset that has a page; rows without a page are the index's orphans."""
        page = at.page
        if page is None:
            return
        self._totals.pages += 1
        self._totals.records += page.records
        if at.offset >= self._next:
            self._totals.not_yet_applied += 1
            if at.ledger:
                self._add("outcome_above_applied", f"applied offset is {self._next}", at)
            return
        if not at.ledger:
            self._add("unaccounted", f"{page.records} records without any outcome", at)
            return
        self._debts(at, page)
        counted = self._speaking(at)
        for row in at.ledger:
            self._row(at, page, row, counts=row.mapping_version in counted)
        known = {row.mapping_version for row in at.ledger}
        for fault in at.exceptions:
            if fault.mapping_version not in known:
                self._add("exception_differs", "an exception without outcomes", at, fault.index)

    def _debts(self, at: Aligned, page: Page) -> None:
        """Each live mapping has its outcomes here, unless only its replay will bring them."""
        source, stream, _ = split_partition_id(page.partition_id)
        have = {row.mapping_version for row in at.ledger}
        for version in self._owed.get((source, stream), ()):
            replayed = at.offset < self._replayed.get(version.id, 0)
            if version.id in have:
                if not replayed:
                    self._live_since.add(version.id)
            elif replayed or version.id in self._live_since:
                self._add("unaccounted", f"{page.records} records", at, version=version.id)
            else:
                self._totals.awaiting_replay[f"{version.mapping} v{version.version}"] += (
                    page.records
                )

    def _speaking(self, at: Aligned) -> set[int]:
        """The versions whose outcomes count here, one of each mapping: the live one, else the newest."""
        newest: dict[str, Version] = {}
        for row in at.ledger:
            one = self._versions.get(row.mapping_version)
            before = newest.get(one.mapping) if one else None
            if one and (before is None or (one.live, one.version) > (before.live, before.version)):
                newest[one.mapping] = one
        # what no mapping had read when it was applied, or what is of a version that nobody knows
        return {one.id for one in newest.values()} or {row.mapping_version for row in at.ledger}

    def _row(self, at: Aligned, page: Page, row: LedgerRow, *, counts: bool) -> None:
        self._identity(at, page, row)
        each = Counter(row.outcomes)
        found = tuple(each[number] for number in range(1, 7))
        if (
            len(row.outcomes) != page.records
            or row.records != page.records
            or found != row.counts
            or sum(found) != page.records
        ):
            self._add(
                "counts_differ",
                f"{page.records} records, ledger says {row.records}, counts {list(row.counts)},"
                f" {len(row.outcomes)} outcomes that are {list(found)}",
                at,
                version=row.mapping_version,
            )
            return
        if counts:
            self._totals.outcomes.update(dict(zip(OUTCOMES, found, strict=True)))
        if row.mapping_version and page.missing:
            self._missing(at, page, row)
        self._exceptions(at, page, row)

    def _identity(self, at: Aligned, page: Page, row: LedgerRow) -> None:
        origin = at.offset if page.original_offset is None else page.original_offset
        if (row.key, row.parts, row.original_offset) != (page.key, page.parts, origin):
            self._add(
                "ledger_differs",
                f"{row.key} of {row.parts} from {row.original_offset},"
                f" the log has {page.key} of {page.parts} from {origin}",
                at,
                version=row.mapping_version,
            )

    def _missing(self, at: Aligned, page: Page, row: LedgerRow) -> None:
        for position, why in page.missing.items():
            if 0 <= position < len(row.outcomes) and row.outcomes[position] != _MISSING[why]:
                found = OUTCOMES[row.outcomes[position] - 1]
                index = page.first_index + position
                self._add("outcome_contradicts_page", f"{why}, but {found}", at, index)

    def _exceptions(self, at: Aligned, page: Page, row: LedgerRow) -> None:
        states = {
            fault.index - page.first_index: fault.state
            for fault in at.exceptions
            if fault.mapping_version == row.mapping_version
        }
        open_ones = [i for i, byte in enumerate(row.outcomes) if byte in _EXPECTED]
        for position in open_ones:
            state = states.pop(position, None)
            byte = row.outcomes[position]
            index = page.first_index + position
            if state is None:
                self._add("exception_missing", OUTCOMES[byte - 1], at, index, row.mapping_version)
            elif state not in _EXPECTED[byte]:
                said = f"outcome {OUTCOMES[byte - 1]}, exception {state}"
                self._add("exception_differs", said, at, index, row.mapping_version)
        for position, state in states.items():
            if state != "resolved" or not 0 <= position < page.records:
                said = f"exception {state} of a record with another outcome"
                index = page.first_index + position
                self._add("exception_differs", said, at, index, row.mapping_version)

    def _add(
        self,
        kind: str,
        what: str,
        at: Aligned,
        index: int | None = None,
        version: int | None = None,
    ) -> None:
        known = self._versions.get(version) if version is not None else None
        self._findings.add(
            kind,
            what,
            partition=self._partition,
            offset=at.offset,
            index=index,
            partition_id=at.page.partition_id if at.page else None,
            mapping=f"{known.mapping} v{known.version}" if known else None,
        )


def _newest_live(versions: Sequence[Version]) -> dict[tuple[str, str], list[Version]]:
    """(source, stream) → the newest live version of each of its mappings."""
    newest: dict[str, Version] = {}
    for version in versions:
        if version.live and version.version > getattr(newest.get(version.mapping), "version", 0):
            newest[version.mapping] = version
    found: dict[tuple[str, str], list[Version]] = {}
    for version in newest.values():
        found.setdefault((version.source, version.stream), []).append(version)
    return found
