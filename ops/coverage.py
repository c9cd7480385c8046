"""`gapless coverage`: which stretches of the source's time were fully searched, and which were not.

Pure but for `read`. What lies between two stretches was never searched, and is shown as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import psycopg
from psycopg.rows import dict_row

from ops.status.words import sightings

_QUERY = """
SELECT p.text AS partition_id, c.plan, c.start_at, c.end_at, c.state, c.run, c.reason, c.pages,
  c.records, c.errors, c.completed_at
FROM gapless.coverage c JOIN gapless.partition_id p ON p.id = c.partition_id
WHERE p.text LIKE %(like)s ORDER BY p.text, c.plan, c.start_at"""
UNSEARCHED = "not searched"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch and what is known of it; counts are of all searches together.

    So `records` and `errors` count sightings. `errors`: those that had no row when they were read, less
    what is known to have healed; what is open now stands in quarantine alone.
    """

    start_at: datetime
    end_at: datetime
    state: str
    pages: int = 0
    records: int = 0
    errors: int = 0
    run: str | None = None
    reason: str | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PlanCoverage:
    """One plan of one partition id, its stretches without overlap and without holes."""

    partition_id: str
    plan: str
    stretches: tuple[Stretch, ...]

    @property
    def whole(self) -> bool:
        """Whether everything between the ends was searched."""
        return all(stretch.state.startswith("complete") for stretch in self.stretches)


def read(dsn: str, pattern: str | None = None) -> list[PlanCoverage]:
    """Coverage from Postgres; in `pattern` `*` stands for anything. Raises psycopg.Error."""
    like = "%" if pattern is None else _like(pattern)
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        connection.read_only = True
        return list(group(connection.execute(_QUERY, {"like": like})))


def _like(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def group(rows: Iterable[dict[str, Any]]) -> Iterator[PlanCoverage]:
    """Rows by (partition id, plan, start) as coverage; neighbours that say the same become one."""
    for (owner, plan), found in groupby(rows, lambda row: (row["partition_id"], row["plan"])):
        stretches = (
            Stretch(**{name: row[name] for name in Stretch.__dataclass_fields__}) for row in found
        )
        yield PlanCoverage(owner, plan, tuple(_joined(stretches)))


def _joined(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    last: Stretch | None = None
    for stretch in stretches:
        if last is None:
            last = stretch
            continue
        if last.end_at < stretch.start_at:
            yield last
            yield Stretch(last.end_at, stretch.start_at, UNSEARCHED)
            last = stretch
        elif (last.state, last.run, last.reason) == (stretch.state, stretch.run, stretch.reason):
            last = _sum(last, stretch)
        else:
            yield last
            last = stretch
    if last is not None:
        yield last


def _sum(one: Stretch, other: Stretch) -> Stretch:
    times = [at for at in (one.completed_at, other.completed_at) if at is not None]
    return Stretch(
        start_at=one.start_at,
        end_at=max(one.end_at, other.end_at),
        state=one.state,
        pages=one.pages + other.pages,
        records=one.records + other.records,
        errors=one.errors + other.errors,
        run=one.run,
        reason=one.reason,
        completed_at=max(times, default=None),
    )


def to_json(found: Iterable[PlanCoverage]) -> list[dict[str, Any]]:
    """Times as ISO 8601 text in UTC."""
    return [
        {
            "partition_id": one.partition_id,
            "plan": one.plan,
            "whole": one.whole,
            "stretches": [
                {name: _plain(getattr(s, name)) for name in Stretch.__dataclass_fields__}
                for s in one.stretches
            ],
        }
        for one in found
    ]


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def to_text(found: Sequence[PlanCoverage], *, holes_only: bool = False) -> str:
    """One line per stretch; `holes_only` leaves out what is complete."""
    lines: list[str] = []
    for one in found:
        shown = [s for s in one.stretches if not (holes_only and s.state.startswith("complete"))]
        if holes_only and not shown:
            continue
        said = "no gap" if one.whole else "not everything was searched"
        lines.append(f"{one.partition_id}  {one.plan}  {said}")
        lines += [_line(stretch) for stretch in shown]
    if any(s.errors for one in found for s in one.stretches) and not holes_only:
        lines.append("What of these errors is open now: gapless quarantine list")
    return "\n".join(lines) or ("no holes" if holes_only else "no coverage yet")


def _line(stretch: Stretch) -> str:
    span = f"{_moment(stretch.start_at)} .. {_moment(stretch.end_at)}"
    counts = f"{stretch.pages:,} pages, {sightings(stretch.records)}"
    errors = f", {stretch.errors:,} had errors when read" if stretch.errors else ""
    run = f"  run {stretch.run}" if stretch.run else ""
    reason = f"  {stretch.reason}" if stretch.reason else ""
    if stretch.state == UNSEARCHED:
        return f"  {span:<44} {stretch.state}"
    return f"  {span:<44} {stretch.state:<21} {counts}{errors}{run}{reason}"


def _moment(at: datetime) -> str:
    whole = (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0)
    return f"{at:%Y-%m-%d}" if whole else f"{at:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
