"""Times, durations and numbers as people read them; times in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEPS = ((172_800, 86_400, "d"), (7_200, 3_600, "h"), (180, 60, "min"), (0, 1, "s"))


def duration(seconds: float | None) -> str:
    """`63 s`, `5 min`, `3 h`, `6 d`, the nearest; `unknown` for None."""
    if seconds is None:
        return "unknown"
    least, size, unit = next(step for step in _STEPS if seconds >= step[0] or step[1] == 1)
    assert least >= 0
    return f"{int(seconds) if size == 1 else round(seconds / size)} {unit}"


def moment(at_us: int | None, now_us: int) -> str:
    """`10:41:07` today, else `2024-01-01` at midnight, else `2024-01-01 10:41`."""
    if at_us is None:
        return "unknown"
    try:
        at, now = _EPOCH + timedelta(microseconds=at_us), _EPOCH + timedelta(microseconds=now_us)
    except OverflowError:
        return "out of range"
    if at.date() == now.date():
        return f"{at:%H:%M:%S}"
    return f"{at:%Y-%m-%d}" if (at.hour, at.minute) == (0, 0) else f"{at:%Y-%m-%d %H:%M}"


def iso(at_us: int | None) -> str | None:
    """ISO 8601 with microseconds and Z; None stays None."""
    if at_us is None:
        return None
    return (_EPOCH + timedelta(microseconds=at_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def number(value: int | None) -> str:
    """`48,214`; `?` for None."""
    return "?" if value is None else f"{value:,}"


def sightings(count: int) -> str:
    """`1 sighting`, `48,214 sightings`: records as often as they were read."""
    return f"{number(count)} sighting{'' if count == 1 else 's'}"


def copies(count: int) -> str:
    """`1 copy of a quarantined record`, `5 copies of quarantined records`."""
    of = "copy of a quarantined record" if count == 1 else "copies of quarantined records"
    return f"{number(count)} {of}"
