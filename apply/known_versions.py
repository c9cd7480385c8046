"""Which versions of a mapping a database knows, and what stands against using one of them. Pure but for
one query.

At most one version is live. Others are older (retired), or stand beside live, or were live until an
older one was brought back: that one is retired too, with a higher number than the live one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from apply.faults import NotPrepared
from apply.queries import load
from apply.sink import Connection
from schemas.definitions.mapping import MappingSpec

_SQL = load("versions")


@dataclass(frozen=True, slots=True)
class Version:
    """One registered version. `state`: live, retired, shadow (being built), kept (was replaced)."""

    id: int
    version: int
    hash: str
    state: str
    table: str


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a definition is none that apply can start with, and what to do instead: a clause and sentences.

    `changed`: it is another one than was registered under its version.
    """

    message: str
    advice: str
    changed: bool = False

    def __str__(self) -> str:
        return f"{self.message}. {self.advice}"


def versions_of(connection: Connection, mapping: str) -> list[Version]:
    """Oldest first. Raises NotPrepared where there is no schema yet."""
    return all_versions(connection, [mapping]).get(mapping, [])


def all_versions(connection: Connection, mappings: Sequence[str]) -> dict[str, list[Version]]:
    """Of each of these mappings that is registered, oldest first. Raises NotPrepared, psycopg.Error."""
    try:
        rows = connection.execute(_SQL["known"], {"mappings": list(mappings)}).fetchall()
    except psycopg.errors.UndefinedTable as error:
        raise NotPrepared("the database has no schema of Gapless: run `gapless migrate`") from error
    found: dict[str, list[Version]] = {}
    for mapping, *version in rows:
        found.setdefault(mapping, []).append(Version(*version))
    return found


def live_of(versions: Sequence[Version]) -> Version | None:
    """The one whose table is the live one."""
    return next((one for one in reversed(versions) if one.state == "live"), None)


def aside_of(versions: Sequence[Version]) -> Version | None:
    """The one whose table stands beside the live one."""
    return next((one for one in versions if one.state in ("shadow", "kept")), None)


def objection(spec: MappingSpec, versions: Sequence[Version]) -> Objection | None:
    """What stands against this definition; None if it is the live version, or can still become it.

    `versions`: all that are known of its mapping, oldest first.
    """
    live = live_of(versions)
    if live is None:
        return None
    own = next((one for one in versions if one.version == spec.version), None)
    used = max(one.version for one in versions if one.state in ("live", "retired"))
    free = f"`version: {versions[-1].version + 1}`"
    command, where = f"gapless replay {spec.name}", spec.file or "its file"
    instead = f"put version {live.version} into {where}"
    is_live = f"version {live.version}, which is live"
    if own is not None and own.hash != spec.hash:
        if spec.version >= live.version:
            said = "the mapping changed, its version did not"
            return Objection(said, f"Write {free} in {where}.", changed=True)
        own = None
    if own is not None and own.state == "live":
        return None
    if own is not None and own.state == "shadow":
        advice = f"`{command} --shadow` swaps it in; until then {instead}."
        return Objection(f"version {own.version} is being built beside {is_live}", advice)
    if own is not None and own.state == "kept":
        advice = f"`{command} --swap-back` with these definitions brings it back; else {instead}."
        return Objection(f"version {own.version} was swapped for {is_live}", advice)
    if own is not None and own.version > live.version:
        return Objection(
            f"version {own.version} is retired: it was swapped back for {is_live}, and its table dropped",
            f"Write {free} to use this definition again; else {instead}.",
        )
    if spec.version < live.version:
        return Objection(
            f"version {spec.version} is older than version {live.version}, which is in use",
            f"Start with its definitions: {instead}. To go back, write the old definition as {free}.",
        )
    if spec.version < used:
        return Objection(f"version {used} was in use before", f"Write {free} in {where}.")
    return None
