"""What a mapping function of your own says and hears: `python: acme.shop:order` in a mapping.

Public: import these names into your module. The function makes the row of one record; types,
bounds and keys are the mapping's, as for any other record. It is called in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]
"""A member for each thing that a column reads, by its path; one that no column reads is a fault.

Values are texts, whole numbers, Decimal, float, booleans, None, datetime, date, UUID, lists and
mappings of these. A datetime without a zone is read in the column's `zone`, if it has one.
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of the page that a record came with; times in UTC.

    `as_of`: the provider's time when the request began, if it tells; `run`: name of the run, if the
    stream has runs.
    """

    partition_id: str
    plan: str
    tenant: str | None
    run: str | None
    fetched_at: datetime
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class Ignored:
    """Return it for a record that is to become no row: its outcome is `ignored`."""


Rows = Callable[[Any, Observed], Iterable[Row] | Row | Ignored]
"""The function: from a record (fractions are Decimal) to its row, alone or as the only one of an
iterable. Whatever it raises, or should it hang or end its process, is that record's fault alone."""
