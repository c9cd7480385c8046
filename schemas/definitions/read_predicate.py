"""Reads predicates: `{status: [open, paid], total: {gte: 10}}`, or a list of such maps for "or"."""

import re
from collections.abc import Callable
from typing import Final

from schemas.definitions.paths import Path
from schemas.definitions.predicates import Line, Operator, Predicate, Test
from schemas.definitions.problems import closest
from schemas.definitions.reader import Reader
from schemas.definitions.tree import Entry, ListNode, MapNode, Node, ScalarNode

_OPERATORS: Final = ("exists", "not", "lt", "lte", "gt", "gte", "matches")


def read_predicate(reader: Reader, node: Node, path: Callable[[str], Path]) -> Predicate:
    """A predicate whose lines start with paths that `path` parses."""
    maps = node.items if isinstance(node, ListNode) else (node,)
    if not maps:
        raise reader.refuse(node, "an empty list holds of nothing", "Write `{path: value}`.")
    return Predicate(tuple(_lines(reader, one, path) for one in maps))


def _lines(reader: Reader, node: Node, path: Callable[[str], Path]) -> tuple[Line, ...]:
    if not isinstance(node, MapNode) or not node.entries:
        raise reader.refuse(
            node,
            "a predicate is a map of paths to what must hold",
            "Write for example `{state: open}`.",
        )
    return tuple(
        Line(reader.notation(entry, path, entry.key), _tests(reader, entry.value))
        for entry in node.entries.values()
    )


def _tests(reader: Reader, node: Node) -> tuple[Test, ...]:
    if isinstance(node, ScalarNode):
        return (Test(Operator.EQUALS, node.value),)
    if isinstance(node, ListNode):
        return (Test(Operator.ONE_OF, reader.list_of(reader.scalar)(node)),)
    if not node.entries:
        raise reader.refuse(
            node, "an empty map tests nothing", f"Write one of {', '.join(_OPERATORS)}."
        )
    return tuple(_test(reader, entry) for entry in node.entries.values())


def _test(reader: Reader, entry: Entry) -> Test:
    if entry.key not in _OPERATORS:
        near = closest(entry.key, _OPERATORS)
        advice = f"Did you mean `{near}`?" if near else f"Operators are {', '.join(_OPERATORS)}."
        raise reader.refuse(entry, f'there is no operator "{entry.key}"', advice)
    operator = Operator(entry.key)
    if operator is Operator.EXISTS:
        return Test(operator, reader.boolean(entry.value))
    if operator is Operator.NOT:
        return Test(operator, _tests(reader, entry.value))
    if operator is Operator.MATCHES:
        return Test(operator, read_regex(reader, entry.value))
    operand = reader.scalar(entry.value)
    if operand is None or isinstance(operand, bool):
        raise reader.refuse(entry.value, f"`{entry.key}` compares with a number or a text")
    return Test(operator, operand)


def read_regex(reader: Reader, node: Node) -> str:
    """A regular expression of Python's `re`."""
    text = reader.text(node)
    try:
        re.compile(text)
    except re.error as error:
        raise reader.refuse(node, f"this is no regular expression: {error.msg}") from None
    return text
