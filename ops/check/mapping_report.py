"""What `gapless check MAPPING` says: facts as JSON, and the same for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ops.check import standing
from ops.check.mapping import Records, judged, place_at, problem_at
from schemas.definitions.load import Definitions
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.risks import risks_of_mapping
from schemas.settings import Settings


def report(
    settings: Settings, loaded: Definitions, spec: MappingSpec, records: Records | None
) -> dict[str, Any]:
    """Everything that is known of the mapping. `records` None: it was not to be tried."""
    told: dict[str, Any] = {
        "mapping": spec.name, "file": spec.file, "version": spec.version, "table": spec.table,
        "from": f"{spec.source}/{spec.stream}", "risks": list(risks_of_mapping(spec)),
    }  # fmt: skip
    if spec.children:
        told["child_tables"] = [child.table for child in spec.children.values()]
    if spec.python is not None:
        told["python"] = spec.python.path
    if records is None:
        return told
    if (against := standing.against(settings, spec)) is not None:
        told["against"] = against
    told["origin"] = records.origin
    if records.trouble is not None:
        return {**told, "trouble": records.trouble, "unblocked_by": records.unblocked_by}
    sample, nowhere = judged(settings, spec, records.pages)
    folder = loaded.folder
    return {
        **told,
        "records": sum(len(page.records) for page in records.pages),
        "pages": len(records.pages),
        "columns": sample.columns,
        "rows": sample.rows,
        "refused": [
            {
                "key": one.key, "reason": one.reason, "detail": one.detail,
                "line": None if one.column is None else place_at(folder, spec, "columns", one.column)[0],
            }
            for one in sample.refused
        ],
        "faults": dict(sample.faults),
        "outcomes": dict(sample.outcomes),
        "children": dict(sample.children),
        "deleted": sample.deleted,
        "nowhere": [str(problem_at(folder, spec, one)) for one in nowhere],
    }  # fmt: skip


def lines(told: dict[str, Any]) -> Iterator[str]:
    """The same for people."""
    tables = " and ".join([told["table"], *told.get("child_tables", ())])
    yield f"{told['file']:<26} valid, mapping {told['mapping']}, v{told['version']}, table {tables}"
    if "against" in told:
        yield f"{'But for the database':<26} {told['against']}"
    if "python" in told:
        yield f"{'Rows are made by':<26} {told['python']}"
    if "trouble" in told:
        yield f"{'No records':<26} {told['origin']}: {told['trouble']}"
        if told.get("unblocked_by"):
            yield f"  {told['unblocked_by']}"
    if "records" in told:
        yield from _sample(told)
    risks = told["risks"] or ["none"]
    yield f"{'Risks you take':<26} {risks[0]}"
    yield from (f"{'':<26} {one}" for one in risks[1:])


def _sample(told: dict[str, Any]) -> Iterator[str]:
    many = f"{told['records']} records on {told['pages']} pages"
    yield f"{'Sampled':<26} {many} of {told['from']}, from {told['origin']}"
    rows = [told["columns"], *told["rows"]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(told["columns"]))]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  " + "  ".join(cells).rstrip()
    for one in told["refused"]:
        yield f"  {one['key']}  quarantined: {one['reason']}"
        where = "" if one["line"] is None else f"    line {one['line']}"
        yield f"      {one['detail']}{where}"
    if len(told["faults"]) > 1 or sum(told["faults"].values()) > len(told["refused"]):
        yield from (f"  {number} × {fault}" for fault, number in told["faults"].items())
    counts = ", ".join(f"{number} {name}" for name, number in sorted(told["outcomes"].items()))
    gone = f" ({told['deleted']} deleted)" if told["deleted"] else ""
    born = "".join(f"; {number} {table}" for table, number in told["children"].items())
    yield f"{'Would become':<26} {counts or 'nothing'}{gone}{born}"
    for problem in told["nowhere"]:
        yield from ("", problem, "")
