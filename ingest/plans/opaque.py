"""Opaque values of the provider (tokens, cursors, ids) as text, and back unchanged in type.

A text stands for itself; anything else is kept as JSON behind a marker.
"""

from __future__ import annotations

import json
from typing import Any

_MARKER = "json:"


def keep(value: Any) -> str:
    """The text that stands for `value` in checkpoints and pages."""
    if isinstance(value, str) and not value.startswith(_MARKER):
        return value
    return _MARKER + json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def give(text: str) -> Any:
    """The value that `keep` was given."""
    return json.loads(text[len(_MARKER) :]) if text.startswith(_MARKER) else text
