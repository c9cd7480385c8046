"""The result of an audit, as JSON and as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ops.audit.findings import Finding, Findings
from ops.audit.pages import Totals


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """How far one partition was read. `[low, stable_end)` of the log; `next_offset` is applied."""

    partition: int
    low: int
    stable_end: int
    end: int
    next_offset: int | None


@dataclass(slots=True)
class Report:
    """What was compared and what was found. `clean`: every promise of the ledger holds."""

    findings: Findings
    totals: Totals = field(default_factory=Totals)
    partitions: list[PartitionRead] = field(default_factory=list)
    marks: int = 0
    checkpoints: int = 0
    partition_ids: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    coverage: int = 0
    open_gaps: int = 0
    seconds: float = 0.0
    earlier: dict[int, str] = field(default_factory=dict)  # partition → when a run before read it

    def take(self, read: PartitionRead, marks: int, totals: Totals, findings: Findings) -> None:
        """Add what one partition gave."""
        self.partitions.append(read)
        self.marks += marks
        self.totals.take(totals)
        self.findings.take(findings)

    @property
    def clean(self) -> bool:
        return self.findings.clean

    def notes(self) -> list[str]:
        """What is no fault, and worth knowing."""
        found = [
            f"{number} records await `gapless replay` of {mapping}"
            for mapping, number in sorted(self.totals.awaiting_replay.items())
        ]
        if self.totals.not_yet_applied:
            found.append(f"{self.totals.not_yet_applied} pages stand behind the applied offset")
        if self.totals.expired:
            found.append(f"{self.totals.expired} outcomes belong to pages that have expired")
        if self.totals.foreign:
            found.append(f"{self.totals.foreign} values of the log are no records of Gapless")
        if self.earlier:
            found.append(
                f"{len(self.earlier)} of {len(self.partitions)} partitions were read by a run that "
                f"was ended, the first as of {min(self.earlier.values())}"
            )
        if self.open_gaps:
            found.append(f"{self.open_gaps} gaps are recorded and not accepted: gapless status")
        return found

    def to_json(self) -> dict[str, Any]:
        totals = {
            "pages": self.totals.pages,
            "records": self.totals.records,
            "outcomes": dict(self.totals.outcomes),
            "not_yet_applied": self.totals.not_yet_applied,
            "awaiting_replay": dict(self.totals.awaiting_replay),
            "expired": self.totals.expired,
            "foreign": self.totals.foreign,
            "marks": self.marks,
            "checkpoints": self.checkpoints,
            "partition_ids": self.partition_ids,
            "rows": self.rows,
            "coverage": self.coverage,
            "open_gaps": self.open_gaps,
        }
        return {
            "clean": self.clean,
            "totals": totals,
            "partitions": [asdict(partition) for partition in self.partitions],
            "finding_counts": dict(self.findings.counts),
            "findings": [finding.to_json() for finding in self.findings.kept],
            "earlier": self.earlier,
            "notes": self.notes(),
            "seconds": round(self.seconds, 3),
        }

    def to_text(self) -> str:
        totals = self.totals
        outcomes = "  ".join(f"{name} {n:,}" for name, n in totals.outcomes.items() if n)
        rows = "  ".join(f"{table} {n:,}" for table, n in self.rows.items())
        read = f"{totals.pages:,} pages, {totals.records:,} records, {self.marks:,} marks"
        lines = [
            f"Read        {read} in {len(self.partitions)} partitions, {self.seconds:.1f} s",
            f"Outcomes    {outcomes or 'none'}",
            f"Rows        {rows or 'none'}",
            f"Checkpoints {_checkpoints(self.checkpoints, self.partition_ids)}",
            f"Coverage    {self.coverage:,} stretches",
            *(f"Note        {note}" for note in self.notes()),
        ]
        if self.clean:
            return "\n".join([*lines, "Clean       every record has its outcome, nothing is ahead"])
        number = sum(self.findings.counts.values())
        lines += ["", f"Not clean   {number:,} findings"]
        for kind, count in self.findings.counts.most_common():
            kept = [finding for finding in self.findings.kept if finding.kind == kind]
            lines += _section(kept, count)
        return "\n".join(lines)


def _checkpoints(read: int, partition_ids: int) -> str:
    """Each partition id has had many: the log keeps all of them for a while."""
    ids = f"{partition_ids:,} partition id{'' if partition_ids == 1 else 's'}"
    return f"{read:,} checked, for {ids}"


def _section(kept: list[Finding], count: int) -> list[str]:
    shown = [f"  {finding}" for finding in kept[:10]]
    rest = count - len(shown)
    more = [f"  … and {rest:,} more: gapless audit --json"] if rest else []
    return ["", f"{kept[0].kind} ({count:,}): {kept[0].meaning}", *shown, *more]
