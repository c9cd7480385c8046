"""Accepting a recorded gap by its number: who, when and why are kept, the gap itself for ever.

A partition that halted because its log changed is `apply.gaps`' to free.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.types.json import Jsonb


class NothingToAccept(Exception):
    """There is no such gap that waits for anybody."""


def accept_gap(connection: psycopg.Connection[Any], gap: int, *, by: str, note: str) -> str:
    """Accept one gap; returns what it was. Raises NothingToAccept."""
    with connection.transaction():
        row = connection.execute(
            "UPDATE gapless.gap SET accepted_by = %s, accepted_at = now()"
            " WHERE id = %s AND accepted_at IS NULL RETURNING cause, from_text, to_text, partition",
            (by, gap),
        ).fetchone()
        if row is None:
            raise NothingToAccept(f"There is no gap {gap} that waits for anybody.")
        connection.execute(
            "INSERT INTO gapless.operator_action (by, action, about, note) VALUES (%s, %s, %s, %s)",
            (by, "accept_gap", Jsonb({"gap": gap}), note),
        )
    return f"{row[0]}: {row[1]} to {row[2]} in partition {row[3]}"
