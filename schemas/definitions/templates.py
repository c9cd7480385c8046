"""Templates: texts with placeholders from a closed list, and what is rendered from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.definitions.predicates import Scalar
from schemas.definitions.secrets import Reference


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


Value = Scalar | Template | Reference | tuple["Value", ...] | Mapping[str, "Value"]
"""What a param, a header or a place in a body may hold."""
