"""Reads when a stream is asked: at a pace, or at the occurrences of a cron expression in a zone."""

from schemas.definitions import known_keys
from schemas.definitions.cron import Occurrences, parse_cron
from schemas.definitions.fields import Fields
from schemas.definitions.read_lengths import positive_s
from schemas.definitions.reader import Reader
from schemas.definitions.source import IntervalSpec, ScheduleSpec, StreamSpec
from schemas.definitions.times import parse_zone
from schemas.definitions.tree import Entry, Node

_MINUTE_US = 60_000_000
_OF_RUNS = ("zone", "deadline", "stages")


def read_schedule(reader: Reader, node: Node) -> ScheduleSpec:
    """`{every}`, or `{cron, zone, deadline, stages}`."""
    fields = Fields(reader, reader.map(node, "schedule"), "schedule", known_keys.SCHEDULE)
    if fields.one_of("every", "cron") == "every":
        for key in _OF_RUNS:
            if fields.has(key):
                reader.note(
                    fields.entry(key),
                    f"`{key}` speaks of runs, and only the occurrences of `cron` are runs",
                    "Write `cron:` instead of `every:`, or take it out.",
                )
        return ScheduleSpec(fields.get("every", reader.parsed(positive_s), 300.0))
    cron = fields.get("cron", reader.parsed(parse_cron), None)
    zone = fields.get("zone", reader.parsed(parse_zone), "UTC")
    return ScheduleSpec(
        occurrences=None if cron is None else Occurrences(cron, zone),
        deadline_s=fields.get("deadline", reader.parsed(positive_s), None),
        stages=fields.get("stages", reader.list_of(reader.name), ()),
    )


def check_runs(reader: Reader, spec: StreamSpec, schedule: Entry | None, stream: Entry) -> None:
    """A run is one of the changes; where they are read by time, their steps must meet the minutes."""
    if schedule is None or spec.schedule.occurrences is None:
        named = sorted(
            name for plan in spec.plans for name in plan.request.names if name[:4] == "run."
        )
        if named:
            reader.note(
                stream if schedule is None else schedule,
                f"{{{named[0]}}} has no value: only the occurrences of `cron` are runs",
                "Write `schedule: {cron: '30 5 * * *', zone: Europe/Berlin}`.",
            )
        return
    if spec.changes is None and spec.program is None:
        reader.note(
            schedule,
            f"an occurrence is a run of the changes, and {spec.name} has only a snapshot",
            "Take `schedule` out; a snapshot says `every:` itself.",
        )
    elif isinstance(spec.changes, IntervalSpec) and _MINUTE_US % spec.changes.granularity_us:
        reader.note(
            schedule,
            "occurrences lie at whole minutes, which the `granularity` of the plan does not meet",
            "Write `every:`, or a `granularity` of which a minute is a multiple.",
        )
