"""What a database that can be asked says about the version of a mapping; without one, nothing."""

from __future__ import annotations

import psycopg

from apply.faults import NotPrepared
from apply.known_versions import objection, versions_of
from schemas.definitions.mapping import MappingSpec
from schemas.settings import Settings

_WAIT_S = 3


def against(settings: Settings, spec: MappingSpec) -> str | None:
    """Why neither `gapless apply` nor `gapless migrate` takes this definition, and what to do; None if they
    do, or nobody knows."""
    try:
        with psycopg.connect(settings.postgres, connect_timeout=_WAIT_S) as connection:
            found = objection(spec, versions_of(connection, spec.name))
    except (NotPrepared, psycopg.Error):
        return None
    return None if found is None else str(found)
