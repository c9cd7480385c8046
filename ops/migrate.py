"""Applies the SQL migrations of the schema `gapless`, in order, once each, under one lock.

A migration that was applied is never changed: its hash stands in the database. Mapping versions and
target tables are not made here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

import psycopg

_LOCK = 0x6761706C657373  # "gapless": one migration at a time per database
_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


class MigrationRefused(Exception):
    """The database and the migrations of this version do not fit; says what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of `schemas/migrations`."""

    version: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def shipped() -> list[Migration]:
    """The migrations of this version of Gapless, oldest first."""
    folder = resources.files("schemas").joinpath("migrations")
    found = []
    for file in folder.iterdir():
        match = _NAME.match(file.name)
        if match is not None:
            sql = file.read_text("utf-8")
            found.append(Migration(int(match[1]), file.name, sql))
    return sorted(found, key=lambda migration: migration.version)


def pending(known: Iterable[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """What is left to apply, oldest first; `applied` is version → sha256.

    Raises MigrationRefused if an applied file changed, or the database is newer than this version.
    """
    by_version = {migration.version: migration for migration in known}
    for version, sha256 in sorted(applied.items()):
        migration = by_version.get(version)
        if migration is None:
            raise MigrationRefused(
                f"the database has migration {version:04d}, which this version of Gapless does not "
                "know: it was migrated by a newer one. Install that version."
            )
        if migration.sha256 != sha256:
            raise MigrationRefused(
                f"{migration.name} is not the file that was applied (sha256 {sha256[:12]}… in the "
                f"database, {migration.sha256[:12]}… here). Restore the file and put the change "
                "into a new migration."
            )
    return [by_version[v] for v in sorted(by_version) if v not in applied]


def migrate(dsn: str) -> list[str]:
    """Apply what is pending, each file in a transaction of its own; returns the names applied.

    Safe to call from several processes at once. Raises MigrationRefused or psycopg.Error.
    """
    done: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        for migration in pending(shipped(), _applied(connection)):
            with connection.transaction():
                connection.execute(migration.sql.encode())
                connection.execute(
                    "INSERT INTO gapless.schema_migration (version, name, sha256)"
                    " VALUES (%s, %s, %s)",
                    (migration.version, migration.name, migration.sha256),
                )
            done.append(migration.name)
    return done


def missing(connection: psycopg.Connection[tuple[object, ...]]) -> list[str]:
    """Names of migrations that this version needs and the database lacks."""
    return [m.name for m in pending(shipped(), _applied(connection))]


def _applied(connection: psycopg.Connection[tuple[object, ...]]) -> dict[int, str]:
    found = connection.execute(
        "SELECT to_regclass('gapless.schema_migration') IS NOT NULL"
    ).fetchone()
    if found is None or not found[0]:
        return {}
    rows = connection.execute("SELECT version, sha256 FROM gapless.schema_migration")
    return {int(str(version)): str(sha256) for version, sha256 in rows}
