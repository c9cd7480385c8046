"""Unions of half-open stretches `[start, end)` of any ordered values, as streams sorted by start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def union(spans: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Disjoint, maximal stretches of spans that come sorted by start; empty ones are left out."""
    current: tuple[str, str] | None = None
    for start, end in spans:
        if start >= end:
            continue
        if current is None:
            current = (start, end)
        elif start <= current[1]:
            current = (current[0], max(current[1], end))
        else:
            yield current
            current = (start, end)
    if current is not None:
        yield current


def holes(
    spans: Iterable[tuple[str, str]], start: str | None, end: str
) -> Iterator[tuple[str, str]]:
    """What of `[start, end)` no span covers; without a start, from the first span on.

    Spans come sorted by start. Without a start and without a span nothing is known to lack.
    """
    reach = start
    for begin, until in union(spans):
        if reach is None:
            reach = begin
        if begin >= end:
            break
        if begin > reach:
            yield reach, begin
        reach = max(reach, until)
    if reach is not None and reach < end:
        yield reach, end


def differences(
    left: Iterable[tuple[str, str]], right: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Stretches of two unions that are not the same: ("left" or "right", stretch).

    A stretch is named as a whole where it has no equal on the other side.
    """
    mine, other = union(left), union(right)
    a, b = next(mine, None), next(other, None)
    while a is not None or b is not None:
        if a is not None and a == b:
            a, b = next(mine, None), next(other, None)
        elif b is None or (a is not None and a <= b):
            assert a is not None
            yield "left", a
            a = next(mine, None)
        else:
            yield "right", b
            b = next(other, None)
