"""Paths into answers, records and observations: RFC 9535 singular queries without the leading `$.`.

A path finds at most one value; `[*]` (every element) stands only in array columns.
"""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from schemas.definitions.problems import NotationError, closest

OBSERVATION_FIELDS: Final = ("tenant", "plan", "run", "fetched_at", "as_of")
_NAME = re.compile(r"[A-Za-z_\u0080-\U0010FFFF][A-Za-z0-9_\u0080-\U0010FFFF]*")
_INDEX = re.compile(r"\[(0|-?[1-9][0-9]{0,8})\]")
_QUOTED = re.compile(r"\[(\"(?:[^\"\\\x00-\x1f]|\\.)*\"|'(?:[^'\\\x00-\x1f]|\\.)*')\]")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Root(StrEnum):
    """What a path starts from."""

    STATUS = "status"  # the answer's status code, an int
    HEADER = "header"  # one header of the answer; the step is its name in lower case
    BODY = "body"  # the decoded body of the answer
    RECORD = "record"  # the record as fetched
    ENTITY = "entity"  # where a mapping's `entity` points; the record if it has none
    OBSERVATION = "observation"  # tenant, plan, run, fetched_at, as_of


class Missing:
    """The type of MISSING: a path that leads nowhere (a JSON null is a value, None)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


class Each:
    """The type of EACH, the step `[*]`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[*]"

    def __copy__(self) -> "Each":
        return self

    def __deepcopy__(self, memo: object) -> "Each":
        return self

    def __reduce__(self) -> str:
        return "EACH"


EACH: Final = Each()

Step = str | int | Each


@dataclass(frozen=True, slots=True)
class Path:
    """One parsed path: member names (str), indices (int, negative from the end) and EACH."""

    root: Root
    steps: tuple[Step, ...]
    text: str  # as written, for messages

    @property
    def has_each(self) -> bool:
        """Whether `[*]` is among the steps, so that a list is found."""
        return EACH in self.steps


def find(steps: tuple[Step, ...], value: object) -> object:
    """Where the steps lead, or MISSING. With EACH: the list of what the elements lead to."""
    for position, step in enumerate(steps):
        if isinstance(step, Each):
            if not isinstance(value, list):
                return MISSING
            found = (find(steps[position + 1 :], element) for element in value)
            return [None if one is MISSING else one for one in found]
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return MISSING
            value = value[step]
    return value


def parse_answer_path(text: str) -> Path:
    """A path into an answer: `status`, `header.NAME`, `body` or `body.PATH`."""
    if text == "status":
        return Path(Root.STATUS, (), text)
    if text.startswith("header."):
        name = text.removeprefix("header.")
        if _HEADER.fullmatch(name) is None:
            raise NotationError(
                f'"{name}" is no name of a header', "Write for example `header.link`."
            )
        return Path(Root.HEADER, (name.lower(),), text)
    if text == "body" or text.startswith(("body.", "body[")):
        return Path(Root.BODY, _steps(text.removeprefix("body"), text, first=False), text)
    raise NotationError(
        f'"{text}" does not say where in the answer',
        f"In an answer a path starts at `status`, `header.NAME` or `body`: `body.{text}`.",
    )


def parse_record_path(text: str) -> Path:
    """A path of a stream; it starts at the record."""
    return Path(Root.RECORD, _steps(text, text), text)


def parse_mapping_path(text: str, each: bool = False) -> Path:
    """A path of a mapping; it starts at the entity, with `$` at the record around it.

    `each` permits `[*]` steps.
    """
    if text == "$" or text.startswith(("$.", "$[")):
        return Path(Root.RECORD, _steps(text[1:], text, first=False, each=each), text)
    if text.startswith("observation."):
        name = text.removeprefix("observation.")
        if name not in OBSERVATION_FIELDS:
            near = closest(name, OBSERVATION_FIELDS)
            raise NotationError(
                f"an observation has no field {name}",
                f"It has {', '.join(OBSERVATION_FIELDS)}." + (f" Write `{near}`?" if near else ""),
            )
        return Path(Root.OBSERVATION, (name,), text)
    return Path(Root.ENTITY, _steps(text, text, each=each), text)


def parse_entity_path(text: str) -> Path:
    """The path of `entity`; it starts at the record, which `$` itself names."""
    return (
        Path(Root.RECORD, (), text) if text == "$" else parse_record_path(text.removeprefix("$."))
    )


def format_steps(steps: tuple[Step, ...]) -> str:
    """The text of these steps, as a path that starts at a record is written."""
    out = ""
    for step in steps:
        if isinstance(step, str):
            plain = _NAME.fullmatch(step) is not None
            out += f".{step}" if plain else f"[{json.dumps(step, ensure_ascii=False)}]"
        else:
            out += "[*]" if isinstance(step, Each) else f"[{step}]"
    return out.removeprefix(".")


def _steps(rest: str, text: str, first: bool = True, each: bool = False) -> tuple[Step, ...]:
    """The steps of `rest`, which starts with a bare name if `first`, else with `.` or `[`."""
    steps: list[Step] = []
    at = 0
    if first and not rest.startswith("["):
        at = _name(rest, 0, text, steps)
    while at < len(rest):
        if rest[at] == ".":
            at = _name(rest, at + 1, text, steps)
        elif rest.startswith("[*]", at):
            if not each:
                raise NotationError(
                    f'"{text}" finds many values',
                    "`[*]` is only for columns of an array type, such as `labels[*].name::text[]`.",
                )
            if EACH in steps:
                raise NotationError(
                    f'"{text}" has `[*]` twice', "One list can be read, no list of lists."
                )
            steps.append(EACH)
            at += 3
        elif (found := _INDEX.match(rest, at)) is not None:
            steps.append(int(found[1]))
            at = found.end()
        elif (found := _QUOTED.match(rest, at)) is not None:
            steps.append(_unquote(found[1], text))
            at = found.end()
        else:
            raise _no_path(text)
    return tuple(steps)


def _name(rest: str, at: int, text: str, steps: list[Step]) -> int:
    found = _NAME.match(rest, at)
    if found is None or (found.end() < len(rest) and rest[found.end()] not in ".["):
        raise _no_path(text)
    steps.append(found[0])
    return found.end()


def _unquote(quoted: str, text: str) -> str:
    inner = quoted[1:-1]
    if quoted[0] == "'":
        inner = re.sub(r"\\.|\"", lambda m: {"\\'": "'", '"': '\\"'}.get(m[0], m[0]), inner)
    try:
        name = json.loads(f'"{inner}"')
    except ValueError:
        raise _no_path(text) from None
    return str(name)


def _no_path(text: str) -> NotationError:
    return NotationError(
        f'"{text}" is no path',
        'Write names with dots, indices in brackets and odd names in quotes: `a.b[0]["odd.key"]`.',
    )
