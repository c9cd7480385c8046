"""Straight-line Python for the ordinary records of one mapping and plan, as text.

The code takes only what it is sure of; whatever it does not expect it leaves to `interpret`, by
its position in `odd`. So it may be incomplete, but never disagree: that is what tests compare.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from itertools import takewhile
from typing import Any
from zlib import adler32, crc32

from apply.mapping.casts import ValueFault, as_text
from apply.mapping.code import BODY, Writer, class_of, fetch, finder
from apply.mapping.code_predicates import minds_null, predicate_code
from apply.mapping.rules import ChildRules, Rule, Rules
from apply.mapping.shape import UNSET, Form
from apply.outcomes import Reason
from schemas.definitions.mapping import Alternative
from schemas.definitions.paths import EACH, Path, Root, Step

_RANGES = {
    "smallint": (-(2**15), 2**15 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}
_HASH = "(crc32(raw) << 32 | adler32(raw)) - 9223372036854775808"  # `raw.content_hash`
_NOWHERE = "\0"
_CHECKSUMS = {"crc32": crc32, "adler32": adler32}


class Odd(ValueFault):
    """Raised by generated code: this record is for the plain mapper."""

    def __init__(self) -> None:
        super().__init__(Reason.WRONG_TYPE, "is not ordinary")


def whole_values(rules: Rules) -> frozenset[tuple[str, ...]] | None:
    """Values that the code needs as they are, for the shape of the records; None: no shape will do.

    A predicate that tells null from missing looks for itself, and so does a function.
    """
    if rules.made or rules.entity is None:
        return None
    entity, found = rules.entity.steps, [rules.entity.steps]
    predicates = [one for one in (rules.where, rules.deleted) if one is not None]
    for line in (line for one in predicates for lines in one.any_of for line in lines):
        if any(map(minds_null, line.tests)) or line.path.root is Root.OBSERVATION:
            return None
        found.append(_from_record(line.path, entity))
    every = [*rules.keys, *rules.columns, *([rules.revision] if rules.revision else [])]
    found += [_from_record(one.path, entity) for rule in every for one in rule.paths]
    for child in rules.children:
        if child.path is not None:
            found.append(_from_record(child.path, entity))
        inner = [one.path for rule in (*child.keys, *child.columns) for one in rule.paths]
        found += [path.steps for path in inner if path.root is Root.RECORD]
    names = {tuple(takewhile(lambda step: isinstance(step, str), steps)) for steps in found[1:]}
    if () in names:
        return None
    return frozenset(names)  # type: ignore[arg-type]


def _from_record(path: Path, entity: tuple[Step, ...]) -> tuple[Step, ...]:
    """Where in the record; an observation's path leads nowhere there."""
    if path.root is Root.OBSERVATION:
        return (_NOWHERE,)
    return (*entity, *path.steps) if path.root is Root.ENTITY else path.steps


def generate(rules: Rules, form: Form | None = None) -> tuple[str, dict[str, Any]]:
    """The source of `map_ordinary` and the names it needs. `form`: of the records, if they have one.

    `map_ordinary(values, raws, made, context, row, odd, ignored, family)`: `values` are decoded
    records or ODD; `made`: what a function made of each; `row` is called with rows, `odd` and
    `ignored` with positions in the part, `family` with the index of a row that has children, and
    these. It raises ValueFault, before it calls anything, if what all records share is odd itself.
    """
    writer = Writer({"Odd": Odd, "NO_dict": {}, "NO_list": (), "UNSET": UNSET, **_CHECKSUMS})
    if form is not None and rules.entity is not None:
        writer.forms = {"r": (form, ()), "e": (form, rules.entity.steps)}
    if rules.made:
        writer.objects.append(f"{BODY}if e.__class__ is not dict: raise Odd")
    elif rules.entity is None:
        writer.objects.append(f"{BODY}raise Odd")
    else:
        writer.objects.append(f"{BODY}e = {fetch(writer, Root.RECORD, rules.entity.steps)}")
        of = class_of(writer, writer.form("e", ()))
        writer.objects.append(f"{BODY}if e.__class__ is not {of}: raise Odd")
    if rules.where is not None:
        writer.line(f"if not ({predicate_code(writer, rules.where)}):")
        # A listing shows that the entity exists; that takes its key.
        writer.line("    raise Odd" if rules.plan == "snapshot" else "    ignored(at)")
        writer.line("    continue")
    if rules.deleted is not None:
        writer.line(f"if {predicate_code(writer, rules.deleted)}: raise Odd")
    every = [*rules.keys, *rules.columns, *([rules.revision] if rules.revision else [])]
    columns = [f"{_column(writer, rule)}, " for rule in every]
    family = _family(writer, rules, "".join(columns[: len(rules.keys)]))
    row = (
        f"({''.join(columns)}None, source_epoch, generation, partition_id, offset, first_index + at, "
        f"version_id, False, {_HASH}, observed_at, began)"
    )
    source = [
        *(line for each in rules.children for line in _child(writer, each)),
        *_HEAD,
        *writer.once,
        "    for r, raw, e in zip(values, raws, made):"
        if rules.made
        else "    for r, raw in zip(values, raws):",
        "        at += 1",
        "        try:",
        *([] if form is not None else [BODY + "if r.__class__ is not dict: raise Odd"]),
        *writer.objects,
        *writer.lines,
        f"{BODY}row({row})",
        *family,
        "        except Exception:",
        BODY + "odd(at)",
    ]
    return "\n".join(source), writer.names


_HEAD = (
    "def map_ordinary(values, raws, made, context, row, odd, ignored, family):",
    "    observed = context.observed",
    "    first_index = context.first_index",
    "    source_epoch, generation, partition_id, offset = context.system",
    "    version_id = context.version_id",
    "    observed_at = context.observed_at",
    "    began = context.began",
    "    at = -1",
)


def _family(writer: Writer, rules: Rules, key: str) -> list[str]:
    """Lines for the rows of child tables: some before the row itself, those returned behind it."""
    if not rules.children:
        return []
    lineage = "(generation, partition_id, offset, first_index + at, version_id)"
    names: list[str] = []
    for child in rules.children:
        names.append(f"k{len(names)}")
        call = f"{_function(child)}(r, e, observed, ({key}), {lineage})"
        writer.line(f"{names[-1]} = {call}")
    return [f"{BODY}if {' or '.join(names)}: family(first_index + at, ({', '.join(names)},))"]


def _function(child: ChildRules) -> str:
    return f"children_of_{child.name}"


def _child(outer: Writer, child: ChildRules) -> list[str]:
    """A function that makes one record's rows of one child table, or raises."""
    head = f"def {_function(child)}(r, e, observed, key, lineage):"
    if child.path is None:
        return [head, "    return []"]
    at = child.path.steps.index(EACH)
    around = Writer(outer.names, outer.forms)
    found = fetch(around, child.path.root, child.path.steps[:at])
    inside = child.path.steps[at + 1 :]
    element = f"{outer.name('find', finder(inside))}(one)" if inside else "one"
    # an element is no part of a form, whatever the record is
    writer = Writer(outer.names, {k: v for k, v in outer.forms.items() if k == "r"})
    own, others = (
        "".join(f"{_column(writer, rule)}, " for rule in rules)
        for rules in (child.keys, child.columns)
    )
    row = f"*key, {own}{others}at, " if own else f"*key, at, {others}"
    lines = [
        head,
        *(line[len(BODY) - 4 :] for line in around.objects),
        *writer.once,
        f"    found = {found}",
        "    if found is None or found is UNSET: return []",
        "    if found.__class__ is not list: raise Odd",
        "    rows = []",
        "    if found:",
        "        for at, one in enumerate(found):",
        f"{BODY}e = {element}",
        f"{BODY}if e.__class__ is not dict: raise Odd",
        *writer.objects,
        *writer.lines,
        f"{BODY}rows.append(({row}*lineage))",
    ]
    if own:
        last = f"len(key) + {len(child.keys)}"
        lines += [
            "    if len(rows) > 1:",
            f"        last = {last}",
            "        if len({row[:last] for row in rows}) < len(rows): raise Odd",
        ]
    return [*lines, "    return rows"]


def _column(writer: Writer, rule: Rule) -> str:
    """Lines that leave the stored value in a variable; what names it."""
    default = rule.constant if rule.default is None else rule.default
    if not rule.paths:
        if default is None and rule.required:
            writer.line("raise Odd")
        return "None" if default is None else writer.name("K", default)
    name = f"c{len(writer.names)}_{len(writer.lines)}"
    body: list[str] = []
    for depth, one in enumerate(rule.paths):
        indent = "    " * depth
        if depth:
            body.append(f"{'    ' * (depth - 1)}if {name} is None:")
        body += [indent + line for line in _alternative(writer, rule, one, name)]
    if default is not None:
        body.append(f"if {name} is None: {name} = {writer.name('K', default)}")
    elif rule.required:
        body.append(f"if {name} is None: raise Odd")
    if all(one.path.root is Root.OBSERVATION for one in rule.paths):
        writer.once += ["    " + line for line in body]
    else:
        writer.lines += [BODY + line for line in body]
    return name


def _alternative(writer: Writer, rule: Rule, one: Alternative, name: str) -> list[str]:
    if one.path.root is Root.OBSERVATION:
        lines = [f"{name} = observed[{str(one.path.steps[0])!r}]"]
    else:
        lines = [f"{name} = {fetch(writer, one.path.root, one.path.steps)}"]
        if writer.may_be_unset(one.path.root, one.path.steps):
            lines.append(f"if {name} is UNSET: {name} = None")
    if one.pattern is not None or one.prefix is not None:
        taken = writer.name("take", _taker(one.pattern, one.prefix or ""))
        lines.append(f"if {name} is not None: {name} = {taken}({name})")
    return lines + _finish(writer, rule, name)


def _taker(pattern: str | None, prefix: str) -> Callable[[object], str]:
    if pattern is None:
        return lambda value: prefix + as_text(value)
    search = re.compile(pattern).search

    def taken(value: object) -> str:
        found = search(as_text(value))
        if found is None or found[1] is None:
            raise ValueFault(Reason.NO_MATCH, "does not match")
        return prefix + found[1]

    return taken


def _finish(writer: Writer, rule: Rule, name: str) -> list[str]:
    """From the raw value to the stored one. A text of these records holds no U+0000."""
    general = f"{writer.name('f', rule.finish.cast)}({name})"
    if rule.finish.texts is not None:
        values = writer.name("V", rule.finish.texts)
        found = f"{values}.get({name}) if {name}.__class__ is str else None"
        return [f"if {name} is not None: {name} = ({found}) or {general}"]
    stays = _stays(writer, rule, name) if rule.finish.plain else None
    if stays is None:
        return [f"if {name} is not None: {name} = {general}"]
    return [f"if not ({stays}) and {name} is not None: {name} = {general}"]


def _stays(writer: Writer, rule: Rule, name: str) -> str | None:
    """A condition under which a value is stored as it is; None if there is no cheap one."""
    low, high = rule.finish.low, rule.finish.high
    if rule.type.array:
        if rule.type.name != "text" or low is not None or high is not None:
            return None
        texts = writer.name("TEXTS", frozenset((str,)))
        return f"{name}.__class__ is list and {texts}.issuperset(map(type, {name}))"
    if rule.type.name == "boolean":
        return f"{name} is True or {name} is False"
    if rule.type.name in _RANGES:
        least, most = _RANGES[rule.type.name]
        if isinstance(low, Decimal) or isinstance(high, Decimal):
            return None
        least = least if low is None else max(least, low)
        most = most if high is None else min(most, high)
        return f"{name}.__class__ is int and {least} <= {name} <= {most}"
    if rule.type.name in ("text", "varchar", "char"):
        limits = [rule.type.arguments[0]] if rule.type.arguments else []
        limits += [] if high is None else [high]
        limits += [] if rule.finish.sure is None else [rule.finish.sure]
        parts = [f"{name}.__class__ is str"]
        parts += [f"len({name}) <= {min(limits)}"] if limits else []
        parts += [] if low is None else [f"len({name}) >= {low}"]
        parts += [f"{name}[-1:] != ' '"] if rule.type.name == "char" else []
        return " and ".join(parts)
    return None
