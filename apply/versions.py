"""The mappings this process runs: loaded definitions, matched with what `gapless migrate` registered.

A definition that is not registered, was changed without a new version, or is not the live version is
refused: its rows would carry a version that means something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apply.faults import NotPrepared
from apply.functions.process import FunctionUnavailable
from apply.known_versions import Version, all_versions, objection
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
    specs = list(specs)
    known = all_versions(connection, [spec.name for spec in specs])
    compiled, faults = [], []
    for spec in specs:
        number, fault = _match(spec, known.get(spec.name, []))
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


def _match(spec: MappingSpec, versions: Sequence[Version]) -> tuple[int, str | None]:
    against = objection(spec, versions)
    if against is not None:
        return 0, f"mapping {spec.name}: {against}"
    for one in versions:
        if one.version == spec.version:
            return one.id, None
    return 0, (
        f"mapping {spec.name} version {spec.version} is not registered: run `gapless migrate`"
    )


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
