"""Writes what a probe proved into the source's file, and nothing else.

Each edit must say exactly what was meant, and the file must be valid afterwards; else it stays.
"""

from __future__ import annotations

import difflib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.probe.edit import Keys, NotEditable, with_key
from ops.probe.run import Probed, Report
from schemas.definitions.load import load_file
from schemas.definitions.tree import ListNode, MapNode, Node, read_tree


@dataclass(slots=True)
class Fixed:
    """`diff` of the file, empty if nothing was written; `by_hand`: what could not be written."""

    diff: str = ""
    by_hand: list[str] = field(default_factory=list)


def fix(report: Report, path: Path, shown: str) -> Fixed:
    """Write every proven key of every stream. `shown` names the file in the diff."""
    before = path.read_bytes().decode("utf-8-sig")
    text, fixed = before, Fixed()
    for one in report.streams:
        for keys, value in _wanted(one, _meaning(before)):
            try:
                text = _checked(text, keys, value)
            except NotEditable as error:
                fixed.by_hand.append(f"{one.partition_id}: {error}")
    if text == before:
        return fixed
    _replace(path, text)
    faults = [one for one in load_file(path).problems if one.severity == "error"]
    if faults:
        _replace(path, before)
        said = "\n".join(map(str, faults))
        fixed.by_hand.append(f"nothing was written, since the file would not be valid:\n{said}")
        return fixed
    fixed.diff = "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True), text.splitlines(keepends=True), shown, shown
        )
    )
    return fixed


def _wanted(one: Probed, tree: Any) -> list[tuple[Keys, str | int]]:
    """Each proven key with its place in the file."""
    return [
        (_place(tree, one.stream.name, plan, keys), value)
        for plan, finding in one.findings
        for keys, value in finding.write.items()
    ]


def _place(tree: Any, stream: str, plan: str, keys: Keys) -> Keys:
    """At the plan, where it is nearest and speaks of nothing else; `pages` of a stream with one
    plan where they stand.
    """
    own = tree["streams"].get(stream) or {}
    plans = own.get("plan") or {}
    if keys[0] == "pages" and isinstance(own.get("pages"), dict) and len(plans) == 1:
        if not isinstance((plans.get(plan) or {}).get("pages"), dict):
            return ("streams", stream, *keys)
    return ("streams", stream, "plan", plan, *keys)


def _meaning(text: str) -> Any:
    """What a file says, as plain data."""
    root = read_tree(text).root
    return None if root is None else _plain(root)


def _plain(node: Node) -> Any:
    if isinstance(node, MapNode):
        return {key: _plain(entry.value) for key, entry in node.entries.items()}
    return [_plain(item) for item in node.items] if isinstance(node, ListNode) else node.value


def _checked(text: str, keys: Keys, value: str | int) -> str:
    """The edited text, if it says what the old one said, plus this key."""
    after = with_key(text, keys, value)
    wanted, found = _meaning(text), _meaning(after)
    at = wanted
    for key in keys[:-1]:
        at[key] = at.get(key) or {}
        at = at[key]
    at[keys[-1]] = value
    if wanted != found:
        raise NotEditable(f"write `{'.'.join(keys)}: {value}` by hand")
    return after


def _replace(path: Path, text: str) -> None:
    """At once or not at all; the file keeps its mode."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, path.stat().st_mode & 0o777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
