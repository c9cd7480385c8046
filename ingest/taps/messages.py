"""Lines of a tap's output as messages: cut, read, and refused where they are none. Pure.

The bytes of records and states are kept exactly. A line that cannot be understood may be a record
that something damaged, so it is never passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from ingest import scan


class TapFault(Exception):
    """A run of a tap cannot go on; `unblocked_by` says what would help.

    `lasting`: trying again changes nothing before somebody acts.
    """

    def __init__(self, reason: str, unblocked_by: str, *, lasting: bool = False) -> None:
        super().__init__(reason)
        self.unblocked_by, self.lasting = unblocked_by, lasting


@dataclass(frozen=True, slots=True)
class RecordMessage:
    """One record of one stream; `record` is its JSON as the tap wrote it."""

    stream: str
    record: bytes


@dataclass(frozen=True, slots=True)
class StateMessage:
    """What the tap wants to be given when it goes on from here; None: nothing."""

    value: bytes | None


@dataclass(frozen=True, slots=True)
class SchemaMessage:
    """The shape of a stream's records, as JSON Schema."""

    stream: str
    schema: bytes
    key_properties: tuple[str, ...]
    bookmark_properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OtherMessage:
    """A message that carries no record, such as ACTIVATE_VERSION."""

    type: str


Message = RecordMessage | StateMessage | SchemaMessage | OtherMessage


class Lines:
    """Cuts a stream of bytes into lines of at most `limit_bytes`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in `chunk`, blank ones left out; use it up before the next call.

        Raises TapFault for a line that is too long, once those before it were given.
        """
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._keep(piece)
            line = self.rest()
            if line:
                yield line
        self._keep(rest)

    def rest(self) -> bytes:
        """What came behind the last line end, taken out."""
        line = b"".join(self._parts).strip()
        self._parts, self._size = [], 0
        return line

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit_bytes:
            raise TapFault(
                f"a line of the tap is longer than {self._limit_bytes:,} bytes",
                "a larger `limits: {body_max: …}` at the source",
                lasting=True,
            )
        if piece:
            self._parts.append(piece)


class _Line(msgspec.Struct, gc=False):
    type: str
    stream: str | None = None
    record: msgspec.Raw = msgspec.Raw(b"")
    value: msgspec.Raw = msgspec.Raw(b"")
    schema: msgspec.Raw = msgspec.Raw(b"")
    key_properties: list[str] | None = None
    bookmark_properties: list[str] | None = None


_decode = msgspec.json.Decoder(_Line).decode


def parse(line: bytes) -> Message:
    """The message of one line. Raises TapFault for what is none, and for BATCH."""
    try:
        found = _decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return _tolerant(line)
    keys, marks = found.key_properties or (), found.bookmark_properties or ()
    schema = bytes(found.schema)
    return _message(
        found.type, found.stream, bytes(found.record), bytes(found.value), schema, keys, marks
    )


def _message(
    type_: str,
    stream: str | None,
    record: bytes,
    value: bytes,
    schema: bytes,
    keys: Any,
    marks: Any,
) -> Message:
    kind = type_.upper()  # the specification wants types compared without regard to case
    if kind == "RECORD":
        if stream is None or not record.startswith(b"{"):
            raise _no_message("a RECORD without a stream or a record")
        return RecordMessage(stream, record)
    if kind == "STATE":
        if not value:
            raise _no_message("a STATE without a value")
        return StateMessage(None if value == b"null" else value)
    if kind == "SCHEMA":
        if stream is None or not schema.startswith(b"{"):
            raise _no_message("a SCHEMA without a stream or a schema")
        return SchemaMessage(stream, schema, tuple(keys), tuple(marks))
    if kind == "BATCH":
        raise TapFault(
            "the tap wrote its records into files (BATCH), which are not read",
            "records in the output: take `batch_config` out of `config`",
            lasting=True,
        )
    return OtherMessage(kind)


def _tolerant(line: bytes) -> Message:
    """A line that strict decoding refuses for the sake of one bad value (NaN, bad UTF-8)."""
    try:
        type_, stream = _text(line, "type"), _text(line, "stream")
        if type_ is None:
            raise _no_message("a line that is no message")
        parts = [_raw(line, name) for name in ("record", "value", "schema")]
        keys, marks = _names(line, "key_properties"), _names(line, "bookmark_properties")
    except scan.NotJson:
        raise _no_message("a line that is no message") from None
    return _message(type_, stream, parts[0], parts[1], parts[2], keys, marks)


def _raw(line: bytes, name: str) -> bytes:
    span = scan.locate(line, (name,))
    return b"" if span is None else line[span[0] : span[1]]


def _text(line: bytes, name: str) -> str | None:
    found = _loaded(_raw(line, name))
    return found if isinstance(found, str) else None


def _names(line: bytes, name: str) -> list[str]:
    found = _loaded(_raw(line, name))
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _loaded(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _no_message(what: str) -> TapFault:
    return TapFault(
        f"the tap wrote {what} to its standard output",
        "a tap that writes messages only there, and everything else to its standard error",
    )
