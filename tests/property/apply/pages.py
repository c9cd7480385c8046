"""Random pages for a mapping: records that mostly fit it, some of them poisoned, from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Literal

from schemas.definitions.mapping import ChildSpec, ColumnSpec, MappingSpec
from schemas.definitions.paths import EACH, Path, Root, Step
from schemas.definitions.times import TimeKind
from schemas.records import MissingRecord, Observation
from tests.property.apply.specs import aside

Tree = dict[str, object] | list[object] | str | None
"""Scalars stand as the JSON text that they are written as, so that nothing reads numbers."""

_NUMBERS = (
    "0", "-0", "5", "-7", "32767", "32768", "2147483648", "9223372036854775807",
    "9223372036854775808", "1.0", "1.50", "1.005", "-0.0", "0.1", "1e3", "1E-2", "1e-400", "1e400",
    "12345678901234567890.5", "1e99999", "1e-20000", "0.30000000000000000001", "1e140000",
    "1700000000", "1700000000.5", "123456.78",
)  # fmt: skip
_TEXTS = (
    "", "open", "paid", "abc", "abcd", "ab ", "12-xyz", "5", "-7.50", "1e3", "true", 'é:"\\', ":",
    "nul\0nul", "\\u0000", "7f2c1e0a-0b1c-4d2e-8f3a-123456789abc", "99999999999999999999",
    "2024-03-01T08:12:31Z", "2024-03-01T08:12:31.123Z", "2024-03-01T08:12:31.123456Z",
    "2024-03-01T08:12:31+02:00", "2024-03-01 08:12:31", "2024-03-01", "2024-02-30T00:00:00Z",
    "2024-W01-1T08:12:31Z", "0001-01-01T00:00:00Z",
)  # fmt: skip
_WRITTEN = (
    '"\\u003a"',
    '"\\u003A\\u0022:"',
    '"a\\/b"',
    '"\\ud83d\\ude00"',
    "null",
    "true",
    "false",
)
_FITTING = {
    "text": ['"open"', '"abc"', "5"], "varchar": ['"ab"'], "char": ['"abc"', '"a "'],
    "smallint": ["5", '"5"', "1.0"], "integer": ["5", "0"], "bigint": ["5", "9223372036854775807"],
    "numeric": ["1.50", "5", '"-7.50"'], "real": ["0.5"], "double precision": ["0.1", "1e3"],
    "boolean": ["true", "false"], "timestamptz": ['"2024-03-01T08:12:31Z"', '"2024-03-01T08:12:31.5"', '"2024-03-01T08:12:31.123+01:00"'],
    "date": ['"2024-03-01"'], "uuid": ['"7f2c1e0a-0b1c-4d2e-8f3a-123456789abc"'],
    "jsonb": ['{"a":[1.10,":"]}', "[]"],
}  # fmt: skip


def page(dice: Random, spec: MappingSpec) -> Observation:
    """A page or a part of one, with holes."""
    records = [record(dice, spec) for _ in range(dice.randint(0, 12))]
    first_index = dice.choice([0, 0, 7])
    missing = []
    for at in range(len(records)):
        if dice.random() < 0.04:
            records[at] = b""
            why: Literal["erased", "oversized", "unsplittable"] = dice.choice(
                ["erased", "oversized", "unsplittable"]
            )
            missing.append(MissingRecord(first_index + at, why, 10, b"h"))
    return Observation(
        partition_id="s/t", plan=dice.choice(["interval", "interval", "snapshot", "cursor"]),
        scope="x", pass_="p", page=1, reason="r", method="GET", url="u", definition_hash="h",
        status=200, requested_at=1, received_at=1_700_000_000_000_000,
        run=dice.choice([None, "run-1"]), as_of=dice.choice([None, 1_700_000_000_000_000]),
        original_offset=dice.choice([None, 3]), source_epoch=2,
        records=records, missing=missing, first_index=first_index,
    )  # fmt: skip


def record(dice: Random, spec: MappingSpec) -> bytes:
    """One record as bytes."""
    tree: dict[str, object] = {name: _scalar(dice) for name in "abcid" if dice.random() < 0.3}
    entity = spec.entity.of("interval")
    inner: tuple[Step, ...] = entity.steps if entity is not None else ()
    for column in spec.columns.values():
        for one in (column.path.of("interval") or ()) if column.path is not None else ():
            value = (
                dice.choice(_FITTING[column.type.name]) if dice.random() < 0.93 else _scalar(dice)
            )
            if column.type.array and not one.path.has_each:
                value = f"[{value}]" if dice.random() < 0.9 else value
            _place(tree, _steps(one.path, inner), value)
            if dice.random() < 0.8:
                break
    revision = spec.revision.path.of("interval") if spec.revision.path is not None else None
    if revision is not None and spec.revision.type is not None:
        _place(tree, _steps(revision, inner), dice.choice(_FITTING[spec.revision.type.name]))
    for child in spec.children.values():
        _add_list(aside(dice), tree, child, inner)
    return _poison(dice, _write(dice, tree).encode())


def _add_list(
    dice: Random, tree: dict[str, object], child: ChildSpec, entity: tuple[Step, ...]
) -> None:
    """The list that a child table is made of; rarely something else, or nothing."""
    path = child.path.of("interval")
    if path is None or dice.random() < 0.1:
        return
    at = path.steps.index(EACH)
    elements: list[object] = []
    for _ in range(dice.choice([0, 1, 2, 3, 7])):
        element: dict[str, object] = {}
        for column in child.columns.values():
            for one in (column.path.of("interval") or ()) if column.path is not None else ():
                value = dice.choice(_FITTING[column.type.name])
                if column.name in child.key and dice.random() < 0.7:
                    value = _distinct(column, len(elements))
                if column.type.array and not one.path.has_each:
                    value = f"[{value}]"
                _place(element, _steps(one.path, ()), value)
        inside: object = element
        for step in reversed(path.steps[at + 1 :]):
            inside = {step: inside}
        elements.append(inside if dice.random() < 0.995 else _scalar(dice))
    start = _steps(Path(path.root, path.steps[:at], path.text), entity)
    _place(tree, start, elements if dice.random() < 0.98 else _scalar(dice))


def _distinct(column: ColumnSpec, number: int) -> str:
    """A value that no other element of the list has."""
    if column.from_ is not None:
        return _fitting(Random(0), column)
    texts = {
        "text": f'"t{number}"', "char": f'"c{number}"', "bigint": str(number),
        "numeric": f"{number}.50", "date": f'"2024-03-0{number + 1}"',
        "uuid": f'"7f2c1e0a-0b1c-4d2e-8f3a-00000000000{number}"',
        "timestamptz": f'"2024-03-01T08:12:3{number}Z"',
    }  # fmt: skip
    return texts.get(column.type.name) or "true"


def _fitting(dice: Random, column: ColumnSpec) -> str:
    if column.from_ is None or column.from_.kind is TimeKind.RFC3339:
        return dice.choice(_FITTING[column.type.name])
    if column.from_.kind is TimeKind.PATTERN:
        return '"2024-03-01 08:12:31"'
    return dice.choice(["1700000000", "1700000000.9999999999", '"1700000000"'])


def _steps(path: Path, entity: tuple[Step, ...]) -> tuple[Step, ...]:
    if path.root is Root.OBSERVATION:
        return ()
    return (*entity, *path.steps) if path.root is Root.ENTITY else path.steps


def _place(tree: dict[str, object], steps: tuple[Step, ...], value: object) -> None:
    """Put a value where the steps lead, over what stands in the way."""
    holder: object = tree
    for at, step in enumerate(steps):
        last = at == len(steps) - 1
        inner: object = value if last else {} if isinstance(steps[at + 1], str) else [None, None]
        if isinstance(holder, dict) and isinstance(step, str):
            if last or not isinstance(holder.get(step), type(inner)):
                holder[step] = inner
            holder = holder[step]
        elif isinstance(holder, list):
            index = step if isinstance(step, int) else 0
            if last or not isinstance(holder[index], type(inner)):
                holder[index] = inner
            holder = holder[index]


def _scalar(dice: Random) -> str:
    kind = dice.random()
    if kind < 0.5:
        return json.dumps(dice.choice(_TEXTS), ensure_ascii=dice.random() < 0.5)
    return dice.choice(_NUMBERS if kind < 0.8 else _WRITTEN)


def _write(dice: Random, tree: object) -> str:
    """As providers print: compact or spaced, now and then with a member twice or an escape."""
    gap = dice.choice(["", "", " ", "\n\t"]) if dice.random() < 0.3 else ""
    if isinstance(tree, dict):
        members = [
            f"{json.dumps(name)}{gap}:{gap}{_write(dice, one)}" for name, one in tree.items()
        ]
        if members and dice.random() < 0.02:
            again = json.dumps(dice.choice(list(tree)))
            members.append(again.replace("a", "\\u0061") + ":" + dice.choice(["1", '":"', "null"]))
        dice.shuffle(members)
        return "{" + f",{gap}".join(members) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(_write(dice, one) for one in tree) + "]"
    return "null" if tree is None else str(tree)


def _poison(dice: Random, raw: bytes) -> bytes:
    kind = dice.random()
    if kind < 0.93:
        return raw
    return dice.choice(
        [
            raw[:-1], raw + b"]", raw.replace(b'"', b'"\xff', 1), raw.replace(b"5", b"NaN", 1),
            b"\xef\xbb\xbf" + raw, b"[" + raw + b"]", b'"text"', b"5", b"null", b"", b"{}",
            b'{"a":' * 3000 + b"1" + b"}" * 3000, b"9" * 5000, raw + b"," + raw,
        ]
    )  # fmt: skip
