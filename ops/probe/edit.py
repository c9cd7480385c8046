"""Changes single keys in the text of a definition; every other character stays as it is. Pure.

Places come from the YAML parser, so comments, quotes, anchors and alignment are never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode

Keys = tuple[str, ...]


class NotEditable(Exception):
    """The place cannot be changed without changing something else; says what to write by hand."""


def with_key(text: str, keys: Keys, value: str | int) -> str:
    """The text with the value at a path of keys, replaced or added. Raises NotEditable."""
    root = YAML(typ="safe", pure=True).compose(StringIO(text))
    if not isinstance(root, MappingNode):
        raise _by_hand(keys, value)
    node, left = root, list(keys)
    while True:
        found = _member(node, left[0])
        if found is None:
            return _added(text, node, left, value)
        if _shared(root, found):
            raise _by_hand(keys, value)
        if len(left) == 1:
            if not isinstance(found, ScalarNode) or found.anchor:
                raise _by_hand(keys, value)
            return text[: found.start_mark.index] + _scalar(value) + text[found.end_mark.index :]
        if not isinstance(found, MappingNode):
            raise _by_hand(keys, value)
        node, left = found, left[1:]


def _member(node: MappingNode, name: str) -> Any:
    return next((value for key, value in node.value if key.value == name), None)


def _added(text: str, node: MappingNode, left: Sequence[str], value: str | int) -> str:
    """A new last member; maps that are missing on the way are written within braces."""
    written = _scalar(value)
    for name in reversed(left[1:]):
        written = f"{{{name}: {written}}}"
    member = f"{left[0]}: {written}"
    if node.flow_style:
        at = node.value[-1][1].end_mark.index if node.value else node.start_mark.index + 1
        return f"{text[:at]}{', ' if node.value else ''}{member}{text[at:]}"
    if not node.value:
        raise _by_hand(tuple(left), value)
    first, last = node.value[0][0], node.value[-1][1]
    end = _end(last)
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    returns = "\r" if text[:stop].endswith("\r") else ""
    return f"{text[:stop]}\n{' ' * first.start_mark.column}{member}{returns}{text[stop:]}"


def _end(node: Any) -> int:
    """Where the text of a node ends; a block's end mark stands behind what follows it."""
    if isinstance(node, ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, MappingNode) else last)


def _shared(root: Any, wanted: Any) -> bool:
    """Whether a node stands in more than one place (an anchor that is used)."""
    found, left = 0, [root]
    while left:
        node = left.pop()
        found += node is wanted
        if isinstance(node, ScalarNode):
            continue
        for one in node.value:
            left += one if isinstance(node, MappingNode) else [one]
    return found > 1


def _scalar(value: str | int) -> str:
    plain = isinstance(value, int) or value.isalnum()
    return str(value) if plain else f'"{value}"'


def _by_hand(keys: Sequence[str], value: str | int) -> NotEditable:
    return NotEditable(f"write `{'.'.join(keys)}: {_scalar(value)}` by hand")
