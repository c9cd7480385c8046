"""Registers mapping versions, so that every stored outcome and row names the rule that made it.

Invariant: one version means one definition for ever; a changed definition needs a higher version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from apply.known_versions import objection, versions_of
from apply.mapping.compile import compile_mapping
from apply.target_tables import Connection, TableRefused, migrate_table
from schemas.definitions import DefinitionError, Definitions, Problem
from schemas.definitions.fingerprint import canonical
from schemas.definitions.mapping import MappingSpec

_LOCK = 0x6761706C6D6170  # "gaplmap": one registration at a time per database
_OWNER_OF_TABLE = """
SELECT mapping FROM gapless.mapping_version WHERE mapping <> %(mapping)s AND (table_name = %(table)s
  OR EXISTS (SELECT FROM jsonb_each(definition->'children') c WHERE c.value->>'table' = %(table)s))
LIMIT 1"""
_NO_MEANING = frozenset(("name", "version", "hash", "file"))


def migrate_mappings(connection: Connection, definitions: Definitions) -> list[str]:
    """Register new mapping versions and make or widen their tables; says what was done.

    A version is retired when a higher one of its mapping is registered. All or nothing. Raises
    DefinitionError with every problem, or psycopg.Error.
    """
    done: list[str] = []
    problems: list[Problem] = []
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        for spec in definitions.mappings.values():
            found = _problem(connection, definitions, spec)
            if found is not None:
                problems.append(found)
                continue
            try:
                done += migrate_table(connection, spec)
            except TableRefused as refused:
                problems.append(
                    _at(definitions, spec, refused.key, refused.message, refused.advice)
                )
                continue
            done += _register(connection, spec)
        if problems:
            raise DefinitionError(problems)
    return done


def _problem(connection: Connection, definitions: Definitions, spec: MappingSpec) -> Problem | None:
    """Why this version cannot be registered, or is not the one that was."""
    try:
        compile_mapping(spec, 0)
    except ValueError as error:
        return _at(definitions, spec, "columns", str(error), "")
    for table, key in (
        (spec.table, "table"),
        *((one.table, one.name) for one in spec.children.values()),
    ):
        other = connection.execute(
            _OWNER_OF_TABLE, {"table": table, "mapping": spec.name}
        ).fetchone()
        if other is not None:
            message = f"the table {table} belongs to the mapping {other[0]}"
            return _at(definitions, spec, key, message, "Write another `table:`.")
    versions = versions_of(connection, spec.name)
    against = objection(spec, versions)
    if against is None:
        return None
    if not against.changed:
        return _at(definitions, spec, "version", against.message, against.advice)
    [(before, at)] = connection.execute(
        "SELECT definition, registered_at FROM gapless.mapping_version"
        " WHERE mapping = %s AND version = %s",
        (spec.name, spec.version),
    ).fetchall()
    since = f"in use since {at:%Y-%m-%d}"
    changed = ", ".join(_changed(before, _definition(spec)))
    free = versions[-1].version + 1
    return _at(
        definitions, spec, "version", against.message,
        f"Write `version: {free}`, then look: gapless replay {spec.name} --dry-run",
        f"({since}; changed: {changed})" if changed else f"({since})",
    )  # fmt: skip


def _register(connection: Connection, spec: MappingSpec) -> list[str]:
    inserted = connection.execute(
        "INSERT INTO gapless.mapping_version"
        " (mapping, version, hash, definition, source, stream, table_name, state)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, 'live')"
        " ON CONFLICT (mapping, version) DO NOTHING RETURNING id",
        (
            spec.name, spec.version, spec.hash, Jsonb(_definition(spec)), spec.source, spec.stream,
            spec.table,
        ),
    ).fetchone()  # fmt: skip
    if inserted is None:
        return []
    retired = connection.execute(
        "UPDATE gapless.mapping_version SET state = 'retired'"
        " WHERE mapping = %s AND version < %s AND state = 'live' RETURNING version",
        (spec.name, spec.version),
    ).fetchall()
    lines = [f"{spec.name} version {spec.version} registered"]
    return lines + [f"{spec.name} version {version} retired" for (version,) in retired]


def _definition(spec: MappingSpec) -> dict[str, Any]:
    """The whole meaning of a mapping as JSON."""
    found: dict[str, Any] = json.loads(json.dumps(canonical(spec)))
    return found


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs: `name`, `+name` or `-name` of columns and children, names of other keys."""
    names = []
    for key in ("columns", "children"):
        names += _differing(before.get(key, {}), after.get(key, {}))
    keys = {*before, *after} - _NO_MEANING - {"columns", "children"}
    return names + sorted(key for key in keys if before.get(key) != after.get(key))


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [
        f"+{name}" if name not in before else f"-{name}" if name not in after else name
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _at(
    definitions: Definitions, spec: MappingSpec, key: str, message: str, advice: str, note: str = ""
) -> Problem:
    """A problem at the line of the mapping's file where `key` stands."""
    line, column, text = _find(definitions, spec, key)
    excerpt = f"{text:<20}  {note}" if text and note else text or note
    return Problem(spec.file or f"mapping {spec.name}", line, column, message, excerpt, advice)


def _find(definitions: Definitions, spec: MappingSpec, key: str) -> tuple[int, int, str]:
    """Line and column from 1, and the line without its indentation; the first line if unsure."""
    try:
        lines = (definitions.folder / spec.file).read_text("utf-8").splitlines()
    except OSError:
        return 1, 1, ""
    start = re.compile(rf"^\s*(mapping:\s*['\"]?)?{re.escape(spec.name)}['\"]?:?\s*(#.*)?$")
    within = False
    for number, line in enumerate(lines, start=1):
        within = within or start.match(line) is not None
        found = re.match(rf"\s*{key}:\s*", line) if within else None
        if found is not None:
            return number, found.end() + 1, line.strip()
    return 1, 1, ""
