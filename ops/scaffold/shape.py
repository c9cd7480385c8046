"""Asks a tap what its records look like: from its catalog, else from its first SCHEMA message.

Runs the tap with its real configuration and stores nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingest.taps.messages import Lines, SchemaMessage, TapFault, parse
from ingest.taps.poller import output_of
from ingest.taps.process import NotStarted, TapProcess
from ingest.taps.runs import discovery, sync
from ops.scaffold.draft import StreamShape
from schemas.definitions.catalogs import entry_of
from schemas.definitions.programs import SingerSpec
from schemas.definitions.secrets import Secrets
from schemas.definitions.source import LimitsSpec, Tenant


def shape_of(
    spec: SingerSpec, limits: LimitsSpec, tenant: Tenant | None, folder: Path
) -> StreamShape:
    """The shape of the stream that `spec` reads. Raises TapFault or SecretUnavailable."""
    if spec.catalog is not None:
        return shape_in(json.loads(spec.catalog), spec.stream)
    return asyncio.run(_Asking(spec, limits, tenant, folder).shape())


def shape_in(catalog: object, stream: str) -> StreamShape:
    """What a catalog says of one stream. Raises ValueError if it has no such stream."""
    entry = entry_of(catalog, stream)
    told = _root(entry)
    key = entry.get("key_properties") or told.get("table-key-properties") or ()
    marks = told.get("valid-replication-keys") or (None,)
    bookmark = entry.get("replication_key") or told.get("replication-key") or marks[0]
    schema = entry.get("schema")
    return StreamShape(schema if isinstance(schema, Mapping) else {}, tuple(key), bookmark)


def _root(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    for one in entry.get("metadata") or ():
        if isinstance(one, Mapping) and not one.get("breadcrumb"):
            found = one.get("metadata")
            return found if isinstance(found, Mapping) else {}
    return {}


class _Asking:
    def __init__(
        self, spec: SingerSpec, limits: LimitsSpec, tenant: Tenant | None, folder: Path
    ) -> None:
        self._spec, self._limits, self._tenant, self._folder = spec, limits, tenant, folder
        self._secrets = Secrets(folder=folder)

    async def shape(self) -> StreamShape:
        try:
            return shape_in(json.loads(await self._catalog()), self._spec.stream)
        except (TapFault, ValueError):
            return await self._first_schema()  # not every tap can discover

    async def _catalog(self) -> bytes:
        start = discovery(self._spec, self._tenant, self._folder, self._secrets.get)
        tap = await TapProcess.started(start)
        try:
            return await output_of(tap, self._spec, self._limits.body_max_bytes)
        finally:
            await tap.end()

    async def _first_schema(self) -> StreamShape:
        start = sync(
            self._spec, self._tenant, self._folder, self._secrets.get, state=None, catalog=None
        )
        try:
            tap = await TapProcess.started(start)
        except NotStarted as error:
            raise TapFault(f"no process can be started: {error}", "room for processes") from None
        lines, seen = Lines(self._limits.body_max_bytes), set[str]()
        try:
            while chunk := await tap.read(self._spec.hang_s):
                for line in lines.feed(chunk):
                    message = parse(line)
                    if not isinstance(message, SchemaMessage):
                        continue
                    if message.stream == self._spec.stream:
                        return _shape(message)
                    seen.add(message.stream)
        except TimeoutError:
            raise TapFault(
                f"the tap said nothing for {self._spec.hang_s:g} s", "a longer `hang`"
            ) from None
        finally:
            await tap.end()
        raise TapFault(
            f"the tap sent no SCHEMA of {self._spec.stream}"
            + (f"; it has {', '.join(sorted(seen))}" if seen else ""),
            "`stream:` as the tap names it; what it says: " + " | ".join(tap.said()[-3:]),
        )


def _shape(message: SchemaMessage) -> StreamShape:
    marks = message.bookmark_properties
    return StreamShape(
        json.loads(message.schema), message.key_properties, marks[0] if marks else None
    )
