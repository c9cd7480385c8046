"""What a replay says, as text and as JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ops.status.words import sightings

if TYPE_CHECKING:
    from apply.replay_report import Diff, Progress, ReplayReport, Sample

_OUTCOMES = ("applied", "superseded", "ignored", "quarantined", "retryable", "erased")
_WHY = {
    "deleted": "their record says that they are deleted",
    "ignored": "their record is now filtered by `where`",
    "quarantined": "their record now fails",
    "erased": "their record was erased",
    "superseded": "their record lies below a sweep",
    "other_key": "their record now has another key",
    "without_observation": "the log no longer has an observation of them",
}


def progress_text(progress: Progress) -> str:
    """One line: share, offsets, rate, time left, and why it is slow."""
    share = progress.done / progress.total if progress.total else 1.0
    said = (
        f"{share:4.0%}  {progress.done:,} of {progress.total:,} offsets, {progress.pages:,} pages"
    )
    if progress.phase not in ("read", "replay"):
        said = f"{progress.phase}  {said.lstrip()}"
    if progress.rate_per_s:
        said += f", {progress.rate_per_s:,.0f}/s"
    if progress.left_s is not None:
        said += f", {duration(progress.left_s)} left"
    if progress.rest_s >= 0.05:
        said += f", rests {progress.rest_s:.1f} s a batch"
        if progress.lag_s:
            said += f" (live lags {progress.lag_s:.0f} s)"
    return said


def progress_json(progress: Progress) -> str:
    """The same as an object on one line."""
    outcomes = dict(zip(_OUTCOMES, progress.outcomes, strict=False))
    return json.dumps({**asdict(progress), "outcomes": outcomes})


def duration(seconds: float) -> str:
    """For a person: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def as_json(report: ReplayReport) -> dict[str, Any]:
    """The whole report."""
    return {**asdict(report), "outcomes": dict(zip(_OUTCOMES, report.outcomes, strict=True))}


def as_text(report: ReplayReport) -> str:
    """The whole report for a person."""
    counts = "  ".join(
        f"{name} {number:,}"
        for name, number in zip(_OUTCOMES, report.outcomes, strict=True)
        if number
    )
    lines = [
        f"{report.mapping} v{report.version}: {report.pages:,} pages of {report.offsets:,} offsets"
        + (", resumed" if report.resumed else ""),
    ]
    if report.scope != "everything":
        lines.append(f"  only          {report.scope}; other rows stay as they are")
    lines.append(f"  outcomes      {counts or 'none'}")
    if counts:
        lines.append(f"  {'':<14}of sightings: a record that was read again counts again")
    if report.replaced:
        replaced = sightings(report.replaced)
        lines.append(f"  replaced      {replaced} that older versions had refused")
    if report.diff is not None and (report.dry_run or report.how == "shadow"):
        lines += _diff(report.diff, done=not report.dry_run)
    elif report.diff is not None:
        lines += _removed(report.diff, "left as were")
    if report.carried:
        lines.append(f"  carried over  {', '.join(report.carried)}")
    return "\n".join([*lines, *_next(report)])


def _diff(diff: Diff, *, done: bool) -> list[str]:
    columns = "  ".join(f"{c} {n:,}" for c, n in sorted(diff.changed_columns.items()))
    add, change, stay = (
        ("added", "changed", "the same") if done else ("would add", "would change", "would stay")
    )
    lines = []
    if diff.incomparable:
        lines.append(f"  {add:<14}{diff.added:,} rows: {diff.incomparable}")
    else:
        lines += [
            f"  {add:<14}{diff.added:,} rows",
            f"  {change:<14}{diff.changed:,} rows" + (f"   {columns}" if columns else ""),
            f"  {stay:<14}{diff.unchanged:,} rows",
        ]
    if diff.not_compared:
        lines.append(
            f"  not compared: {diff.not_compared:,} rows that live has written since this began"
        )
    would = "" if done else "would be "
    lines += [
        f"  {f'in {table}':<13} {would}added {one.added:,}  changed {one.changed:,}  gone {one.removed:,}"
        for table, one in diff.children.items()
    ]
    lines += _removed(diff, "gone" if done else "would miss")
    fail, heal = ("newly failing", "healed") if done else ("would fail", "would heal")
    lines.append(f"  {fail:<14}{_by_reason(diff.newly_quarantined)} not in quarantine now")
    lines.append(f"  {heal:<14}{_by_reason(diff.healed)}")
    changed = [one for one in diff.samples if one.what == "changed"]
    if changed:
        lines.append("  for example")
        lines += [f"    {_sample(one)}" for one in changed]
    return lines


def _removed(diff: Diff, what: str) -> list[str]:
    lines = []
    for reason, number in sorted(diff.removed.items()):
        lines.append(f"  {what:<14}{number:,} rows: {_WHY.get(reason, reason)}")
        lines += [f"    {one.record}" for one in diff.samples if one.what == reason]
    if diff.removed:
        lines.append("    what a row is from: gapless explain TABLE KEY")
    return lines


def _by_reason(counted: dict[str, int]) -> str:
    number = sum(counted.values())
    total = f"{number:,} record{'' if number == 1 else 's'}"
    each = "  ".join(f"{reason} {number:,}" for reason, number in counted.items())
    return total + (f" ({each})" if each else "")


def _sample(one: Sample) -> str:
    before, after = ("NULL" if v is None else v for v in (one.before, one.after))
    return f"{one.column}: {before} → {after}   ({one.record})"


def _next(report: ReplayReport) -> list[str]:
    command = f"gapless replay {report.mapping}"
    if report.dry_run:
        lines = ["Nothing was written."]
        if report.why_shadow:
            lines.append(f"The table cannot hold this: {'; '.join(report.why_shadow)}.")
        if report.against is not None:
            lines.append(f"But {report.against}")
        elif report.why_shadow:
            lines.append(f"Next: {command} --shadow")
        elif report.diff is not None and set(report.diff.removed) - {"deleted"}:
            lines.append(
                "In place, rows that nothing stands for stay as they are; "
                f"{command} --shadow makes a table without them."
            )
        return lines
    if report.how != "shadow":
        return _done_in_place(report)
    if not report.swapped:
        return [f"Built and not swapped. {command} {report.way} swaps, {command} --drop drops it."]
    lines = [f"Version {report.version} is live."]
    if report.back:
        lines.append(
            f"Put version {report.version} into {report.file or 'the file of the mapping'} of every worker: "
            f"one that starts with version {report.aside} is refused."
        )
    lines.append(
        f"{command} --swap-back --definitions FOLDER, where FOLDER has the definitions of version "
        f"{report.aside}, brings the table of version {report.aside} back, caught up; {command} --drop "
        "drops it."
    )
    return lines


def _done_in_place(report: ReplayReport) -> list[str]:
    where = "in the log" if report.scope == "everything" else "of that part"
    left = "; the others stay as they are" if report.diff and report.diff.removed else ""
    said = f"Every row that an observation {where} gives is of version {report.version}{left}."
    return [f"Done. {said}"]
