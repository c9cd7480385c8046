"""What a probe found, as JSON and as the table that an operator reads. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ops.probe.model import NOTHING, UNKNOWN, Finding
from ops.probe.run import Probed, Report

_HEAD = ("declared", "observed", "would lose")
_NEVER = "never `stable` or `settle`: what was seen once is not promised"


def as_json(report: Report) -> dict[str, Any]:
    """The report without the texts around it."""
    told: dict[str, Any] = {"source": report.source, "requests": report.requests}
    if (denied := report.denied) is not None:
        told["denied"] = {"why": denied.why, "unblocked_by": denied.unblocked_by}
    return {**told, "streams": [_stream(one) for one in report.streams]}


def loses(report: Report) -> bool:
    """Whether any difference loses something for certain."""
    return any(_is_loss(finding) for one in report.streams for _, finding in one.findings)


def _is_loss(finding: Finding) -> bool:
    said = finding.loses
    return said != UNKNOWN and not said.startswith((NOTHING, "perhaps", "found by"))


def _stream(one: Probed) -> dict[str, Any]:
    told: dict[str, Any] = {"stream": one.stream.name, "partition_id": one.partition_id}
    if one.trouble is not None:
        told["trouble"] = one.trouble
        return told if one.unblocked_by is None else {**told, "unblocked_by": one.unblocked_by}
    told["findings"] = [
        {
            "plan": plan,
            "name": finding.name,
            "declared": finding.declared,
            "observed": finding.observed,
            "would_lose": finding.loses,
            **({"needs": finding.needs} if finding.needs else {}),
        }
        for plan, finding in one.findings
    ]
    told["would_write"] = {
        f"plan.{plan}.{'.'.join(keys)}": value
        for plan, finding in one.findings
        for keys, value in finding.write.items()
    }
    return told


def as_text(report: Report) -> Iterator[str]:
    """One table for each stream, what ended it all, and how often it was asked."""
    denied = report.denied
    for one in report.streams:
        if denied is not None and one.trouble == denied.why:
            yield f"{one.partition_id:<26} {UNKNOWN}: see below"
        else:
            yield from _table(one)
        yield ""
    if denied is not None:
        yield f"{report.source} cannot be probed: {denied.why}. Nothing else was asked."
        yield f"    needed: {denied.unblocked_by}"
    yield f"{report.requests} requests, read only."


def would_write(report: Report) -> Iterator[str]:
    """What `--fix` would do: a line for each plan that it would touch."""
    written: dict[str, list[str]] = {}
    for one in report.streams:
        for plan, finding in one.findings:
            keys = [f"{'.'.join(path)} {value}" for path, value in finding.write.items()]
            if keys:
                written.setdefault(f"{one.stream.name} {plan}", []).extend(keys)
    if not written:
        yield "--fix would write nothing."
        return
    yield "--fix would write"
    yield from (f"  {plan}: {', '.join(keys)}" for plan, keys in written.items())
    yield f"but {_NEVER}."


def _table(one: Probed) -> Iterator[str]:
    if one.trouble is not None:
        yield f"{one.partition_id:<26} {UNKNOWN}: {one.trouble}"
        if one.unblocked_by is not None:
            yield f"    needed: {one.unblocked_by}"
        return
    rows = [
        (_named(one, plan, finding), finding.declared, finding.observed, finding.loses)
        for plan, finding in one.findings
    ]
    lines = [(one.partition_id, *_HEAD), *(("  " + name, *rest) for name, *rest in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(3)]
    for number, line in enumerate(lines):
        cells = [f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)]
        yield "  ".join([*cells, line[3]]).rstrip()
        needs = one.findings[number - 1][1].needs if number else None
        if needs:
            yield f"    to find out: {needs}"


def _named(one: Probed, plan: str, finding: Finding) -> str:
    several = len(one.stream.plans) > 1 and plan == "snapshot"
    return f"{plan}: {finding.name}" if several else finding.name
