"""Templates: texts with placeholders from a closed list, and what is rendered from them.

Where a placeholder has no value yet the whole text has none, and whoever holds it leaves it out.
`{{` and `}}` are braces. Nothing is computed here; times come in as they are to be printed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from schemas.definitions.paths import MISSING
from schemas.definitions.predicates import Scalar
from schemas.definitions.problems import NotationError, closest
from schemas.definitions.secrets import Reference

PLACEHOLDERS: Final = (
    "start", "end", "after.time", "after.id", "until", "cursor", "token", "page", "offset", "last.id",
    "size", "run.id", "run.start", "run.end", "run.date",
)  # fmt: skip
"""Beside these there are `tenant.` and `parent.` with any field."""

_OPEN: Final = ("tenant.", "parent.")
_PART = re.compile(
    r"\{\{|\}\}|\{([a-z_]+(?:\.[A-Za-z0-9_]+)?)(?::([a-z]*))?\}|[{}]|[^{}]+", re.DOTALL
)
_UNSAFE = re.compile(r"[\"'`\\\x00-\x1f\x7f\u2028\u2029]")
_HOST_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~-]*[A-Za-z0-9])?")


class Modifier(StrEnum):
    """What stands behind a placeholder's colon."""

    NONE = ""
    PATH = "path"  # URL-encoded, but slashes are kept
    JSON = "json"  # encoded as JSON


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One placeholder by its full name: `start`, `token`, `last.id`, `tenant.repo` …"""

    name: str
    modifier: Modifier = Modifier.NONE


@dataclass(frozen=True, slots=True)
class Template:
    """Literal texts and placeholders in order; `text` is what was written."""

    parts: tuple[str | Placeholder, ...]
    text: str

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """The placeholders in order of appearance."""
        return tuple(part for part in self.parts if isinstance(part, Placeholder))

    @property
    def names(self) -> frozenset[str]:
        """The names of its placeholders."""
        return frozenset(placeholder.name for placeholder in self.placeholders)


Value = Scalar | Template | Reference | tuple["Value", ...] | Mapping[str, "Value"]
"""What a param, a header or a place in a body may hold."""


class RenderError(ValueError):
    """A value must not stand where the template puts it; the text names the placeholder only."""


def parse_template(text: str) -> Template:
    """Raises NotationError for a placeholder or modifier that is not of the closed list."""
    parts: list[str | Placeholder] = []
    for found in _PART.finditer(text):
        whole, name, modifier = found[0], found[1], found[2]
        if name is not None:
            parts.append(Placeholder(_known(name), _modifier(modifier)))
        elif whole in "{}":
            raise NotationError(
                f'"{_around(text, found.start())}" has a lone brace', "Write `{{` or `}}`."
            )
        else:
            literal = whole[0] if whole in ("{{", "}}") else whole
            if parts and isinstance(parts[-1], str):
                parts[-1] += literal
            else:
                parts.append(literal)
    return Template(tuple(parts), text)


def literal(text: str) -> Template:
    """A template that renders as exactly this text."""
    return Template((text,) if text else (), text.replace("{", "{{").replace("}", "}}"))


def names_in(value: Value) -> frozenset[str]:
    """The names of all placeholders within a value."""
    return frozenset(name for template in templates_in(value) for name in template.names)


def templates_in(value: Value) -> Iterator[Template]:
    """All templates within a value."""
    if isinstance(value, Template):
        yield value
    elif isinstance(value, tuple | Mapping):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from templates_in(one)


def render(template: Template, values: Mapping[str, object]) -> object:
    """A lone placeholder's value with its type, else the text; MISSING if a value is missing.

    A value is missing if `values` lacks it or has MISSING or None. Raises RenderError for a value
    with quotes or control characters inside longer text.
    """
    found = [
        part if isinstance(part, str) else _value_of(part, values, alone=len(template.parts) == 1)
        for part in template.parts
    ]
    if any(one is MISSING for one in found):
        return MISSING
    return found[0] if len(found) == 1 else "".join(map(text_of, found))


def render_value(
    value: Value, values: Mapping[str, object], resolve: Callable[[Reference], str]
) -> object:
    """A whole value as plain data; members and elements without a value are left out.

    MISSING if the value itself has none. `resolve` turns references into secrets, or, for what is
    written down, into their names.
    """
    if isinstance(value, Template):
        return render(value, values)
    if isinstance(value, Reference):
        return resolve(value)
    if isinstance(value, tuple):
        rendered = [render_value(one, values, resolve) for one in value]
        return [one for one in rendered if one is not MISSING]
    if isinstance(value, Mapping):
        members = {key: render_value(one, values, resolve) for key, one in value.items()}
        return {key: one for key, one in members.items() if one is not MISSING}
    return value


def render_path(template: Template, values: Mapping[str, object]) -> str:
    """A request's path with URL-encoded values.

    Raises RenderError for a missing or empty value, and for one that would climb (`.`, `..`).
    """
    out = []
    for part in template.parts:
        if isinstance(part, str):
            out.append(part)
            continue
        value = _value_of(part, values, alone=True)
        if value is MISSING or value == "":
            raise RenderError(f"{{{part.name}}} has no value, and a path needs one")
        safe = "/" if part.modifier is Modifier.PATH else ""
        out.append(quote(text_of(value), safe=safe))
    path = "".join(out)
    if any(segment in (".", "..") for segment in path.split("?")[0].split("/")):
        raise RenderError("a value makes the path climb to another folder")
    return path


def render_base_url(template: Template, values: Mapping[str, object]) -> str:
    """The origin to ask. Raises RenderError for a value that could name another host."""
    out = []
    for part in template.parts:
        if isinstance(part, str):
            out.append(part)
            continue
        value = _value_of(part, values, alone=True)
        if value is MISSING or _HOST_SAFE.fullmatch(text_of(value)) is None:
            raise RenderError(
                f"{{{part.name}}} must be letters, digits, dots and hyphens in base_url"
            )
        out.append(text_of(value))
    return "".join(out).rstrip("/")


def text_of(value: object) -> str:
    """A scalar as params and longer texts write it: `true`, `false`, plain decimals."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float | Decimal):
        return format(Decimal(repr(value)) if isinstance(value, float) else value, "f")
    return str(value)


def _value_of(placeholder: Placeholder, values: Mapping[str, object], alone: bool) -> object:
    value = values.get(placeholder.name, MISSING)
    if value is MISSING or value is None:
        return MISSING
    if placeholder.modifier is Modifier.JSON:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not alone and _UNSAFE.search(text_of(value)) is not None:
        raise RenderError(f"the value of {{{placeholder.name}}} has quotes or control characters")
    return value


def _known(name: str) -> str:
    if name in PLACEHOLDERS or name.startswith(_OPEN):
        return name
    near = closest(name, PLACEHOLDERS)
    raise NotationError(
        f"there is no placeholder {{{name}}}",
        (f"Did you mean `{{{near}}}`? " if near else "")
        + f"There are {' '.join(f'{{{one}}}' for one in PLACEHOLDERS)}, {{tenant.FIELD}} and"
        + " {parent.FIELD};"
        + " a brace itself is written `{{`.",
    )


def _modifier(text: str | None) -> Modifier:
    try:
        return Modifier(text or "")
    except ValueError:
        raise NotationError(
            f'there is no modifier ":{text}"', "There are `:path` and `:json`."
        ) from None


def _around(text: str, at: int) -> str:
    return text[max(0, at - 10) : at + 11]
