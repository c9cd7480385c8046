"""The revision of a record that could not be mapped: enough to say which of two states is newer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apply.mapping.casts import ValueFault
from apply.mapping.raw import Unreadable, read_record
from apply.mapping.rules import Rules, take
from schemas.definitions.paths import MISSING, Path, Root, find


def revision_of(rules: Rules, observed: Mapping[str, object], raw: bytes) -> Any:
    """In the form that rows hold; None where the record says none that can be read.

    What a function makes of the record is not made again here, so a revision in it is not known.
    `observed`: values of `observation.` paths, as the mapper sees them.
    """
    if rules.revision is None or rules.entity is None:
        return None
    try:
        record = read_record(raw)
    except Unreadable:
        return None
    entity = MISSING if rules.made else find(rules.entity.steps, record)

    def value_of(path: Path) -> object:
        if path.root is Root.OBSERVATION:
            return observed[str(path.steps[0])]
        return find(path.steps, entity if path.root is Root.ENTITY else record)

    for alternative in rules.revision.paths:
        value = value_of(alternative.path)
        if value is not MISSING and value is not None:
            try:
                return rules.revision.finish.cast(take(alternative, value))
            except ValueFault:
                return None
    return None
