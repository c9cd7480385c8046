"""What a compiled mapping needs that is not in its definition: keys of hashes, Python functions.

Mapping itself is pure, so whoever compiles it gives these. `UNUSED` is for mappings that are only
looked at: they compile, and fail when they map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from apply.outcomes import Reason
from schemas.definitions.mapping import FunctionSpec
from schemas.definitions.secrets import Reference


@dataclass(frozen=True, slots=True)
class Skipped:
    """The function said that this record is to be ignored."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The function made no row of this record; `detail` without anything of the record."""

    reason: Reason
    detail: str


Made = bytes | Skipped | Failed
"""What a function made of one record; a row as the text of a JSON object."""
Make = Callable[[Sequence[bytes], Mapping[str, object]], list[Made]]
"""From records, and what was observed with them, to what became of each, in order."""


class Outside(Protocol):
    """What surrounds compiled mappings in one process."""

    def hasher(self, key: Reference) -> Callable[[str], str]:
        """How a text is hashed under this key, in hexadecimal digits."""
        ...

    def function(self, spec: FunctionSpec) -> Make:
        """The function, ready to be called."""
        ...


class _Unused:
    def hasher(self, key: Reference) -> Callable[[str], str]:
        return lambda _: _refuse(f"the key {key}")

    def function(self, spec: FunctionSpec) -> Make:
        return lambda *_: _refuse(spec.path)


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(f"compiled without {what}, so it cannot map")


UNUSED: Outside = _Unused()
