"""The catalog of a Singer tap: which of its streams and fields are selected. Pure.

Writes the selection both ways that taps look for it: in the metadata, and at the stream itself as
older taps do. What a catalog says beside that is kept as it is.
"""

import copy
from collections.abc import Mapping
from typing import Any

_OWN_ATTRIBUTES = ("tap_stream_id", "stream")


class NoStream(ValueError):
    """The catalog has no such stream; the text names those that it has."""


def streams_of(catalog: object) -> list[dict[str, Any]]:
    """The entries of a catalog. Raises ValueError for JSON that is none."""
    listed = catalog.get("streams") if isinstance(catalog, Mapping) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError("this is no catalog: it has no list `streams` of maps")
    return listed


def entry_of(catalog: object, stream: str) -> dict[str, Any]:
    """The entry of one stream. Raises NoStream, or ValueError for what is no catalog."""
    listed = streams_of(catalog)
    for attribute in _OWN_ATTRIBUTES:
        for one in listed:
            if one.get(attribute) == stream:
                return one
    known = ", ".join(sorted(str(one.get("tap_stream_id", one.get("stream"))) for one in listed))
    raise NoStream(f"the catalog has no stream {stream}; it has {known or 'none'}")


def selected(catalog: object, stream: str, *, fields: bool) -> dict[str, Any]:
    """A copy in which this stream alone is selected; `fields`: with every field that can be.

    Raises NoStream, or ValueError for what is no catalog.
    """
    wanted = entry_of(catalog, stream)
    listed = streams_of(catalog)
    at = next(i for i, one in enumerate(listed) if one is wanted)
    assert isinstance(catalog, Mapping)
    found = {**copy.deepcopy(dict(catalog))}
    for number, entry in enumerate(found["streams"]):
        _select(entry, number == at, fields=fields)
    return found


def _select(entry: dict[str, Any], wanted: bool, *, fields: bool) -> None:
    entry["selected"] = wanted
    listed = entry.get("metadata")
    metadata = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    entry["metadata"] = metadata
    root = next((one for one in metadata if not one.get("breadcrumb")), None)
    if root is None:
        root = {"breadcrumb": [], "metadata": {}}
        metadata.insert(0, root)
    _told(root)["selected"] = wanted
    if not (wanted and fields):
        return
    for one in metadata:
        told = _told(one)
        if one.get("breadcrumb") and told.get("inclusion") != "unsupported":
            told.setdefault("selected", True)


def _told(one: dict[str, Any]) -> dict[str, Any]:
    told = one.get("metadata")
    if not isinstance(told, dict):
        told = one["metadata"] = {}
    return told
