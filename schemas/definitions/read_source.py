"""Reads a source's file into a SourceSpec whose plans carry everything they need."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from schemas.definitions import known_keys
from schemas.definitions.fields import Fields
from schemas.definitions.merging import merge_maps, nearest
from schemas.definitions.placeholder_checks import check_placeholders, check_tenant_fields
from schemas.definitions.programs import SingerSpec
from schemas.definitions.read_access import NO_ORIGIN, read_auth, read_base_url, read_limits
from schemas.definitions.read_lengths import positive_s
from schemas.definitions.read_parent import with_parents
from schemas.definitions.read_plans import read_cursor, read_interval, read_keyset, read_snapshot
from schemas.definitions.read_programs import read_program, refuse_snapshot
from schemas.definitions.read_schedule import check_runs, read_schedule
from schemas.definitions.read_values import find_secrets
from schemas.definitions.reader import Reader
from schemas.definitions.secrets import Reference
from schemas.definitions.source import (
    CursorSpec,
    IntervalSpec,
    LimitsSpec,
    ScheduleSpec,
    SnapshotSpec,
    SourceSpec,
    StreamSpec,
)
from schemas.definitions.templates import Template
from schemas.definitions.tenants import read_tenants
from schemas.definitions.tree import Entry, MapNode, Node, ScalarNode, is_null

T = TypeVar("T")
_EMPTY = MapNode({}, 1, 1)
_CHANGES = ("interval", "keyset", "cursor", "python", "singer")


def read_source(reader: Reader, root: MapNode, folder: Path) -> SourceSpec | None:
    """The source of one file, or None if anything is wrong with it; `folder` is where files start."""
    named = root.get("source")
    find_secrets(reader, root, named.raw if isinstance(named, ScalarNode) else "")
    fields = Fields(reader, root, "a source", known_keys.SOURCE)
    check_version(fields)
    name = fields.need("source", reader.name, "source")
    tenants = fields.get("tenants", lambda node: read_tenants(reader, node, folder), None)
    streams: dict[str, StreamSpec] = {}
    listed = fields.need("streams", lambda node: reader.map(node, "streams"), _EMPTY)
    for entry in listed.entries.values():
        stream = reader.attempt(partial(_stream, reader, root, name, entry, folder), None)
        if stream is not None:
            streams[stream.name] = stream
    streams = with_parents(reader, streams, listed)
    mode = fields.get("mode", lambda node: _mode(reader, node), "live")
    mappings = root.get("mappings")
    spec = SourceSpec(
        name=name,
        base_url=_origin(reader, fields, streams),
        auth=fields.get("auth", lambda node: read_auth(reader, node), None),
        tenants=tenants,
        limits=fields.get("limits", lambda node: read_limits(reader, node), LimitsSpec()),
        streams=streams,
        mappings=tuple(mappings.entries) if isinstance(mappings, MapNode) else (),
        mode=mode,
        file=reader.file,
    )
    check_tenant_fields(reader, root, spec)
    return None if reader.failed else spec


def check_version(fields: Fields) -> None:
    """Every file says which version of the language it is written in."""

    def read(node: Node) -> int:
        if isinstance(node, ScalarNode) and node.value == 1:
            return 1
        raise fields.reader.refuse(
            node, "this version reads version 1 of the language", "Write `gapless: 1`."
        )

    fields.need("gapless", read, 1, "Write `gapless: 1` on the first line.")


def _mode(reader: Reader, node: Node) -> str:
    mode = reader.choice("live", "shadow")(node)
    if mode == "shadow":
        raise reader.refuse(
            node,
            "`mode: shadow` is part of the language but not of this version",
            "Write `mode: live`; to page nobody, leave its partition ids out in the alerts' routes,"
            " or run it apart, with another GAPLESS_PREFIX and database.",
        )
    return mode


def _origin(
    reader: Reader, fields: Fields, streams: Mapping[str, StreamSpec]
) -> Template | Reference:
    """Taps know themselves where to ask; a source that has nothing else needs no origin."""
    asked = any(not isinstance(stream.program, SingerSpec) for stream in streams.values())
    if asked or not streams:
        return fields.need("base_url", lambda node: read_base_url(reader, node), NO_ORIGIN)
    return fields.get("base_url", lambda node: read_base_url(reader, node), NO_ORIGIN)


def _stream(reader: Reader, root: MapNode, source: str, entry: Entry, folder: Path) -> StreamSpec:
    name = reader.name(ScalarNode(entry.key, entry.key, entry.line, entry.column))
    what = f"stream {name}"
    own = _EMPTY if is_null(entry.value) else reader.map(entry.value, what)
    Fields(reader, own, what, known_keys.STREAM)
    plans = _plans(reader, root, own, entry, what)
    changes = next((plans[key] for key in _CHANGES if key in plans), None)
    layers = [own, root] if changes is None else [changes, own, root]
    spec = StreamSpec(
        source=source,
        name=name,
        changes=_changes(reader, plans, own, root, name),
        snapshot=_snapshot(reader, plans, own, root, name),
        schedule=_get(
            reader, layers, "schedule", lambda node: read_schedule(reader, node), ScheduleSpec()
        ),
        upstream_retention_s=_get(
            reader, layers, "upstream_retention", reader.parsed(positive_s), None
        ),
        deletes=_get(reader, layers, "deletes", reader.choice("shown", "not_shown"), "not_shown"),
        keep_snapshots=1,
        program=read_program(reader, plans, [own, root], name, folder),
    )
    _get(reader, layers, "keep_pages", lambda node: _forever(reader, node), None)
    _check_stream(reader, spec, plans, entry)
    check_runs(reader, spec, nearest(layers, "schedule"), entry)
    check_placeholders(reader, own, plans, what)
    return _with_kept_snapshots(reader, spec, plans, layers)


def _plans(
    reader: Reader, root: MapNode, own: MapNode, entry: Entry, what: str
) -> dict[str, MapNode]:
    """The stream's plans by name, merged with those that the source gives to all of its streams."""
    near, far = own.get("plan"), root.get("plan")
    maps = [reader.map(node, "plan") for node in (near, far) if node is not None]
    if not maps:
        raise reader.refuse(
            entry,
            f"{what} needs `plan:`",
            "Write one of `interval:`, `keyset:`, `cursor:`, `python:`, `singer:` for changes and/or"
            " `snapshot:` below it.",
        )
    merged = maps[0] if len(maps) == 1 else merge_maps(maps[0], maps[1], deep=True)
    fields = Fields(reader, merged, f"the plan of {what}", known_keys.PLAN)
    plans = {
        key: reader.map(fields.entry(key).value, key)
        for key in known_keys.PLAN.keys
        if fields.has(key)
    }
    changes = [key for key in _CHANGES if key in plans]
    if len(changes) > 1:
        reader.note(
            fields.entry(changes[1]),
            f"{what} has two plans for its changes",
            "Keep one of them."
            if len(maps) == 1
            else "Keep one of them: `interval: null` takes out one that stands at the source.",
        )
    refuse_snapshot(reader, plans, what)
    if not plans and not any(fields.has(key) for key in known_keys.PLAN.unsupported):
        reader.note(
            entry,
            f"{what} has no plan",
            "Write `interval:`, `keyset:`, `cursor:`, `python:`, `singer:` or `snapshot:` below"
            " `plan:`.",
        )
    return plans


def _changes(
    reader: Reader, plans: dict[str, MapNode], own: MapNode, root: MapNode, name: str
) -> IntervalSpec | CursorSpec | None:
    if "interval" in plans:
        return read_interval(reader, [plans["interval"], own, root], f"the interval plan of {name}")
    if "keyset" in plans:
        return read_keyset(reader, [plans["keyset"], own, root], f"the keyset plan of {name}")
    if "cursor" in plans:
        return read_cursor(reader, [plans["cursor"], own, root], f"the cursor plan of {name}")
    return None


def _snapshot(
    reader: Reader, plans: dict[str, MapNode], own: MapNode, root: MapNode, name: str
) -> SnapshotSpec | None:
    if "snapshot" not in plans:
        return None
    return read_snapshot(reader, [plans["snapshot"], own, root], f"the snapshot of {name}")


def _get(
    reader: Reader, layers: Sequence[MapNode], key: str, read: Callable[[Node], T], default: T
) -> T:
    """A key of group 3 from the nearest map that has it."""
    entry = nearest(layers, key)
    return default if entry is None else reader.attempt(lambda: read(entry.value), default)


def _forever(reader: Reader, node: Node) -> None:
    """Nothing takes pages out of the log by age: a time that would not be kept is refused."""
    if not (isinstance(node, ScalarNode) and node.value == "forever"):
        raise reader.refuse(
            node,
            "a time after which pages are removed is part of the language but not of this version",
            "Write `keep_pages: forever`, or leave it out: all pages stay in the log.",
        )


def _with_kept_snapshots(
    reader: Reader, spec: StreamSpec, plans: dict[str, MapNode], layers: list[MapNode]
) -> StreamSpec:
    """`keep_snapshots` may stand at the snapshot too; two are kept where absence needs two."""
    needed = 1 if spec.snapshot is None else spec.snapshot.listings_needed
    if "snapshot" in plans:
        layers = [plans["snapshot"], *layers]
    kept = _get(reader, layers, "keep_snapshots", reader.at_least(1), needed)
    entry = nearest(layers, "keep_snapshots")
    if kept < needed and entry is not None:
        reader.note(
            entry.value,
            "absence from this listing is only proven by two complete snapshots",
            "Write `keep_snapshots: 2`, or `stable: true` in `pages` if the listing cannot shift.",
        )
    return dataclasses.replace(spec, keep_snapshots=kept)


def _check_stream(
    reader: Reader, spec: StreamSpec, plans: dict[str, MapNode], entry: Entry
) -> None:
    interval = spec.changes
    if (
        isinstance(interval, IntervalSpec)
        and "start" not in plans[interval.plan].entries
        and spec.upstream_retention_s is None
    ):
        reader.note(
            plans[interval.plan],
            f"nothing says where the past of {spec.name} begins",
            "Write `start: 2024-01-01`, or `upstream_retention: 30d` if the provider forgets.",
        )
    if spec.deletes == "not_shown" and spec.snapshot is None and "snapshot" not in plans:
        reader.warn(
            entry,
            f"deletes of {spec.name} are never noticed",
            "Write `deletes: shown` if its changes show them."
            if "singer" in plans
            else "Add `snapshot: {every: 1d}` to its `plan`, or write `deletes: shown` if its changes"
            " show them.",
        )
