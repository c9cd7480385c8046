"""What is known about one row: where it was seen, what became of it, how it stands now."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ops.status.words import iso

OUTCOMES = ("applied", "superseded", "ignored", "quarantined", "retryable", "erased")


@dataclass(frozen=True, slots=True)
class Became:
    """What one version of the mapping made of a record; `exception` says why, and who decided.

    `beside`: its table stands beside the live one, so it says nothing of the row.
    """

    version: int
    outcome: str
    exception: str | None = None
    beside: bool = False

    def __str__(self) -> str:
        why = f" ({self.exception})" if self.exception else ""
        return f"v{self.version} {'beside live: ' if self.beside else ''}{self.outcome}{why}"


@dataclass(slots=True)
class Sighting:
    """One record with the row's key. Times are microseconds since the epoch.

    `became`: newest mapping version first; empty while the applied offset has not come that far.
    `wrote_row`: the row is this record. `origin`: offset of the first copy of its page, which an
    erasure may have rewritten.
    """

    partition: int
    generation: int
    offset: int
    origin: int
    index: int
    plan: str
    scope: str
    pass_: str
    page: int
    part: int
    reason: str
    url: str
    run: str | None
    fetched_at: int
    as_of: int | None
    revision: str | None
    deleted: bool
    became: list[Became] = field(default_factory=list)
    wrote_row: bool = False
    raw: bytes = b""

    @property
    def newest(self) -> Became | None:
        """What the newest version that has had the live table made of it."""
        return next((one for one in self.became if not one.beside), None)

    def to_json(self, *, raw: bool) -> dict[str, Any]:
        found = asdict(self)
        found["pass"] = found.pop("pass_")
        found["fetched_at"], found["as_of"] = iso(self.fetched_at), iso(self.as_of)
        newest = self.newest
        found["outcome"] = newest.outcome if newest else None
        found["exception"] = newest.exception if newest else None
        body = found.pop("raw")
        if raw:
            found["raw"] = body.decode("utf-8", "replace")
        return found


@dataclass(slots=True)
class Explanation:
    """`row`: the row's columns as text where they may be shown, None for NULL; None if there is no row.

    `children`: how many rows it has in each child table.
    """

    table: str
    mapping: str
    key: dict[str, str]
    partition_id: str
    row: dict[str, str | None] | None
    sightings: list[Sighting] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    children: dict[str, int] = field(default_factory=dict)

    @property
    def unknown(self) -> bool:
        """Neither a row nor a record that is still in the log has this key."""
        return self.row is None and not self.sightings

    def to_json(self, *, raw: bool) -> dict[str, Any]:
        return {
            "table": self.table,
            "mapping": self.mapping,
            "key": self.key,
            "partition_id": self.partition_id,
            "row": self.row,
            "children": self.children,
            "observations": [sighting.to_json(raw=raw) for sighting in self.sightings],
            "notes": self.notes,
        }

    def to_text(self, *, raw: bool) -> str:
        key = ", ".join(f"{name} {value}" for name, value in self.key.items())
        lines = [f"{self.table}  {key}  of {self.partition_id} by {self.mapping}"]
        if self.row is None:
            lines.append("There is no such row.")
        else:
            shown = {name: "NULL" if one is None else one for name, one in self.row.items()}
            lines += [f"  {name:<18} {value}" for name, value in shown.items()]
            lines += [f"  {name:<18} {number} rows" for name, number in self.children.items()]
        number = len(self.sightings)
        if not number:
            lines.append("No observation that is still in the log has this key.")
        else:
            lines.append(f"Seen {number} time{'' if number == 1 else 's'}, oldest first:")
        for sighting in self.sightings:
            lines += _sighting(sighting, raw)
        return "\n".join([*lines, *self.notes])


def _sighting(seen: Sighting, raw: bool) -> list[str]:
    place = f"{seen.partition}/{seen.offset}/{seen.index}"
    became = seen.newest.outcome if seen.newest else "not applied yet"
    mark = "  <- the row" if seen.wrote_row else ""
    revision = f"revision {seen.revision}" if seen.revision is not None else "no revision"
    gone = ", deleted" if seen.deleted else ""
    asked = f"{seen.plan} {seen.scope}, page {seen.page} of pass {seen.pass_} ({seen.reason})"
    asked += f" for run {seen.run}" if seen.run is not None else ""
    lines = [
        f"  {place:<18} {iso(seen.fetched_at)}  {revision}{gone}  {became}{mark}",
        f"  {'':<18} {asked}",
    ]
    if len(seen.became) > 1 or any(one.exception for one in seen.became):
        lines += [f"  {'':<18} {one}" for one in seen.became]
    if raw:
        lines.append(f"  {'':<18} {seen.raw.decode('utf-8', 'replace')}")
    return lines
