"""Keys of a request may stand at the source, the stream or a plan: the nearest wins, maps merge.

A null removes what stands further out; the `errors` of the nearest are tried first.
"""

from collections.abc import Sequence
from typing import Final

from schemas.definitions.known_keys import REQUEST_KEYS
from schemas.definitions.secrets import KINDS
from schemas.definitions.tree import Entry, ListNode, MapNode, is_null

_DEEP: Final = ("params", "headers", "body", "variables")
_WHOLE: Final = ("body", "variables")


def merge_requests(layers: Sequence[MapNode]) -> MapNode:
    """The request keys of these maps as one, nearest map first. Nulls are gone."""
    entries: dict[str, Entry] = {}
    for key in REQUEST_KEYS:
        found = [layer.entries[key] for layer in layers if key in layer.entries]
        merged = _merge(key, found)
        if merged is not None:
            entries[key] = merged
    return MapNode(_one_method(layers, entries), layers[0].line, layers[0].column)


def merge_maps(near: MapNode, far: MapNode, deep: bool, fold_case: bool = False) -> MapNode:
    """Both maps as one, the near one's members winning; with `deep` also maps within.

    A null stays as a member, so that it also removes what a third map has. `fold_case` takes keys
    that differ in case only for the same.
    """
    fold = str.lower if fold_case else str
    entries = {fold(key): entry for key, entry in far.entries.items()}
    for key, entry in near.entries.items():
        other = entries.get(fold(key))
        entries[fold(key)] = entry
        if deep and other is not None and _mergeable(entry) and _mergeable(other):
            assert isinstance(entry.value, MapNode) and isinstance(other.value, MapNode)
            value = merge_maps(entry.value, other.value, deep=True)
            entries[fold(key)] = Entry(entry.key, value, entry.line, entry.column)
    return MapNode({entry.key: entry for entry in entries.values()}, near.line, near.column)


def nearest(layers: Sequence[MapNode], key: str) -> Entry | None:
    """The entry of a key that is not merged; None if it is nowhere, or null at the nearest."""
    found = next((layer.entries[key] for layer in layers if key in layer.entries), None)
    return None if found is None or is_null(found.value) else found


def _mergeable(entry: Entry) -> bool:
    """A map that is no reference to a secret: those are replaced as a whole."""
    node = entry.value
    return isinstance(node, MapNode) and not (
        len(node.entries) == 1 and set(node.entries) <= set(KINDS)
    )


def _merge(key: str, found: list[Entry]) -> Entry | None:
    """One request key out of the entries that hold it, nearest first."""
    until_null: list[Entry] = []
    for entry in found:
        if is_null(entry.value):
            break
        until_null.append(entry)
    if not until_null:
        return None
    first = until_null[0]
    if key == "errors":
        lists = [entry.value for entry in until_null if isinstance(entry.value, ListNode)]
        if len(lists) == len(until_null):
            rules = tuple(rule for one in lists for rule in one.items)
            return Entry(
                key, ListNode(rules, lists[0].line, lists[0].column), first.line, first.column
            )
        return next(entry for entry in until_null if not isinstance(entry.value, ListNode))
    if key not in (*_DEEP, "pages"):
        return first
    value = first.value
    for entry in until_null[1:]:
        if not isinstance(value, MapNode) or not isinstance(entry.value, MapNode):
            break
        value = merge_maps(value, entry.value, deep=key in _WHOLE, fold_case=key == "headers")
    if isinstance(value, MapNode):
        value = _without_nulls(value, deep=key in _WHOLE)
    return Entry(key, value, first.line, first.column)


def _without_nulls(node: MapNode, deep: bool) -> MapNode:
    entries = {}
    for key, entry in node.entries.items():
        if is_null(entry.value):
            continue
        value = entry.value
        if deep and isinstance(value, MapNode):
            value = _without_nulls(value, deep)
        entries[key] = Entry(entry.key, value, entry.line, entry.column)
    return MapNode(entries, node.line, node.column)


def _one_method(layers: Sequence[MapNode], entries: dict[str, Entry]) -> dict[str, Entry]:
    """A nearer `get` replaces an outer `post`, and the other way round."""
    for layer in layers:
        here = [key for key in ("get", "post") if key in layer.entries]
        if here:
            away = {"get", "post"} - set(here)
            return {key: entry for key, entry in entries.items() if key not in away}
    return entries
