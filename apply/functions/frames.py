"""What a worker and the process of a function say to each other: messages behind their length.

No value is trusted: what is no message raises, whoever wrote it into the pipe.
"""

from __future__ import annotations

import struct
from typing import Any, Literal

import msgspec

_LENGTH = struct.Struct("!I")
FRAME_MAX = 64 * 1024 * 1024
"""No message is larger, in bytes: a page of the log is far smaller, and so is a row."""


class Begin(msgspec.Struct, tag=True, array_like=True):
    """The first message: which function, where modules are looked for, how much it may hold.
    `parent`: the process id of its leash."""

    module: str
    name: str
    places: list[str]
    memory_bytes: int
    parent: int


class Call(msgspec.Struct, tag=True, array_like=True):
    """Records to make rows of; each is answered by one message, in order. `number`: of this call."""

    number: int
    records: list[bytes]
    observed: dict[str, Any]


class Ready(msgspec.Struct, tag=True, array_like=True):
    """The function was found; or why not."""

    fault: str | None = None


class Answer(msgspec.Struct, tag=True, array_like=True):
    """One record: a row as JSON text, or none. `memory`: there was not enough of it.

    `call`, `at`: the call that it answers, and the position of its record there. A function that
    forks answers twice, and no row may be taken for that of another record.
    """

    kind: Literal["row", "ignored", "failed", "memory"]
    row: bytes = b""
    detail: str = ""
    call: int = 0
    at: int = 0


Message = Begin | Call | Ready | Answer
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class BadFrame(Exception):
    """The pipe holds something that is no message."""


def packed(message: Message) -> bytes:
    """The bytes of one message."""
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


class Unpacker:
    """Cuts what comes out of a pipe into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def next(self) -> Message | None:
        """The next whole message; None: more has to come. Raises BadFrame."""
        if len(self._data) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._data)
        if size > FRAME_MAX:
            raise BadFrame("a message that is too large")
        end = _LENGTH.size + size
        if len(self._data) < end:
            return None
        data = bytes(self._data[_LENGTH.size : end])
        del self._data[:end]
        try:
            return _decode(data)
        except msgspec.MsgspecError as error:
            raise BadFrame(str(error)) from None
