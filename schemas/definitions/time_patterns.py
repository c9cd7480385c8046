"""strptime-like patterns of times, compiled once: strict when read, exact when printed.

`%3f` and `%6f` are exactly that many digits of a second, `%f` reads any number and prints six. `%-d`
has no leading zero. English names of months and days only, whatever the locale; a year of two
digits is absent, since its century would be a guess.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from schemas.definitions.problems import NotationError
from schemas.definitions.time_fields import TimeFault, offset_s

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN = re.compile(r"%(3f|6f|-?.)|([^%]+)", re.DOTALL)
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class _Directive:
    regex: str
    field: str
    unit_us: int
    read: Callable[[str], int]
    print: Callable[[datetime], str]


def _index(names: tuple[str, ...]) -> Callable[[str], int]:
    return {name: number for number, name in enumerate(names, 1)}.__getitem__


def _fraction(digits: str) -> int:
    return int(digits[:6].ljust(6, "0"))


def _print_offset(moment: datetime) -> str:
    offset = moment.utcoffset()
    minutes = 0 if offset is None else int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"


def _short(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name[:3] for name in names)


def _any_of(names: tuple[str, ...]) -> str:
    return f"({'|'.join(names)})"


_DIRECTIVES: Final = {
    "Y": _Directive("([0-9]{4})", "year", _DAY_US, int, lambda t: f"{t.year:04d}"),
    "m": _Directive("([0-9]{2})", "month", _DAY_US, int, lambda t: f"{t.month:02d}"),
    "d": _Directive("([0-9]{2})", "day", _DAY_US, int, lambda t: f"{t.day:02d}"),
    "H": _Directive("([0-9]{2})", "hour", 3_600_000_000, int, lambda t: f"{t.hour:02d}"),
    "I": _Directive(
        "([0-9]{2})", "hour12", 3_600_000_000, int, lambda t: f"{(t.hour + 11) % 12 + 1:02d}"
    ),
    "p": _Directive(
        "(AM|PM)", "pm", 3_600_000_000, lambda s: int(s == "PM"), lambda t: "PM" if t.hour > 11 else "AM"
    ),
    "M": _Directive("([0-9]{2})", "minute", 60_000_000, int, lambda t: f"{t.minute:02d}"),
    "S": _Directive("([0-9]{2})", "second", 1_000_000, int, lambda t: f"{t.second:02d}"),
    "3f": _Directive("([0-9]{3})", "us", 1_000, _fraction, lambda t: f"{t.microsecond // 1000:03d}"),
    "6f": _Directive("([0-9]{6})", "us", 1, _fraction, lambda t: f"{t.microsecond:06d}"),
    "f": _Directive("([0-9]{1,9})", "us", 1, _fraction, lambda t: f"{t.microsecond:06d}"),
    "Z": _Directive("(Z|UTC|GMT)", "offset_s", _DAY_US, lambda _: 0, lambda _: "UTC"),
    "z": _Directive("(Z|[+-][0-9]{2}(?::?[0-9]{2})?)", "offset_s", _DAY_US, offset_s, _print_offset),
    "B": _Directive(_any_of(_MONTHS), "month", _DAY_US, _index(_MONTHS), lambda t: _MONTHS[t.month - 1]),
    "b": _Directive(
        _any_of(_short(_MONTHS)), "month", _DAY_US, _index(_short(_MONTHS)),
        lambda t: _MONTHS[t.month - 1][:3],
    ),
    "A": _Directive(_any_of(_DAYS), "weekday", _DAY_US, _index(_DAYS), lambda t: _DAYS[t.weekday()]),
    "a": _Directive(
        _any_of(_short(_DAYS)), "weekday", _DAY_US, _index(_short(_DAYS)),
        lambda t: _DAYS[t.weekday()][:3],
    ),
}  # fmt: skip


# Written without a leading zero, and read with or without one.
_UNPADDED: Final = {
    f"-{name}": _Directive(
        "([0-9]{1,2})", padded.field, padded.unit_us, padded.read,
        lambda t, padded=padded: padded.print(t).lstrip("0") or "0",  # type: ignore[misc]
    )
    for name, padded in _DIRECTIVES.items() if name in "mdHIMS"
}  # fmt: skip
_KNOWN: Final = {**_DIRECTIVES, **_UNPADDED}


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A compiled pattern."""

    regex: re.Pattern[str]
    parts: tuple[str | _Directive, ...]
    unit_us: int  # smallest step that it prints
    utc: bool  # it ends with a literal Z, GMT or UTC, or shows an offset

    def read(self, text: str) -> dict[str, int]:
        """The fields of a time as `from_fields` takes them. Raises TimeFault."""
        found = self.regex.fullmatch(text)
        if found is None:
            raise TimeFault("not a time of the declared pattern")
        directives = (part for part in self.parts if not isinstance(part, str))
        pairs = zip(directives, found.groups(), strict=True)
        fields = {directive.field: directive.read(group) for directive, group in pairs}
        if "hour12" in fields:
            if not 1 <= fields["hour12"] <= 12:
                raise TimeFault("no such hour")
            fields["hour"] = fields["hour12"] % 12 + 12 * fields.get("pm", 0)
        if self.utc:
            fields.setdefault("offset_s", 0)
        return fields

    def print(self, moment: datetime) -> str:
        """The moment, which carries the zone to print it in, as the pattern writes it."""
        return "".join(part if isinstance(part, str) else part.print(moment) for part in self.parts)


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> TimePattern:
    """Raises NotationError for a pattern that does not determine a moment or repeats a field."""
    parts: list[str | _Directive] = []
    for found in _TOKEN.finditer(text):
        name, literal = found[1], found[2]
        if literal is not None or name == "%":
            parts.append(literal or "%")
        elif name in _KNOWN:
            parts.append(_KNOWN[name])
        else:
            raise NotationError(
                f"patterns of times have no %{name}",
                f"They have {' '.join('%' + d for d in _KNOWN)}.",
            )
    _check_unpadded(parts)
    directives = [part for part in parts if not isinstance(part, str)]
    fields = [directive.field for directive in directives]
    if len(set(fields)) < len(fields) or text.count("%") != len(directives) + 2 * text.count("%%"):
        raise NotationError(
            f'"{text}" is no pattern of a time', "Write each field once, `%%` for a `%`."
        )
    if not {"year", "month", "day"} <= set(fields) or ("pm" in fields) != ("hour12" in fields):
        raise NotationError(
            f'"{text}" does not determine a moment',
            "It needs %Y, %m (or %b, %B) and %d; %I and %p only together.",
        )
    last = parts[-1]
    ends_in_utc = isinstance(last, str) and last.strip() in ("Z", "GMT", "UTC", "+00:00", "+0000")
    return TimePattern(
        re.compile("".join(re.escape(p) if isinstance(p, str) else p.regex for p in parts)),
        tuple(parts),
        min(directive.unit_us for directive in directives),
        ends_in_utc or "offset_s" in fields,
    )


def _check_unpadded(parts: list[str | _Directive]) -> None:
    """Where a number of one or two digits ends must not be a guess."""
    loose = set(map(id, _UNPADDED.values()))
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        if id(part) in loose and (not isinstance(following, str) or following[:1].isdigit()):
            raise NotationError(
                "two numbers stand side by side, and one has no fixed width",
                "Write something between them, as in `%-d.%-m.%Y`, or take the `-` out.",
            )
