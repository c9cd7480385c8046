"""Straight-line Python for the ordinary records of one mapping and plan, as text.

The code takes only what it is sure of; whatever it does not expect it leaves to `interpret`, by
its position in `odd`. So it may be incomplete, but never disagree: that is what tests compare.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zlib import adler32, crc32

from apply.mapping.casts import EPOCH_2000, ISO_LENGTHS, ValueFault
from apply.mapping.code import BODY, Writer, class_of, fetch, finder
from apply.mapping.code_columns import column_code, count_the_rest, look_at_numbers
from apply.mapping.code_predicates import predicate_code
from apply.mapping.code_texts import NOTHING_COUNTED, TextCount, texts_in
from apply.mapping.numerics import pair
from apply.mapping.rules import ChildRules, Rules
from apply.mapping.shape import UNSET, Form
from apply.outcomes import Reason
from schemas.definitions.paths import EACH, Root

_HASH = "(crc32(raw) << 32 | adler32(raw)) - 9223372036854775808"  # `raw.content_hash`
_GIVEN = {
    "crc32": crc32, "adler32": adler32, "ISO_LENGTHS": ISO_LENGTHS, "EPOCH_2000": EPOCH_2000,
    "from_iso": datetime.fromisoformat, "from_hex": bytes.fromhex,
    "pair": pair,
}  # fmt: skip


class Odd(ValueFault):
    """Raised by generated code: this record is for the plain mapper."""

    def __init__(self) -> None:
        super().__init__(Reason.WRONG_TYPE, "is not ordinary")


def generate(rules: Rules, form: Form | None = None) -> tuple[str, dict[str, Any]]:
    """The source of `map_ordinary` and the names it needs. `form`: of the records, if they have one.

    `map_ordinary(values, raws, made, context, row, odd, ignored, family)`: `values` are decoded
    records or ODD; `made`: what a function made of each; `row` is called with rows, `odd` and
    `ignored` with positions in the part, `family` with the index of a row that has children, and
    these. It returns how many member names and texts it found, or NOTHING_COUNTED, see `code_texts`.
    It raises ValueFault, before it calls anything, if what all records share is odd itself.
    """
    writer = Writer(
        {"Odd": Odd, "texts_in": texts_in, "NO_dict": {}, "NO_list": (), "UNSET": UNSET, **_GIVEN}
    )
    if form is not None and rules.entity is not None:
        writer.forms = {"r": (form, ()), "e": (form, rules.entity.steps)}
        if not rules.entity.steps:
            writer.texts = TextCount(form)
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
        lines = ["raise Odd"] if rules.plan == "snapshot" else ["ignored(at)", "continue"]
        for line in [*look_at_numbers(writer, rules.columns), *lines]:
            writer.line("    " + line)
    if rules.deleted is not None:
        writer.line(f"if {predicate_code(writer, rules.deleted)}: raise Odd")
    every = [*rules.keys, *rules.columns, *([rules.revision] if rules.revision else [])]
    columns = [f"{column_code(writer, rule)}, " for rule in every]
    count_the_rest(writer)
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
        *([f"{BODY}texts = {writer.texts.each}"] if writer.texts is not None else []),
        *([] if form is not None else [BODY + "if r.__class__ is not dict: raise Odd"]),
        *writer.objects,
        *writer.lines,
        f"{BODY}row({row})",
        *family,
        *([f"{BODY}every += texts"] if writer.texts is not None else []),
        "        except Exception:",
        BODY + "odd(at)",
        f"    return {'every' if writer.texts is not None else NOTHING_COUNTED}",
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
    "    every = 0",
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
        "".join(f"{column_code(writer, rule)}, " for rule in rules)
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
