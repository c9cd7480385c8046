"""YAML 1.2 as a tree that remembers where everything stands.

Duplicate keys are problems, `<<` merges, anchors work. Only text, numbers, booleans and null exist:
`no`, `on`, `12:30` and dates stay text. Nothing is ever constructed from a tag.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, SequenceNode
from ruamel.yaml.nodes import ScalarNode as YamlScalar

# Narrower than YAML's core schema: what would lose characters as a number (0017, +49) stays text.
_INT = re.compile(r"-?(0|[1-9][0-9]{0,39})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_CONSTANTS: Final = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_MOST_NODES: Final = 100_000  # aliases of aliases grow without bound
_DEEPEST: Final = 50


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A text, number, boolean or null; `raw` is what was written."""

    value: str | int | float | bool | None
    raw: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list."""

    items: "tuple[Node, ...]"
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a map with its value; line and column are the key's."""

    key: str
    value: "Node"
    line: int
    column: int
    typed: "str | int | float | bool | None" = None  # the key read like a value: 1 is a number


@dataclass(frozen=True, slots=True)
class MapNode:
    """A map, in the order of the file; keys are texts as written."""

    entries: dict[str, Entry]
    line: int
    column: int

    def get(self, key: str) -> "Node | None":
        """The value of a key that is there and not null."""
        entry = self.entries.get(key)
        return None if entry is None or is_null(entry.value) else entry.value


Node = ScalarNode | ListNode | MapNode


@dataclass(slots=True)
class Fault:
    """Something wrong with the YAML itself."""

    line: int
    column: int
    message: str
    advice: str


@dataclass(slots=True)
class Tree:
    """A file's tree, or None if it holds none, and what is wrong with it."""

    root: Node | None = None
    faults: list[Fault] = field(default_factory=list)


def is_null(node: Node) -> bool:
    """Whether the node is a null, which says "as if this key were not there"."""
    return isinstance(node, ScalarNode) and node.value is None


def text_nodes(node: Node) -> Iterator[ScalarNode]:
    """All scalars below a node."""
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, ListNode):
        for item in node.items:
            yield from text_nodes(item)
    else:
        for entry in node.entries.values():
            yield from text_nodes(entry.value)


def read_tree(text: str) -> Tree:
    """The tree of one YAML document."""
    tree = Tree()
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(StringIO(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "not readable"
        tree.faults.append(
            _fault(what, *(1, 1) if mark is None else (mark.line + 1, mark.column + 1))
        )
    except (YAMLError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        tree.faults.append(_fault(first, 1, 1))
    else:
        if root is not None:
            tree.root = _Converter(tree.faults).convert(root, 0)
    return tree


def _fault(what: str, line: int, column: int) -> Fault:
    advice = (
        "Indent with spaces, and quote texts that hold `: `, ` #`, or begin with one of `@*&!%{[`."
    )
    return Fault(line, column, f"this is no YAML: {what}", advice)


class _Converter:
    """From ruamel's nodes to ours."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        self.count = 0

    def convert(self, node: Any, depth: int) -> Node:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.count += 1
        if self.count > _MOST_NODES or depth > _DEEPEST:
            if self.count != _MOST_NODES + 2:
                self.faults.append(Fault(line, column, "this file is too large or too deep", ""))
            self.count = _MOST_NODES + 1
            return ScalarNode(None, "", line, column)
        if isinstance(node, MappingNode):
            return MapNode(self._entries(node, depth), line, column)
        if isinstance(node, SequenceNode):
            return ListNode(
                tuple(self.convert(item, depth + 1) for item in node.value), line, column
            )
        return self._scalar(node, line, column)

    def _scalar(self, node: Any, line: int, column: int) -> ScalarNode:
        raw = str(node.value)
        tag = str(node.tag or "")
        if (
            not isinstance(node, YamlScalar)
            or not tag.startswith("tag:yaml.org,2002:")
            or tag.endswith("binary")
        ):
            self.faults.append(
                Fault(line, column, "tags are not read", "Write plain texts and numbers.")
            )
        plain = node.style is None and not tag.endswith(":str")
        return ScalarNode(_resolve(raw) if plain else raw, raw, line, column)

    def _entries(self, node: Any, depth: int) -> dict[str, Entry]:
        own: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if not isinstance(key_node, YamlScalar):
                self.faults.append(Fault(line, column, "a key must be a text", ""))
                continue
            key = str(key_node.value)
            if key == "<<" and key_node.style is None:
                for name, entry in self._merged(value_node, depth).items():
                    merged.setdefault(name, entry)
                continue
            if key in own:
                self.faults.append(_twice(key, own[key], line, column))
                continue
            typed = _resolve(key) if key_node.style is None else key
            own[key] = Entry(key, self.convert(value_node, depth + 1), line, column, typed)
        return {**merged, **own}

    def _merged(self, node: Any, depth: int) -> dict[str, Entry]:
        value = self.convert(node, depth + 1)
        maps = value.items if isinstance(value, ListNode) else (value,)
        out: dict[str, Entry] = {}
        for one in maps:
            if not isinstance(one, MapNode):
                self.faults.append(
                    Fault(value.line, value.column, "only maps can be merged with <<", "")
                )
                continue
            for name, entry in one.entries.items():
                out.setdefault(name, entry)
        return out


def _twice(key: str, first: Entry, line: int, column: int) -> Fault:
    return Fault(
        line,
        column,
        f'the key "{key}" stands here twice',
        f"It is also on line {first.line}. Keep one.",
    )


def _resolve(raw: str) -> str | int | float | bool | None:
    if raw in _CONSTANTS:
        return _CONSTANTS[raw]
    if _INT.fullmatch(raw):
        return int(raw)
    return float(raw) if _FLOAT.fullmatch(raw) else raw
