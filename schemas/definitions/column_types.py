"""The Postgres types that a column or a revision may have."""

import re
from dataclasses import dataclass
from typing import Final

from schemas.definitions.problems import NotationError, closest

_ALIASES: Final = {
    "int2": "smallint", "int4": "integer", "int": "integer", "int8": "bigint", "bool": "boolean",
    "decimal": "numeric", "float8": "double precision", "float": "double precision",
    "float4": "real", "timestamp with time zone": "timestamptz", "character": "char", "bpchar": "char",
    "character varying": "varchar",
}  # fmt: skip
_ARGUMENTS: Final = {"numeric": 2, "char": 1, "varchar": 1}  # the most that each takes
_PLAIN: Final = (
    "text", "smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean",
    "timestamptz", "date", "uuid", "jsonb", "char", "varchar",
)  # fmt: skip
_TYPE = re.compile(r"([a-z][a-z0-9 ]*?) ?(?:\( ?([0-9]{1,8}) ?(?:, ?([0-9]{1,8}) ?)?\))?(\[\])?")
REVISION_TYPES: Final = ("smallint", "integer", "bigint", "numeric", "timestamptz", "date", "text")
NUMBERS: Final = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
TEXTS: Final = ("text", "char", "varchar")
TIMES: Final = ("timestamptz", "date")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type by its canonical Postgres name: `text`, `numeric`, `timestamptz`, `double precision` …"""

    name: str
    arguments: tuple[int, ...] = ()  # numeric(12,2): (12, 2); char(2): (2,)
    array: bool = False

    @property
    def sql(self) -> str:
        """The type as SQL writes it."""
        arguments = f"({','.join(map(str, self.arguments))})" if self.arguments else ""
        return f"{self.name}{arguments}{'[]' if self.array else ''}"


def is_type(text: str) -> bool:
    """Whether the text is written like a type of this list."""
    try:
        parse_type(text)
    except NotationError:
        return False
    return True


def parse_type(text: str) -> ColumnType:
    """Raises NotationError for a type that columns cannot have."""
    found = _TYPE.fullmatch(" ".join(text.lower().split()))
    name = "" if found is None else _ALIASES.get(found[1], found[1])
    if found is None or name not in _PLAIN:
        raise _no_type(text, name)
    arguments = tuple(int(one) for one in (found[2], found[3]) if one is not None)
    if len(arguments) > _ARGUMENTS.get(name, 0):
        raise NotationError(f"the type {name} has no such arguments", f"Write `{name}`.")
    if name == "numeric" and arguments:
        precision, scale = arguments[0], (*arguments, 0)[1]
        if not (1 <= precision <= 1000 and scale <= precision):
            raise NotationError(
                f"{text} holds no number", "Write `numeric(12,2)`: 12 digits, 2 of them decimals."
            )
        arguments = (precision, scale)
    if name == "char":
        arguments = arguments or (1,)
    if name in TEXTS and arguments and not 1 <= arguments[0] <= 10_485_760:
        raise NotationError(f"{text} holds no text", "Write for example `char(2)`.")
    if found[4] and name == "jsonb":
        raise NotationError("jsonb[] is no type of a column", "Write `jsonb`; it holds arrays.")
    return ColumnType(name, arguments, found[4] is not None)


def _no_type(text: str, name: str) -> NotationError:
    if name in ("timestamp", "timestamp without time zone", "time"):
        return NotationError(
            f'"{text}" is no type of a column', "Write `timestamptz`: a moment, not a clock face."
        )
    if name in ("json", "object", "array"):
        return NotationError(f'"{text}" is no type of a column', "Write `jsonb`.")
    if name in ("string", "str"):
        return NotationError(f'"{text}" is no type of a column', "Write `text`.")
    near = closest(name or text, _PLAIN)
    return NotationError(
        f'"{text}" is no type of a column',
        (f"Did you mean `{near}`? " if near else "")
        + f"Types are {', '.join(_PLAIN)} and their arrays.",
    )
