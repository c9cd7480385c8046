"""Lines of generated code that make the value of one column, and count its text on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from apply.mapping.casts import Cast, ValueFault, as_text
from apply.mapping.code import BODY, Writer, fetch
from apply.mapping.raw import is_one_value, read_exactly
from apply.mapping.rules import Rule
from apply.outcomes import Reason
from schemas.definitions.column_types import TEXTS
from schemas.definitions.mapping import Alternative
from schemas.definitions.paths import Root

_RANGES = {
    "smallint": (-(2**15), 2**15 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}


def column_code(writer: Writer, rule: Rule) -> str:
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
    counted = False
    if one.path.root is Root.OBSERVATION:
        lines = [f"{name} = observed[{str(one.path.steps[0])!r}]"]
    else:
        lines = [f"{name} = {fetch(writer, one.path.root, one.path.steps)}"]
        counted = _is_counted(writer, rule, one)
        if writer.may_be_unset(one.path.root, one.path.steps):
            less = "texts -= 1; " if counted else ""
            lines.append(f"if {name} is UNSET: {less}{name} = None")
    if one.pattern is not None or one.prefix is not None:
        taken = writer.name("take", _taker(one.pattern, one.prefix or ""))
        lines.append(f"if {name} is not None: {name} = {taken}({name})")
    elif rule.number is not None and writer.is_raw(one.path.root, one.path.steps):
        return lines + plain_number(writer, rule, name)
    return lines + _finish(writer, rule, name, counted=counted)


def plain_number(writer: Writer, rule: Rule, name: str) -> list[str]:
    """From a number as JSON writes it. Whatever else it is, with an exponent too, is no `int`: it is
    read and cast."""
    assert rule.number is not None
    of = rule.number
    powers, pack = writer.name("P", of.powers), writer.name("pack", of.pack)
    cast = f"{writer.name('f', rule.finish.cast)}({writer.name('read', read_exactly)}(text))"
    packed = (
        f"pair(2, {of.above}, 0, {of.scale}, units // {of.part}, units % {of.part} * {of.fill})"
    )
    return [
        f"if {name} is not None:",
        f"    text = bytes({name})",
        "    whole, _, part = text.partition(b'.')",
        f"    if whole == b'null': {name} = None",
        "    else:",
        "        try:",
        f"            units = int(whole + part) * {powers}[len(part)]",
        f"            {name} = {packed} if 0 <= units < {of.most} else {pack}(units)",
        "        except (ValueError, IndexError):",
        # nobody else looks at this value, so it is counted once
        *(["            texts += text[:1] == b'\"'"] if writer.texts is not None else []),
        f"            {name} = {cast}",
    ]


def look_at_numbers(writer: Writer, rules: Iterable[Rule]) -> list[str]:
    """For records that no column is read from: values that stay as JSON writes them were not looked
    at by the decoder, and a record with one that nobody can read is a fault, whatever else it is."""
    raw = [
        one.path
        for rule in rules
        if rule.number is not None
        for one in rule.paths
        if writer.is_raw(one.path.root, one.path.steps)
    ]
    is_read = writer.name("is_read", is_one_value)
    return [f"if not {is_read}({fetch(writer, one.root, one.steps)}): raise Odd" for one in raw]


def _is_counted(writer: Writer, rule: Rule, one: Alternative) -> bool:
    """Whether the code that reads a column also counts its text."""
    if (
        writer.texts is None
        or len(rule.paths) > 1
        or one.pattern is not None
        or one.prefix is not None
    ):
        return False
    return writer.texts.take(one.path.root, one.path.steps)


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


def _finish(writer: Writer, rule: Rule, name: str, *, counted: bool) -> list[str]:
    """From the raw value to the stored one, which also corrects the count of texts if it is `counted`.
    A text of these records holds no U+0000."""
    cast = rule.finish.cast
    if not rule.finish.plain and (rule.required or rule.default is not None or len(rule.paths) > 1):
        cast = _found(cast)
    general = f"{name} = {writer.name('f', cast)}({name})"
    usual, is_text = _usual(writer, rule, name, general, counted=counted)
    if is_text and counted:
        assert writer.texts is not None
        writer.texts.each += 1
    correct = (
        f"if {name}.__class__ is {'not ' if is_text else ''}str: texts {'-' if is_text else '+'}= 1"
    )
    if not usual:
        return [*([correct] if counted else []), f"if {name} is not None: {general}"]
    if counted:
        return [*usual, "else:", f"    {correct}", f"    if {name} is not None: {general}"]
    return [*usual, f"elif {name} is not None: {general}"]


def _found(cast: Cast) -> Cast:
    """Where a value that is stored as NULL is not the same as none: that is left to the plain mapper."""

    def found(value: object) -> Any:
        made = cast(value)
        if made is None:
            raise ValueFault(Reason.MISSING_VALUE, "is stored as NULL")
        return made

    return found


def _usual(
    writer: Writer, rule: Rule, name: str, general: str, *, counted: bool
) -> tuple[list[str], bool]:
    """The cast of a value as nearly all are written, without a call, behind an `if`; whether it
    is then a text. Nothing, if there is no such way."""
    finish, of = rule.finish, rule.type
    if rule.known is not None:  # what cannot be looked up raises, so it is odd
        known = f"    known = {writer.name('KNOWN', rule.known)}.get(tuple({name}))"
        count = f"    texts += texts_in({name}) if known is None else len({name})"
        return [
            f"if {name}.__class__ is list:",
            known,
            *([count] if counted else []),
            f"    if known is not None: {name} = known",
            f"    else: {general}",
        ], False
    if finish.texts is not None:
        found = f"{writer.name('V', finish.texts)}.get({name})"
        return [
            f"if {name}.__class__ is str:",
            f"    known = {found}",
            f"    if known is not None: {name} = known",
            f"    else: {general}",
        ], True
    if not finish.plain:
        return [], False
    text = f"{name}.__class__ is str and len({name})"
    unbounded = finish.low is None and finish.high is None and not of.array
    if of.name == "timestamptz" and finish.iso and unbounded:
        return [
            f"if {text} in ISO_LENGTHS and {name}[-1] == 'Z' and {name}[4:11:3] == '--T':",
            f"    since = from_iso({name}) - EPOCH_2000",
            f"    {name} = since.days * 86400000000 + since.seconds * 1000000 + since.microseconds",
        ], True
    if of.name == "uuid" and unbounded:
        return [
            f"if {text} == 36 and {name}[8:24:5] == '----':",
            f"    {name} = from_hex({name}.replace('-', ''))",
            f"    if len({name}) != 16: raise Odd",
        ], True
    stays = _stays(writer, rule, name)
    return [] if stays is None else [f"if {stays}: pass"], of.name in TEXTS and not of.array


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


def count_the_rest(writer: Writer) -> None:
    """Lines that count the texts which no column counts, and the names of objects that are not there."""
    if writer.texts is None:
        return
    for steps in writer.texts.objects:
        fetch(writer, Root.ENTITY, steps)
    for steps, optional in writer.texts.left.items():
        name = f"t{len(writer.lines)}"
        writer.line(f"{name} = {fetch(writer, Root.ENTITY, steps)}")
        writer.line(f"if {name}.__class__ is str: texts += 1")
        writer.line(f"elif {name}.__class__ is list: texts += texts_in({name})")
        if optional:
            writer.line(f"elif {name} is UNSET: texts -= 1")
