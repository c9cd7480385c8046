"""Reads lengths of time, where some may be `none` or `auto` and zero is often a mistake."""

from schemas.definitions.durations import parse_duration_us
from schemas.definitions.problems import NotationError
from schemas.definitions.reader import Reader
from schemas.definitions.tree import Node, ScalarNode


def duration_s(text: str) -> float:
    """A duration in seconds."""
    return parse_duration_us(text) / 1_000_000


def positive_us(text: str) -> int:
    """A duration longer than nothing, in microseconds."""
    us = parse_duration_us(text)
    if us == 0:
        raise NotationError("this must be longer than nothing")
    return us


def positive_s(text: str) -> float:
    """A duration longer than nothing, in seconds."""
    return positive_us(text) / 1_000_000


def read_settle_us(reader: Reader, node: Node) -> int | None:
    """How far the end stays behind the server's clock; None for a written `none`."""
    if _is_word(node, "none"):
        return None
    us = reader.parsed(parse_duration_us)(node)
    if us == 0:
        raise reader.refuse(
            node,
            f"settle: {reader.text(node)} loses rows that commit later than stamped",
            "Write `settle: 2s` or more (`gapless probe` measures it), or `settle: none` if there is "
            "only one writer; `check` then lists that risk.",
        )
    return us


def read_lookback_us(reader: Reader, node: Node) -> int | None:
    """The stretch read again for late arrivals; None for `none` and for no length."""
    return None if _is_word(node, "none") else reader.parsed(parse_duration_us)(node) or None


def read_width_us(reader: Reader, node: Node) -> int | None:
    """The first width of an interval; None for `auto`."""
    return None if _is_word(node, "auto") else reader.parsed(positive_us)(node)


def _is_word(node: Node, word: str) -> bool:
    return isinstance(node, ScalarNode) and node.value == word
