"""The mappings this process runs: loaded definitions, matched with what `gapless migrate` registered.

A definition that is not registered, was changed without a new version, or is retired is refused:
its rows would carry a version that means something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import psycopg

from apply.faults import NotPrepared
from apply.functions.process import FunctionUnavailable
from apply.mapping.compile import compile_mapping
from apply.mapping.outside import Outside
from apply.mapping.types import CompiledMapping
from apply.queries import load
from apply.sink import Connection
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.secrets import SecretUnavailable

_SQL = load("versions")


def registered(
    connection: Connection, specs: Iterable[MappingSpec], outside: Outside
) -> list[CompiledMapping]:
    """The mappings, compiled under their registered numbers.

    Raises NotPrepared with what to do, or psycopg.Error.
    """
    try:
        rows = connection.execute(_SQL["all"]).fetchall()
    except psycopg.errors.UndefinedTable as error:
        raise NotPrepared("the database has no schema of Gapless: run `gapless migrate`") from error
    known = {
        (mapping, version): (number, hash_, state)
        for mapping, version, number, hash_, state in rows
    }
    compiled, faults = [], []
    for spec in specs:
        number, fault = _match(spec, known)
        if fault is not None:
            faults.append(fault)
            continue
        try:
            compiled.append(compile_mapping(spec, number, outside))
        except (SecretUnavailable, FunctionUnavailable) as error:
            faults.append(f"mapping {spec.name}: {error}")
    if faults:
        raise NotPrepared("\n".join(faults))
    return compiled


def _match(
    spec: MappingSpec, known: Mapping[tuple[str, int], tuple[int, str, str]]
) -> tuple[int, str | None]:
    name = f"mapping {spec.name} version {spec.version}"
    found = known.get((spec.name, spec.version))
    if found is None:
        return 0, f"{name} is not registered: run `gapless migrate`"
    number, hash_, state = found
    if hash_ != spec.hash:
        return 0, (
            f"{name} was changed after it was registered: raise `version` in {spec.file or 'its file'},"
            " then run `gapless migrate`"
        )
    if state == "shadow":
        return number, (
            f"{name} is being built beside the live one: `gapless replay {spec.name} --shadow` swaps "
            "it in. Until then start with the definitions that are live"
        )
    if state == "kept":
        return number, (
            f"{name} was swapped for another version: start with that one's definitions, or bring "
            f"this one back with `gapless replay {spec.name} --swap-back`"
        )
    if state != "live":
        return 0, f"{name} is retired: a newer version is registered; start with its definitions"
    return number, None


def still_ours(connection: Connection, compiled: Sequence[CompiledMapping]) -> None:
    """Raises NotPrepared if one of these must write no more: a swap has given its table to another
    version, or a replay has begun for a newer one, which would not see what comes behind its end.

    To ask after a claim: a swap takes all claims away, so whoever claimed before it cannot write; and
    a replay looks at its end for whoever claimed before it began.
    """
    asked = {"ids": [one.version_id for one in compiled]}
    found = connection.execute(_SQL["aside"], asked).fetchall()
    if found:
        raise NotPrepared(
            "\n".join(
                f"the table of mapping {name} now belongs to version {other}, not {version}: start "
                "with its definitions"
                for name, version, other in found
            )
        )
    overtaken = connection.execute(_SQL["overtaken"], asked).fetchall()
    if overtaken:
        raise NotPrepared(
            "\n".join(
                f"mapping {name} was replayed as version {newer}, and this is version {version}: "
                "start with the newer definitions"
                for name, version, newer in overtaken
            )
        )


def by_stream(
    compiled: Sequence[CompiledMapping],
) -> dict[tuple[str, str], tuple[CompiledMapping, ...]]:
    """The mappings of each (source, stream)."""
    found: dict[tuple[str, str], tuple[CompiledMapping, ...]] = {}
    for one in compiled:
        stream = (one.spec.source, one.spec.stream)
        found[stream] = (*found.get(stream, ()), one)
    return found
