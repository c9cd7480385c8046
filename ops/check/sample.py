"""What would become of the records of a page: mapped, a few of them shown. Pure.

Columns that are declared personal are never shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from apply.mapping.compile import compile_mapping
from apply.mapping.outside import UNUSED, Outside
from apply.mapping.readable import readable_row
from apply.mapping.types import DELETED, INDEX, CompiledMapping, Place
from apply.outcomes import Outcome, RecordFault
from schemas.definitions.mapping import ChildSpec, MappingSpec, Personal
from schemas.definitions.paths import EACH
from schemas.keys import split_partition_id
from schemas.records import Observation

_ROWS, _COLUMNS, _WIDTH, _REFUSED = 3, 5, 27, 5  # 27: a time whole
_SHOWN = (Personal.NO, Personal.UNDECLARED)


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that would be quarantined. `column`: the one that its detail speaks of."""

    key: str
    reason: str
    detail: str
    column: str | None


@dataclass(slots=True)
class Sample:
    """`outcomes`: how many records would become what; `faults`: reason and detail → how many.

    `refused`: of the first few quarantined ones, key, reason and detail. `children`: how many rows the
    child tables would have. Each of `rows` ends with its outcome.
    """

    mapping: str
    version: int
    outcomes: Counter[str] = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    deleted: int = 0
    refused: list[Refused] = field(default_factory=list)
    children: Counter[str] = field(default_factory=Counter)
    faults_max: int | None = None

    @property
    def halts(self) -> bool:
        """Whether apply would stop behind this page until somebody decides."""
        return self.faults_max is not None and self.outcomes["quarantined"] > self.faults_max


def sample(
    spec: MappingSpec, observations: Sequence[Observation], outside: Outside = UNUSED
) -> Sample:
    """Map every record of the pages, as apply would.

    Raises FunctionUnavailable or SecretUnavailable for what the mapping needs and is not there.
    """
    compiled = compile_mapping(spec, 0, outside)
    columns = list(spec.columns)[:_COLUMNS]
    found = Sample(spec.name, spec.version, columns=[*columns, "outcome"])
    found.children.update({child.table: 0 for child in spec.children.values()})
    found.faults_max = spec.faults_max
    for observation in observations:
        tenant = split_partition_id(observation.partition_id)[2]
        mapped = compiled.map_page(observation, Place(0, 0, 0, tenant, None))
        for byte in mapped.outcomes:
            found.outcomes["applied" if byte == 0 else Outcome(byte).name.lower()] += 1
        for row in sorted(mapped.rows, key=lambda row: int(row[INDEX])):
            found.deleted += bool(row[DELETED])
            sizes = [len(rows) for rows in mapped.children.get(row[INDEX], ())]
            sizes = sizes or [0] * len(spec.children)
            for child, size in zip(spec.children.values(), sizes, strict=True):
                found.children[child.table] += size
            if len(found.rows) < _ROWS:
                found.rows.append([*_shown(compiled, columns, row), _outcome(spec, sizes)])
        for fault in mapped.faults:
            found.faults[f"{fault.reason.value}: {fault.detail}"] += 1
            if len(found.refused) < _REFUSED:
                found.refused.append(_refused(spec, fault))
    return found


def _refused(spec: MappingSpec, fault: RecordFault) -> Refused:
    """The key is shown where none of its columns is personal."""
    public = all(spec.columns[name].personal in _SHOWN for name in spec.key)
    key = "·" if fault.key is None else " ".join(map(str, fault.key.values()))
    column = fault.detail.split(" ", 1)[0]
    return Refused(
        _short(key) if public or fault.key is None else "(pers.)",
        fault.reason.value,
        fault.detail,
        column if column in spec.columns else None,
    )


def _outcome(spec: MappingSpec, sizes: Sequence[int]) -> str:
    """`applied, 2 lines`: a child's elements are called as the list that they stand in."""
    counted = [
        f"{size} {_word(child, size)}"
        for child, size in zip(spec.children.values(), sizes, strict=True)
    ]
    return ", ".join(["applied", *counted])


def _word(child: ChildSpec, number: int) -> str:
    paths = [child.path.every, *(child.path.named or {}).values()]
    steps = next(path.steps for path in paths if path is not None)
    names = [step for step in steps[: steps.index(EACH)] if isinstance(step, str)]
    word = names[-1] if names else child.name
    return word.removesuffix("s") if number == 1 else word


def _shown(compiled: CompiledMapping, columns: Sequence[str], row: tuple[object, ...]) -> list[str]:
    values = readable_row(compiled, row)
    return [
        _short(values[name]) if compiled.spec.columns[name].personal in _SHOWN else "(pers.)"
        for name in columns
    ]


def _short(value: object) -> str:
    text = "·" if value is None else str(value)
    text = "".join(c if c.isprintable() else "·" for c in text)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
