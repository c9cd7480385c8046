"""The frame of a binary COPY around rows that are formed already. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

HEADER = b"PGCOPY\n\xff\r\n\0" + b"\0\0\0\0" + b"\0\0\0\0"
TRAILER = b"\xff\xff"
_CHUNK_ROWS = 200  # psycopg cuts what has more than 128 kB, into copies


def chunks(forms: Iterable[bytes | bytearray]) -> Iterator[bytes]:
    """A whole COPY in pieces to be sent, header and trailer included."""
    every = [HEADER, *forms, TRAILER]
    for start in range(0, len(every), _CHUNK_ROWS):
        yield b"".join(every[start : start + _CHUNK_ROWS])
