"""What a mapping would make of real records: the newest of the log, else a page of the provider.

Nothing is written. A function of the mapping is called as apply would call it, but its output is
shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from apply.functions.outside import Surroundings
from ops import problems
from ops.check.fetch import first_page
from ops.check.newest import newest_pages
from ops.check.paths import NoSuchPath, paths_to_nowhere
from ops.check.sample import Sample, sample
from ops.facts.log import KafkaUnreachable, TopicsMissing
from schemas.definitions.load import Definitions
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.problems import Problem
from schemas.definitions.tenants import current_tenants
from schemas.definitions.tree import Entry, MapNode, ScalarNode, read_tree
from schemas.log.reader import LogUnavailable
from schemas.records import Observation
from schemas.settings import Settings

SAMPLED = 200
_PAGES_MAX = 50


@dataclass(frozen=True, slots=True)
class Records:
    """Sampled pages and where they are from; without any, `trouble` says why."""

    pages: tuple[Observation, ...]
    origin: str
    trouble: str | None = None
    unblocked_by: str | None = None


def sampled(
    settings: Settings, loaded: Definitions, spec: MappingSpec, origin: str | None = None
) -> Records:
    """Records of the mapping's stream. `origin`: `log` or `provider`; None: the log if it has any."""
    source = loaded.sources[spec.source]
    stream = source.streams[spec.stream]
    tenants = current_tenants(source)
    trouble = f"the log has no records of {spec.source}/{spec.stream} yet"
    needed = "gapless ingest, or --from provider"
    if origin != "provider":
        try:
            pages = newest_pages(settings, stream, tenants, SAMPLED)
        except (KafkaUnreachable, TopicsMissing, LogUnavailable) as error:
            pages = []
            found = problems.explain(error, settings)
            trouble, _, needed = (found.message if found else str(error)).partition("\n")
        if pages:
            return Records(tuple(pages), "the log")
        if origin == "log":
            return Records((), "the log", trouble, needed or None)
    tenant = tenants[0] if tenants else None
    page = first_page(settings, loaded, stream.partition_id(tenant.id if tenant else None))
    if page.observations:
        return Records(page.observations, "the provider")
    trouble = page.trouble or "the provider's first pages have no records"
    return Records((), "the provider", trouble, page.unblocked_by)


def judged(
    settings: Settings, spec: MappingSpec, pages: Sequence[Observation]
) -> tuple[Sample, list[NoSuchPath]]:
    """What the records would become, and paths that lead nowhere.

    Raises FunctionUnavailable, or SecretUnavailable for the key of a hash.
    """
    with closing(Surroundings(settings.definitions, shown=True)) as outside:
        found = sample(spec, pages, outside)
    return found, paths_to_nowhere(spec, pages)


def problem_at(folder: Path, spec: MappingSpec, found: NoSuchPath) -> Problem:
    """A warning at the column's line in its file."""
    line, column, excerpt = place_at(folder, spec, *found.place)
    return Problem(spec.file, line, column, found.message, excerpt, found.advice, "warning")


def place_at(folder: Path, spec: MappingSpec, *place: str) -> tuple[int, int, str]:
    """Line and column from 1 of the value behind these keys, and the line; the first line if unsure."""
    try:
        text = (folder / spec.file).read_text("utf-8-sig")
    except OSError:
        return 1, 1, ""
    root = read_tree(text).root
    *outer, name = place
    if not (isinstance(root, MapNode) and "mapping" in root.entries):
        outer = ["mappings", spec.name, *outer]
    node = _below(root, *outer)
    entry: Entry | None = node.entries.get(name) if isinstance(node, MapNode) else None
    if entry is None:
        return 1, 1, ""
    at = entry.value if isinstance(entry.value, ScalarNode) else entry
    return at.line, at.column, text.splitlines()[at.line - 1].rstrip()


def _below(node: object, *names: str) -> object:
    for name in names:
        node = node.get(name) if isinstance(node, MapNode) else None
    return node
