"""A mapping with a Python function, applied: rows as from columns, and poison costs its record."""

from __future__ import annotations

from tests.integration.apply.scene import Scene, account, page

FUNCTION = """
import os
from decimal import Decimal

from apply.python_mapping import Ignored


def row(record, seen):
    if record["lifecycle"] == "draft":
        return Ignored()
    if record["lifecycle"] == "poison":
        os._exit(1)
    return {**record, "balance": Decimal(record["balance"]) * 2, "email": seen.tenant}
"""


def test_rows_of_a_function_are_applied(scene: Scene) -> None:
    (scene.folder / "account_rows.py").write_text(FUNCTION)
    scene.define(2, **{"key: id": "key: id\npython: account_rows:row"})
    scene.put(
        page(
            [
                account(1), account(2, lifecycle="draft"), account(3, lifecycle="poison"),
                account(4, lifecycle="odd"), b"no json", account(5, deleted=True),
            ]
        )
    )  # fmt: skip
    with scene.applying():
        scene.settle()
        scene.put(page([account(1, 2, balance="0.25")], number=2))
        scene.settle()
    assert scene.balance() == {"applied": 3, "ignored": 1, "quarantined": 3}
    rows = scene.rows("SELECT id, balance::text, email, _deleted FROM accounts ORDER BY id")
    assert rows == [("a-1", "0.50", "north", False), ("a-5", "21.00", "north", True)]
    found = scene.rows("SELECT index, reason, key->>'id' FROM gapless.exception ORDER BY index")
    assert found == [
        (2, "killed_worker", None), (3, "unknown_value", "a-4"), (4, "unreadable", None),
    ]  # fmt: skip
