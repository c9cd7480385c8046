"""What a run that was ended had already proven, partition by partition, in a file beside it.

Each partition is judged against Postgres at an instant of its own, so what was proven of it stays
proven. The file belongs to one deployment: another database or topic makes it worthless, and that
is said instead of used.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ops.audit.findings import Findings
from ops.audit.pages import Totals
from ops.audit.report import PartitionRead
from ops.problems import REFUSED, Stop

_FORMAT = 1


@dataclass(slots=True)
class PartitionResult:
    """What one partition gave. `at`: when Postgres was read, as RFC 3339 in UTC."""

    read: PartitionRead
    at: str
    marks: int = 0
    totals: Totals = field(default_factory=Totals)
    findings: Findings = field(default_factory=Findings)

    def to_json(self) -> dict[str, Any]:
        totals = msgspec.to_builtins(self.totals)
        return {
            "read": msgspec.to_builtins(self.read),
            "at": self.at,
            "marks": self.marks,
            "totals": totals,
            "findings": self.findings.to_json(),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> PartitionResult:
        """The inverse; raises KeyError, TypeError or msgspec.ValidationError for anything else."""
        totals = Totals(**found["totals"])
        totals.outcomes = Counter(totals.outcomes)
        totals.awaiting_replay = Counter(totals.awaiting_replay)
        return cls(
            msgspec.convert(found["read"], PartitionRead),
            str(found["at"]),
            int(found["marks"]),
            totals,
            Findings.from_json(found["findings"]),
        )


class Kept:
    """The results of an unfinished audit. `deployment`: words that tell one from all others.

    Raises Stop if the file is something else, or another deployment's.
    """

    def __init__(self, file: Path | None, deployment: str) -> None:
        self._file, self._deployment = file, deployment
        self.results: dict[int, PartitionResult] = {}
        if file is not None and file.exists():
            self.results = self._load(file)

    def add(self, result: PartitionResult) -> None:
        """Remember a partition; on disk before this returns."""
        self.results[result.read.partition] = result
        if self._file is None:
            return
        body = {
            "format": _FORMAT,
            "deployment": self._deployment,
            "partitions": [one.to_json() for one in self.results.values()],
        }
        # of this process alone: somebody may have started the same audit twice
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}.new")
        with beside.open("wb") as out:
            out.write(msgspec.json.encode(body))
            out.flush()
            os.fsync(out.fileno())
        beside.replace(self._file)

    def done(self) -> None:
        """The audit is complete: the next one begins anew."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _load(self, file: Path) -> dict[int, PartitionResult]:
        try:
            body = msgspec.json.decode(file.read_bytes())
            known = (body["format"], body["deployment"])
            results = [PartitionResult.from_json(one) for one in body["partitions"]]
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise Stop(
                f"{file} is no state of an audit: remove it, or name another file.", REFUSED
            ) from error
        if known != (_FORMAT, self._deployment):
            raise Stop(
                f"{file} belongs to an audit of another deployment: remove it, or name another file.",
                REFUSED,
            )
        return {one.read.partition: one for one in results}
