"""Reads `parent`: a stream that is asked for once per record of another stream's listing."""

import dataclasses
from collections.abc import Mapping

from schemas.definitions import known_keys
from schemas.definitions.durations import format_duration
from schemas.definitions.fields import Fields
from schemas.definitions.fingerprint import fingerprint
from schemas.definitions.paths import parse_record_path
from schemas.definitions.predicates import Predicate
from schemas.definitions.problems import closest
from schemas.definitions.read_predicate import read_predicate
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.source import (
    CursorSpec,
    IntervalSpec,
    KeysetSpec,
    ParentSpec,
    PlanSpec,
    SnapshotSpec,
    StreamSpec,
)
from schemas.definitions.tree import Entry, MapNode

_PREFIX = "parent."


def with_parents(
    reader: Reader, streams: Mapping[str, StreamSpec], listed: MapNode
) -> dict[str, StreamSpec]:
    """The streams, those with a `parent` bound to its listing."""
    found = dict(streams)
    for name, spec in streams.items():
        entry = _entry(listed, name)
        if entry is not None:
            found[name] = reader.attempt(
                lambda spec=spec, entry=entry: _bound(reader, spec, entry, streams, listed),  # type: ignore[misc]
                spec,
            )
        elif sent := _sent(spec):
            reader.note(
                listed.entries[name],
                f"{{{_PREFIX}{sent[0]}}} has no value: stream {name} has no parent",
                "Add `parent: {stream: NAME}`.",
            )
    return found


def _entry(listed: MapNode, name: str) -> Entry | None:
    own = listed.get(name)
    if not isinstance(own, MapNode) or own.get("parent") is None:
        return None
    return own.entries["parent"]


def _bound(
    reader: Reader,
    spec: StreamSpec,
    entry: Entry,
    streams: Mapping[str, StreamSpec],
    listed: MapNode,
) -> StreamSpec:
    fields = Fields(reader, reader.map(entry.value, "parent"), "parent", known_keys.PARENT)
    name = fields.need("stream", reader.name, "")
    when = fields.get("when", lambda node: read_predicate(reader, node, parse_record_path), None)
    on = fields.get("on", reader.choice("all", "changed"), "all")
    if not name:
        raise Refused
    listing = _listing(reader, fields, name, streams, listed)
    changed = _changed(fields, spec, streams[name]) if on == "changed" else None
    _check_plans(reader, spec, entry)
    sent = _sent(spec)
    if not sent:
        reader.note(
            entry, "nothing of the parent is sent: all would be asked the same",
            "Send one of its fields, such as `get: /projects/{parent.id}/issues`.",
        )  # fmt: skip
    return _with(spec, ParentSpec(name, listing, when, sent, changed))


def _listing(
    reader: Reader,
    fields: Fields,
    name: str,
    streams: Mapping[str, StreamSpec],
    listed: MapNode,
) -> SnapshotSpec:
    """How the stream of that name lists all of its records."""
    at = fields.entry("stream")
    if name not in listed.entries:
        near = closest(name, list(listed.entries))
        raise reader.refuse(
            at, f'there is no stream "{name}"', f"Did you mean `{near}`?" if near else ""
        )
    if _entry(listed, name) is not None:
        raise reader.refuse(
            at, f"{name} has a parent itself", "Name a stream that is asked for as a whole."
        )
    parent = streams.get(name)
    if parent is None:
        raise Refused  # its own problems come first
    if parent.snapshot is None:
        raise reader.refuse(
            at,
            f"{name} has no snapshot, and its listing tells which parents there are",
            f"Add `snapshot: {{every: 1d}}` to the plan of {name}.",
        )
    return parent.snapshot


def _changed(fields: Fields, spec: StreamSpec, parent: StreamSpec) -> IntervalSpec:
    """How the parents are asked for that changed: as their own stream asks for its changes."""
    reader, at = fields.reader, fields.entry("on")
    changes, own = parent.changes, spec.changes
    if not isinstance(own, IntervalSpec):
        raise reader.refuse(
            at,
            f"{spec.name} has no changes, and its snapshot lists what is below all parents",
            "Write `on: all`, or add `interval:` to its plan.",
        )
    if not isinstance(changes, IntervalSpec) or isinstance(changes, KeysetSpec):
        raise reader.refuse(
            at,
            f"{parent.name} has no `interval` plan, which would tell the parents that changed",
            "Write `on: all`.",
        )
    if "start" not in changes.request.names:
        raise reader.refuse(
            at,
            f"the changes of {parent.name} are asked for without {{start}}: all would be listed",
            "Write `on: all`.",
        )
    if changes.result_cap is not None:
        raise reader.refuse(
            at,
            f"{parent.name} has a `result_cap`, and parents behind it would be passed over",
            "Write `on: all`.",
        )
    for key, theirs, ours in (
        ("settle", changes.settle_us, own.settle_us),
        ("lookback", changes.lookback_us, own.lookback_us),
    ):
        if (theirs or 0) > (ours or 0):
            reader.note(
                at,
                f"the `{key}` of {parent.name} is longer: parents that show late would be missed",
                f"Write `{key}: {format_duration(theirs or 0)}` in the plan of {spec.name}, too.",
            )
    return changes


def _check_plans(reader: Reader, spec: StreamSpec, entry: Entry) -> None:
    if isinstance(spec.changes, KeysetSpec | CursorSpec):
        reader.note(
            entry,
            f"each parent would need a position of its own, which a {spec.changes.plan} plan lacks",
            "Write `interval:` or only `snapshot:`.",
        )


def _sent(spec: StreamSpec) -> tuple[str, ...]:
    """The fields of a parent that the requests of a stream send."""
    names = {name for plan in spec.plans for name in plan.request.names}
    return tuple(sorted(one.removeprefix(_PREFIX) for one in names if one.startswith(_PREFIX)))


def _with(spec: StreamSpec, parent: ParentSpec) -> StreamSpec:
    pages = parent.listing.request.pages
    shifting = pages is not None and not pages.stable
    changes, snapshot = spec.changes, spec.snapshot
    if isinstance(changes, IntervalSpec):
        asked = _hash(changes, parent.asked(changes.plan), parent.when)
        changes = dataclasses.replace(changes, definition_hash=asked)
    if snapshot is not None:
        asked = _hash(snapshot, parent.listing, parent.when)
        snapshot = dataclasses.replace(snapshot, definition_hash=asked, shifting_parents=shifting)
    needed = 1 if snapshot is None else snapshot.listings_needed
    return dataclasses.replace(
        spec,
        changes=changes,
        snapshot=snapshot,
        parent=parent,
        keep_snapshots=max(spec.keep_snapshots, needed),
    )


def _hash(plan: PlanSpec, listing: PlanSpec, when: Predicate | None) -> str:
    """Who is asked belongs to what is asked: other parents begin a new pass."""
    return fingerprint(
        {"asked": plan.definition_hash, "parents": listing.definition_hash, "when": when}
    )
