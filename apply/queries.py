"""Named SQL: every statement of this stage stands in `sql/*.sql`, under a name and with a reason.

A file holds blocks `-- name: NAME`; the comment lines below the name say what it is for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)\s*$", re.MULTILINE)


def parse(text: str) -> dict[str, str]:
    """The statements of one file by name. Raises ValueError for a name without a statement."""
    pieces = _NAME.split(text)
    found: dict[str, str] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        statement = "\n".join(lines).strip().rstrip(";")
        if not statement or name in found:
            raise ValueError(f"query {name!r} is empty or stands twice")
        found[name] = statement
    return found


@cache
def load(file: str) -> Mapping[str, str]:
    """The statements of `sql/{file}.sql`; they come from this package only, never from input."""
    text = resources.files("apply").joinpath("sql", f"{file}.sql").read_text("utf-8")
    return parse(text)
