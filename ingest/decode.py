"""A body as JSON: all of it, or one value with nothing kept of its neighbours. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from ingest.bounds import check_values
from schemas.definitions.paths import MISSING, Step, find


def parsed(body: bytes) -> Any:
    """The body as JSON, None if it is none: for paths and rules; records are split from the bytes.

    As tolerant as the splitter: a NaN or a bad byte beside a token must not hide the token. Bytes
    that are no UTF-8 become lone surrogates, so that whoever keeps a value can tell. Whole numbers
    stay exact, however long: tokens go back unchanged. Raises TooMany for more values than can be held.
    """
    content = body[3:] if body[:3] == b"\xef\xbb\xbf" else body
    check_values(content)
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return json.loads(content.decode("utf-8", "surrogateescape"), strict=False)
    except (ValueError, RecursionError):
        return None


def value_at(body: bytes, steps: Sequence[Step]) -> object:
    """What stands at the path, or MISSING; as `find` of the decoded body says it.

    Raises TooMany where more values would have to be decoded than can be held.
    """
    raw: bytes | msgspec.Raw = body
    for number, step in enumerate(steps):
        if not isinstance(step, str):
            return find(tuple(steps[number:]), parsed(bytes(memoryview(raw))))
        try:
            member: msgspec.Raw | msgspec.UnsetType = seeker(step).decode(raw).value
        except msgspec.ValidationError:
            return MISSING
        except (msgspec.DecodeError, RecursionError):
            return find(tuple(steps), parsed(body))
        if isinstance(member, msgspec.UnsetType):
            return MISSING
        raw = member
    return parsed(bytes(memoryview(raw)))


@cache
def seeker(name: str) -> msgspec.json.Decoder[Any]:
    """Reads one member of an object, as it stands there, and skips the others."""
    field = ("value", msgspec.Raw, msgspec.UNSET)
    return msgspec.json.Decoder(msgspec.defstruct("Sought", [field], rename={"value": name}))
