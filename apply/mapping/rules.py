"""A mapping's rules for the records of one plan, resolved: what both mappers work from.

A rule reads one column: the first alternative with a value, its pattern, the type's cast or the
declared values, bounds, hash. Absent on purpose: pages, rows and outcomes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from apply.mapping import text_arrays
from apply.mapping.casts import ValueFault, as_text, cast_for, is_iso
from apply.mapping.finish import Finish, as_key, constant_of, finish_for, hasher_of
from apply.mapping.numerics import Plain, pack_decimal, plain
from apply.mapping.outside import UNUSED, Outside
from apply.mapping.types import CHILD_SYSTEM_COLUMNS, SYSTEM_COLUMNS, Column, CompiledChild
from apply.outcomes import Reason
from schemas.definitions.column_types import TEXTS, ColumnType
from schemas.definitions.mapping import (
    POSITION,
    Alternative,
    ChildSpec,
    ColumnSpec,
    MappingSpec,
    Personal,
    RevisionKind,
    RevisionSpec,
    Unknown,
)
from schemas.definitions.paths import Path
from schemas.definitions.predicates import Predicate, Test
from schemas.definitions.read_mapping import TENANT
from schemas.definitions.times import RFC3339

KEY_BYTES = 2_000
"""What the values of a key may take as JSON, all in all: an entry of an index takes 2,704 bytes."""
_COPY_TYPES = {
    "smallint": "int2", "integer": "int4", "bigint": "int8", "real": "float4",
    "double precision": "float8", "boolean": "bool", "timestamptz": "int8", "date": "int4",
    "uuid": "bytea", "jsonb": "bytea", "char": "text", "varchar": "text",
}  # fmt: skip
_INEXACT = (
    "text", "varchar", "char", "smallint", "integer", "bigint", "boolean", "timestamptz", "date",
    "uuid", "real", "double precision",
)  # fmt: skip
"""Types whose casts refuse a float that would not be exact."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one column is read from the records of one plan.

    `finish`: from a value that is not null (after the pattern) to what is stored. `constant` is stored
    where there is no path, `default` where no value is found. `number`: does all that `finish` does
    with a plain number, from the text of it. `known`: what lists of texts are stored as, of those that
    were seen.
    """

    name: str
    type: ColumnType
    paths: tuple[Alternative, ...]
    finish: Finish
    constant: Any = None
    default: Any = None
    required: bool = False
    shown: bool = False
    number: Plain | None = None
    known: text_arrays.Known | None = None


@dataclass(frozen=True, slots=True)
class ChildRules:
    """How one child table is read; paths of `keys` and `columns` start at the element.

    `path` None: this plan has none, so a record has no rows there. `keys` is empty where the
    position is the key.
    """

    name: str
    path: Path | None
    keys: tuple[Rule, ...]
    columns: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of one mapping for one plan, keys first.

    `made`: the entity is what a function makes of the record, not a part of it.
    """

    plan: str
    keys: tuple[Rule, ...]
    columns: tuple[Rule, ...]
    revision: Rule | None
    entity: Path | None  # None: this plan has none, so every record is a fault
    where: Predicate | None
    deleted: Predicate | None
    made: bool = False
    children: tuple[ChildRules, ...] = ()


def resolve(spec: MappingSpec, plan: str, outside: Outside = UNUSED) -> Rules:
    """The rules of a plan. Raises ValueError for what no loaded definition can say."""
    others = [column for name, column in spec.columns.items() if name not in spec.key]
    return Rules(
        plan=plan,
        keys=tuple(
            _short(_column(spec.columns[name], plan, outside, key=True), spec) for name in spec.key
        ),
        columns=tuple(_packed(_column(column, plan, outside, key=False)) for column in others),
        revision=_revision(spec.revision, plan),
        entity=spec.entity.of(plan),
        where=spec.where,
        deleted=spec.deleted,
        made=spec.python is not None,
        children=tuple(_child(child, plan, outside) for child in spec.children.values()),
    )


def _short(rule: Rule, spec: MappingSpec) -> Rule:
    """A key as a whole has room for KEY_BYTES; a tenant's id, which nobody reads in records, is short."""
    long = [name for name in spec.key if _may_be_long(spec.columns[name].type) and name != TENANT]
    if not _may_be_long(rule.type) or rule.constant is not None:
        return rule
    return replace(rule, finish=as_key(rule.finish, KEY_BYTES // max(1, len(long))))


def _is_packed(of: ColumnType) -> bool:
    """Whether rows hold values of this type, unless they are keys, in the binary form of Postgres."""
    return of.name == ("text" if of.array else "numeric") and of.array != bool(of.arguments)


def _packed(rule: Rule) -> Rule:
    """The same with values in the binary form of Postgres, if its type has them in that form."""
    if not _is_packed(rule.type):
        return rule
    if rule.type.array:
        known: text_arrays.Known = {}
        cast_list = text_arrays.remembering(rule.finish.cast, known)
        return replace(rule, finish=replace(rule.finish, cast=cast_list, plain=False), known=known)
    finish, pack = rule.finish, pack_decimal(rule.type)

    def cast(value: object) -> Any:
        number = finish.cast(value)
        return None if number is None else pack(number)

    def kept(value: Any) -> Any:
        return None if value is None else pack(value)

    texts = finish.texts and {text: kept(value) for text, value in finish.texts.items()}
    simple = finish.plain and finish.low is None and finish.high is None
    return replace(
        rule,
        finish=replace(finish, cast=cast, texts=texts),
        constant=kept(rule.constant),
        default=kept(rule.default),
        number=plain(rule.type) if simple else None,
    )


def _may_be_long(of: ColumnType) -> bool:
    return of.name in TEXTS or (of.name == "numeric" and not of.arguments)


def _child(spec: ChildSpec, plan: str, outside: Outside) -> ChildRules:
    keys = () if spec.key == (POSITION,) else spec.key
    others = [column for name, column in spec.columns.items() if name not in keys]
    return ChildRules(
        name=spec.name,
        path=spec.path.of(plan),
        keys=tuple(_column(spec.columns[name], plan, outside, key=True) for name in keys),
        columns=tuple(_column(column, plan, outside, key=False) for column in others),
    )


def table_columns(spec: MappingSpec) -> tuple[Column, ...]:
    """The target table's columns: keys, others, source_revision, the system's."""
    others = [name for name in spec.columns if name not in spec.key]
    columns = [_as_column(name, spec.columns[name].type) for name in spec.key]
    columns += [_as_stored(name, spec.columns[name].type) for name in others]
    if spec.revision.kind is not RevisionKind.NONE:
        if spec.revision.type is None:
            raise ValueError(f"the revision of {spec.name} has no type")
        columns.append(_as_column("source_revision", spec.revision.type))
    return (*columns, *SYSTEM_COLUMNS)


def compile_child(spec: MappingSpec, child: ChildSpec) -> CompiledChild:
    """A child table's columns: the parent's key, the child's, others, the position, the system's."""
    parents = [
        _as_column(name, spec.columns[of].type)
        for name, of in zip(child.parent_columns(spec.key), spec.key, strict=True)
    ]
    position = Column(POSITION, "integer", "int4")
    by_position = child.key == (POSITION,)
    own = () if by_position else child.key
    others = [name for name in child.columns if name not in own]
    columns = [_as_column(name, child.columns[name].type) for name in (*own, *others)]
    columns.insert(0 if by_position else len(columns), position)
    keys = len(parents) + len(child.key)
    return CompiledChild(child, (*parents, *columns, *CHILD_SYSTEM_COLUMNS), len(parents), keys)


def _as_stored(name: str, of: ColumnType) -> Column:
    return Column(name, of.sql, "bytea") if _is_packed(of) else _as_column(name, of)


def _as_column(name: str, of: ColumnType) -> Column:
    if of.array:
        return Column(name, of.sql, f"{of.name}[]")
    return Column(name, of.sql, _COPY_TYPES.get(of.name, of.name))


def take(one: Alternative, value: object) -> object:
    """What an alternative takes of its value: group 1 of its pattern, behind its prefix.

    Raises ValueFault.
    """
    if one.pattern is None:
        return value if one.prefix is None else one.prefix + as_text(value)
    found = re.search(one.pattern, as_text(value))
    if found is None or found[1] is None:
        raise ValueFault(Reason.NO_MATCH, f"does not match the pattern {one.pattern}")
    return (one.prefix or "") + found[1]


def _revision(spec: RevisionSpec, plan: str) -> Rule | None:
    if spec.kind is RevisionKind.NONE or spec.type is None or spec.path is None:
        return None
    path = spec.path.of(plan)
    return Rule(
        name="source_revision",
        type=spec.type,
        paths=() if path is None else (Alternative(path, spec.pattern),),
        finish=Finish(
            cast_for(spec.type, spec.from_, spec.zone),
            plain=True,
            iso=spec.type.name == "timestamptz" and is_iso(spec.from_ or RFC3339),
        ),
        required=True,
    )


def _column(spec: ColumnSpec, plan: str, outside: Outside, *, key: bool) -> Rule:
    """A key column is always required; a dropped one has no path, so it is NULL."""
    constant = constant_of(spec)
    default = constant(spec.default)
    paths = spec.path.of(plan) if spec.path is not None else None
    if spec.personal is Personal.DROP:
        paths, default = None, None
    looked_at = spec.hash_key is not None and outside is UNUSED  # then nothing is ever mapped
    if spec.personal is Personal.HASH and default is not None and not looked_at:
        default = hasher_of(spec, outside)(default)
    return Rule(
        name=spec.name,
        type=spec.type,
        paths=paths or (),
        finish=finish_for(spec, outside),
        constant=None if spec.path is not None else constant(spec.const),
        default=default,
        required=key or spec.required,
        shown=spec.personal is Personal.NO,
    )


def needs_exact_numbers(spec: MappingSpec, apart: Collection[str] = ()) -> bool:
    """Whether any rule looks at fractions; else records are read faster, with floats.

    `apart`: columns that read them otherwise.
    """
    born = [column for child in spec.children.values() for column in child.columns.values()]
    every = [one for name, one in spec.columns.items() if name not in apart] + born
    types = [column.type for column in every]
    formats = [column.from_ for column in every]
    if spec.revision.type is not None:
        types.append(spec.revision.type)
        formats.append(spec.revision.from_)
    return (
        any(one is not None for one in formats)
        or any(one.name not in _INEXACT for one in types)
        or any(_looks_numbers_up(column) for column in every)
        or any(_has_number(predicate) for predicate in (spec.where, spec.deleted))
    )


def _looks_numbers_up(spec: ColumnSpec) -> bool:
    """Whether a value that is no listed text can be found, or replaced without a closer look."""
    if spec.values is None:
        return False
    return spec.unknown is Unknown.USE or not all(isinstance(one, str) for one in spec.values)


def _has_number(predicate: Predicate | None) -> bool:
    lines = [] if predicate is None else [line for one in predicate.any_of for line in one]
    return any(_is_number(test) for line in lines for test in line.tests)


def _is_number(test: Test) -> bool:
    operands = test.operand if isinstance(test.operand, tuple) else (test.operand,)
    return any(
        _is_number(one)
        if isinstance(one, Test)
        else isinstance(one, int | float) and not isinstance(one, bool)
        for one in operands
    )
