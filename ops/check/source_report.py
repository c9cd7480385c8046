"""What `gapless check SOURCE` tells, as text. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from ops.status.parts import micros
from ops.status.words import moment
from schemas.records import BY_TIME


def lines(told: dict[str, Any]) -> Iterator[str]:
    """The lines about one source: its files, streams, risks and assumptions."""
    yield f"{told['file']:<26} valid"
    for mapping in told["mappings"]:
        where = f"mapping {mapping['mapping']}, v{mapping['version']}, table {mapping['table']}"
        where += "".join(f" and {child}" for child in mapping["children"])
        yield f"{mapping['file']:<26} valid, {where}"
    for stream in told["streams"]:
        yield from _stream_lines(stream)
    yield from _list("Risks you take", told["risks"])
    yield from _list("Assumed, not proven", told["assumed"])
    if told["assumed"]:
        yield f"{'':<26} `gapless probe {told['source']}` asks the provider"


def _stream_lines(stream: dict[str, Any]) -> Iterator[str]:
    if "question" in stream:
        yield f"{'First question':<26} {stream['partition_id']}  {_scope(stream)}"
        yield f"  {stream['question']}"
        yield from (f"  {note}" for note in stream["notes"])
    if "trouble" in stream:
        yield f"{'No answer':<26} {stream['trouble']}"
        if stream.get("unblocked_by"):
            yield f"  {stream['unblocked_by']}"
    yield from _explanation_lines(stream)
    answer = stream.get("answer")
    if answer is None:
        return
    if not answer["records"]:
        yield f"{'Answer':<26} no records{_passed(' in the first', answer['empty'])}"
        return
    off = answer["clocks_differ_s"]
    clocks = "" if off is None else f", clocks agree to {max(1, round(off))} s"
    more = "more pages follow" if answer["next"] else "no next page"
    came = answer["status"] or "a page"  # a tap has no status
    yield f"{'Answer':<26} {came} in {answer['milliseconds']} ms{clocks}"
    yield f"  {answer['records']} records, {more}, {answer['bytes'] // 1000} kB"
    if answer["empty"]:
        yield f"  no records{_passed(' in the', answer['empty'])} before it"
    for sample in stream["samples"]:
        yield from _sample_lines(sample)


def _passed(where: str, stretches: int) -> str:
    """` in the first 3 stretches`; nothing for none, as of a listing."""
    if stretches == 0:
        return ""
    return f"{where} stretch" if stretches == 1 else f"{where} {stretches} stretches"


def _explanation_lines(stream: dict[str, Any]) -> Iterator[str]:
    for number, reason in enumerate(stream.get("explanation", ()), 1):
        if number == 1:
            yield f"{'What is asked, and why':<26} {stream['partition_id']}, from its beginning"
        if reason["question"]:
            yield f"  {reason['plan']}: {reason['question']}"
        yield from textwrap.wrap(
            reason["why"], 96, initial_indent="      ", subsequent_indent="      "
        )


def _scope(stream: dict[str, Any]) -> str:
    """`interval [2024-01-01, 2024-01-31)`, or the plan alone."""
    start, separator, end = stream["scope"].partition("~")
    if stream["plan"] not in BY_TIME or not separator:
        return str(stream["plan"])
    return f"{stream['plan']} [{moment(micros(start), 0)}, {moment(micros(end), 0)})"


def _sample_lines(sample: dict[str, Any]) -> Iterator[str]:
    rows = [sample["columns"], *sample["rows"]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(sample["columns"]))]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield "    " + "  ".join(cells).rstrip()
    for fault, number in sample["faults"].items():
        yield f"    {number} quarantined: {fault}"
    counts = ", ".join(f"{number} {name}" for name, number in sorted(sample["outcomes"].items()))
    gone = f" ({sample['deleted']} deleted)" if sample["deleted"] else ""
    born = "".join(f"; {number} {table}" for table, number in sample["children"].items())
    yield f"  {sample['mapping'] + ' would be':<24} {counts or 'nothing'}{gone}{born}"
    if sample["halts"]:
        yield "  its log partition would halt here: `faults` takes fewer in quarantine"


def _list(title: str, items: list[str]) -> Iterator[str]:
    yield f"{title:<26} {items[0] if items else 'none'}"
    yield from (f"{'':<26} {item}" for item in items[1:])
