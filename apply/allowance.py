"""How many rows one snapshot may delete before an operator is asked. Pure.

A share alone holds every first delete of a small table, so a few rows may always go: unless nothing
would be left, which is what a provider that lists nothing by mistake looks like.
"""

from __future__ import annotations

from decimal import Decimal

ALWAYS = 3
"""Rows that may go whatever share they are, as long as others stay."""


def allowed(absent: int, living: int, share: Decimal) -> bool:
    """Whether `absent` of `living` rows may be deleted without an operator.

    `share` is the mapping's `absent_max`; 0 asks about every row, 1 about none.
    """
    if absent <= share * living:
        return True
    return 0 < share and absent <= ALWAYS and absent < living
