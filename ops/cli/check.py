"""`gapless check`: is a definition valid, what would it ask, and what would come of it."""

from __future__ import annotations

import time
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from ops.check.fetch import FirstPage
    from ops.check.question import Question
    from ops.check.sample import Sample
    from schemas.definitions.load import Definitions
    from schemas.definitions.mapping import MappingSpec
    from schemas.definitions.source import SourceSpec, StreamSpec, Tenant
    from schemas.settings import Settings

    Tenants = tuple[Tenant | None, ...]


class Origin(StrEnum):
    """Where `check MAPPING` takes records from."""

    LOG = "log"
    PROVIDER = "provider"


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="A source, a mapping or a file of one; else all, without asking."
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Ask the provider nothing.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say what is asked after what, and why; ask nothing.")
]


From = Annotated[
    Origin | None,
    typer.Option(
        "--from", help="Of a mapping: where records come from; else the log if it has any."
    ),
]


def check(
    name: Name = None,
    offline: Offline = False,
    explain: Explain = False,
    from_: From = None,
    json: context.Json = False,
    definitions: context.Definitions = None,
) -> None:
    """Validate definitions; of a source fetch one page and show what it becomes; of a mapping show
    what the newest records of the log would become.

    Writes nothing. A source needs neither Kafka nor Postgres. Exit code 2: a definition is wrong;
    3: there is no page to look at.
    """
    from ops.check.source_report import lines
    from schemas.definitions.load import load_folder
    from schemas.definitions.tenants import current_tenants

    path = Path(name) if name is not None and name.endswith((".yaml", ".yml")) else None
    if path is not None and definitions is None and path.parent.name in ("sources", "mappings"):
        definitions = path.parent.parent
    settings = context.load_settings(definitions)
    loaded = load_folder(settings.definitions)
    source = name if path is None else _named(loaded, path)
    mapping = loaded.mappings.get(source or "")
    if mapping is not None and source not in loaded.sources:
        _check_mapping(settings, loaded, mapping, None if offline else from_ or "any", json)
        return
    chosen = _chosen(loaded, source)
    files = {one.file for one in chosen}
    for problem in loaded.problems:
        if problem.severity == "warning" and problem.file in files:
            typer.echo(f"{problem}\n", err=True)
    offline = offline or explain or source is None
    if not offline:
        context.logs_to_stderr()
    whose = {one.name: current_tenants(one) for one in chosen}
    told = [_source(settings, loaded, one, whose[one.name], offline) for one in chosen]
    if explain:
        _explain(chosen, whose, told)
    if json:
        context.print_json(told)
    else:
        typer.echo("\n\n".join("\n".join(lines(one)) for one in told))
        typer.echo("Nothing was written.")
    if any("trouble" in stream for one in told for stream in one["streams"]):
        raise typer.Exit(problems.UNREACHABLE)


def _named(loaded: Definitions, path: Path) -> str:
    """The name of what the file holds; a source with its mappings inside is the source."""
    files = {name: spec.file for name, spec in loaded.mappings.items()}
    files |= {name: spec.file for name, spec in loaded.sources.items()}
    for name, file in reversed(files.items()):
        if (loaded.folder / file).resolve() == path.resolve():
            return name
    loaded.check()
    raise problems.Stop(f"{path} is no definition of {loaded.folder}.", problems.USAGE)


def _check_mapping(
    settings: Settings, loaded: Definitions, spec: MappingSpec, origin: str | None, as_json: bool
) -> None:
    """`origin` None: nothing is asked."""
    from ops.check.mapping import sampled
    from ops.check.mapping_report import lines, report

    records = None
    if origin is not None:
        context.logs_to_stderr()
        records = sampled(settings, loaded, spec, None if origin == "any" else origin)
    told = report(settings, loaded, spec, records)
    if as_json:
        context.print_json(told)
    else:
        typer.echo("\n".join(lines(told)))
        typer.echo("Nothing was written.")
    if "trouble" in told:
        raise typer.Exit(problems.UNREACHABLE)


def _chosen(loaded: Definitions, source: str | None) -> list[SourceSpec]:
    """The sources that are asked about; problems of other sources do not matter to a single one."""
    from schemas.definitions.problems import DefinitionError

    if source is None:
        loaded.check()
        return list(loaded.sources.values())
    found = loaded.sources.get(source)
    if found is None:
        loaded.check()
        known = ", ".join(sorted(loaded.sources)) or "none"
        mappings = ", ".join(sorted(loaded.mappings)) or "none"
        raise problems.Stop(
            f"There is no source or mapping {source}; sources known: {known}; "
            f"mappings known: {mappings}.",
            problems.USAGE,
        )
    if errors := loaded.errors_about(source):
        raise DefinitionError(errors)
    return [found]


def _source(
    settings: Settings,
    loaded: Definitions,
    source: SourceSpec,
    tenants: Tenants,
    offline: bool,
) -> dict[str, Any]:
    from schemas.definitions.risks import (
        assumptions_of_stream,
        risks_of_mapping,
        risks_of_source,
    )

    mappings = [spec for spec in loaded.mappings.values() if spec.source == source.name]
    return {
        "source": source.name,
        "file": source.file,
        "mappings": [
            {
                "mapping": m.name,
                "file": m.file,
                "version": m.version,
                "table": m.table,
                "children": [child.table for child in m.children.values()],
            }
            for m in mappings
        ],
        "streams": [
            _stream(settings, loaded, source, stream, tenants[0], offline)
            if tenants
            # as ingest does: nobody is polled
            else {"stream": stream.name, "partition_id": stream.partition_id(None), **_NOBODY}
            for stream in source
        ],
        "risks": [*risks_of_source(source), *(r for m in mappings for r in risks_of_mapping(m))],
        "assumed": [
            f"{stream.name} {said}" for stream in source for said in assumptions_of_stream(stream)
        ],
    }


_NOBODY = {
    "trouble": "no tenant is listed, so nobody is asked for",
    "unblocked_by": "a tenant in the list of `tenants`",
}


def _stream(
    settings: Settings,
    loaded: Definitions,
    source: SourceSpec,
    stream: StreamSpec,
    tenant: Tenant | None,
    offline: bool,
) -> dict[str, Any]:
    from apply.functions.outside import Surroundings
    from ops.check.fetch import first_page
    from ops.check.question import first_question
    from ops.check.sample import sample

    owner = stream.partition_id(tenant.id if tenant else None)
    now_us = time.time_ns() // 1000
    if stream.program is None:
        question = first_question(stream, tenant, now_us)
    else:
        question = _of_program(source, stream, tenant, loaded, now_us)
    told: dict[str, Any] = {"stream": stream.name, "partition_id": owner}
    if isinstance(question, str):
        return {**told, "trouble": question}
    told |= {
        "plan": question.plan,
        "scope": question.scope,
        "question": question.request,
        "notes": list(question.notes),
    }
    if offline:
        return told
    page = first_page(settings, loaded, owner)
    if page.trouble is not None:
        return {**told, "trouble": page.trouble, "unblocked_by": page.unblocked_by}
    told["answer"] = _answer(page)
    with closing(Surroundings(loaded.folder, shown=True)) as outside:
        told["samples"] = [
            _sample(sample(mapping, page.observations, outside))
            for mapping in loaded.mappings_for(source.name, stream.name)
        ]
    return told


def _explain(
    sources: list[SourceSpec], whose: dict[str, Tenants], told: list[dict[str, Any]]
) -> None:
    """Adds to every stream what its plans ask, one question after the other."""
    from ops.check.explanation import explained

    for source, one in zip(sources, told, strict=True):
        if not whose[source.name]:
            continue
        tenant = whose[source.name][0]
        for stream, shown in zip(source, one["streams"], strict=True):
            found = explained(stream, tenant, time.time_ns() // 1000)
            shown["explanation"] = [
                {"plan": reason.plan, "question": reason.question, "why": reason.why}
                for reason in found
            ]


def _of_program(
    source: SourceSpec,
    stream: StreamSpec,
    tenant: Tenant | None,
    loaded: Definitions,
    now_us: int,
) -> Question:
    from ops.check.program import ProgramFault, program_question

    try:
        return program_question(stream, tenant, loaded.folder, now_us)
    except ProgramFault as fault:
        message = f"{source.file}: stream {stream.name}: {fault}\n  Needed: {fault.unblocked_by}."
        raise problems.Stop(message, problems.USAGE) from None


def _answer(page: FirstPage) -> dict[str, Any]:
    if not page.observations:
        return {"records": 0, "empty": page.empty}
    first, last = page.observations[0], page.observations[-1]
    off_s = None
    if first.server_time is not None:
        off_s = round(abs(first.server_time - last.received_at) / 1e6, 1)
    return {
        "url": first.url,
        "scope": first.scope,
        "empty": page.empty,
        "status": first.status,
        "milliseconds": (first.received_at - first.requested_at) // 1000,
        "clocks_differ_s": off_s,
        "records": sum(len(part.records) for part in page.observations),
        "bytes": sum(len(r) for part in page.observations for r in part.records),
        "next": last.next_token is not None,
    }


def _sample(found: Sample) -> dict[str, Any]:
    return {
        "mapping": found.mapping,
        "version": found.version,
        "outcomes": dict(found.outcomes),
        "deleted": found.deleted,
        "children": dict(found.children),
        "columns": found.columns,
        "rows": found.rows,
        "faults": dict(found.faults),
        "halts": found.halts,
    }
