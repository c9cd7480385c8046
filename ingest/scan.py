"""A tolerant scanner of JSON text: finds values by their brackets and strings, and checks nothing else.

Iterative, so that no nesting is too deep; never decodes, so that no byte is too bad.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

_SPACE = re.compile(rb"[ \t\r\n]*")
# Possessive: a string of megabytes is matched in one stride, with nothing kept to go back to.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BARE = re.compile(rb"[-+.0-9A-Za-z]+")
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]|"', re.DOTALL)
_PAIRS = {ord("{"): ord("}"), ord("["): ord("]")}

Span = tuple[int, int]


class NotJson(ValueError):
    """Brackets or strings do not close, or something stands where it cannot."""


def locate(text: bytes, steps: Sequence[str | int]) -> Span | None:
    """Where the value at a path begins and ends; None if there is none."""
    start = skip_space(text, 0)
    end = value_end(text, start)
    if skip_space(text, end) != len(text):
        raise NotJson(f"something follows the value, at byte {end}")
    for step in steps:
        found = _member(text, start, step) if isinstance(step, str) else _element(text, start, step)
        if found is None:
            return None
        start, end = found
    return start, end


def value_end(text: bytes, start: int) -> int:
    """The end of the value that begins at `start`."""
    first = text[start : start + 1]
    if first == b'"':
        return _string_end(text, start)
    if first not in (b"{", b"["):
        bare = _BARE.match(text, start)
        if bare is None:
            raise NotJson(f"no value at byte {start}")
        return bare.end()
    expected: list[int] = []
    for found in _STRUCTURE.finditer(text, start):
        token = found[0][0]
        if token == ord('"'):
            if len(found[0]) == 1:
                raise NotJson(f"a string that begins at byte {found.start()} does not end")
        elif token in _PAIRS:
            expected.append(_PAIRS[token])
        elif not expected or expected.pop() != token:
            raise NotJson(f"a bracket closes nothing, at byte {found.start()}")
        elif not expected:
            return found.end()
    raise NotJson(f"a bracket that opens at byte {start} is not closed")


def elements(text: bytes, start: int) -> Iterator[Span]:
    """The elements of the array that begins at `start`."""
    at = skip_space(text, start + 1)
    if text[at : at + 1] == b"]":
        return
    while True:
        end = value_end(text, at)
        yield at, end
        at = skip_space(text, end)
        separator = text[at : at + 1]
        if separator == b"]":
            return
        if separator != b",":
            raise NotJson(f"expected a comma at byte {at}")
        at = skip_space(text, at + 1)


def _members(text: bytes, start: int) -> Iterator[tuple[str, Span]]:
    at = skip_space(text, start + 1)
    if text[at : at + 1] == b"}":
        return
    while True:
        key_end = _string_end(text, at)
        colon = skip_space(text, key_end)
        if text[colon : colon + 1] != b":":
            raise NotJson(f"expected a colon at byte {colon}")
        value = skip_space(text, colon + 1)
        end = value_end(text, value)
        yield _key(text[at:key_end]), (value, end)
        at = skip_space(text, end)
        separator = text[at : at + 1]
        if separator == b"}":
            return
        if separator != b",":
            raise NotJson(f"expected a comma at byte {at}")
        at = skip_space(text, at + 1)


def _member(text: bytes, start: int, name: str) -> Span | None:
    """The last one of that name, as JSON decoders take it."""
    if text[start : start + 1] != b"{":
        return None
    found = None
    for key, span in _members(text, start):
        if key == name:
            found = span
    return found


def _element(text: bytes, start: int, index: int) -> Span | None:
    if text[start : start + 1] != b"[":
        return None
    found = list(elements(text, start))
    return found[index] if -len(found) <= index < len(found) else None


def _key(quoted: bytes) -> str:
    try:
        return str(json.loads(quoted.decode("utf-8", "replace"), strict=False))
    except ValueError:
        return quoted[1:-1].decode("utf-8", "replace")


def _string_end(text: bytes, start: int) -> int:
    found = _STRING.match(text, start)
    if found is None:
        raise NotJson(f"expected a string at byte {start}")
    return found.end()


def skip_space(text: bytes, at: int) -> int:
    """The first byte from `at` on that is no white space."""
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at
