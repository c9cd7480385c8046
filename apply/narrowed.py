"""Whether a table can still hold what its mapping makes, or somebody has changed a column by hand.

A type that takes less refuses, cuts or rounds values of every record; no record is to blame for it,
so it is found before one is blamed. A type that takes more is left alone.
"""

from __future__ import annotations

import re

from apply.faults import SinkFault
from apply.sink import Connection
from apply.target_tables import Differing, differing
from schemas.definitions.mapping import MappingSpec

_ARGUMENTS = re.compile(r"\(([\d,\- ]+)\)")


def check_columns(connection: Connection, spec: MappingSpec) -> None:
    """Raise SinkFault if a column of the mapping's tables takes less than the mapping declares.

    Tables and columns that are missing are not its matter. Also raises psycopg.Error.
    """
    changed = [one for one in differing(connection, spec) if narrower(one)]
    if changed:
        what = ", ".join(
            f"column {one.column} of {one.table} is {one.found} and not {one.wanted}"
            for one in changed
        )
        raise SinkFault(
            "changed_column",
            f"{what}, which {spec.name} version {spec.version} says: change it back, or declare the"
            f" new type in version {spec.version + 1} and build the table anew with"
            f" `gapless replay {spec.name} --shadow`",
        )


def narrower(one: Differing) -> bool:
    """Whether the column cannot take every value of the wanted one, byte for byte, in its order."""
    found, wanted = one.found, one.wanted
    if wanted.collation == "C" and found.collation != "C":
        return True
    name, limits = _parsed(found.kind)
    wanted_name, wanted_limits = _parsed(wanted.kind)
    if name == "text" and wanted_name == "character varying":
        return False
    if name != wanted_name:
        return True
    if not limits:
        return wanted_name == "character" and bool(wanted_limits)
    if len(limits) != len(wanted_limits):
        return True
    if name.startswith("numeric"):
        (precision, scale), (needed, decimals) = limits, wanted_limits
        return scale < decimals or precision - scale < needed - decimals
    return (name.startswith("character") and "varying" not in name) or limits < wanted_limits


def _parsed(kind: str) -> tuple[str, tuple[int, ...]]:
    """`numeric(12,2)` as a name and its limits."""
    found = _ARGUMENTS.search(kind)
    limits = () if found is None else tuple(int(one) for one in found[1].split(","))
    return _ARGUMENTS.sub("", kind), limits
