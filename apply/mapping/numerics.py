"""Numbers of `numeric(p,s)` in the binary form of Postgres, straight from their digits.

A Decimal on the way costs more than all the rest of a row's number. Layout: counts of 16 bits (groups of
four decimal digits, weight of the first group, sign, digits behind the point), then the groups.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

from schemas.definitions.column_types import ColumnType

Pack = Callable[[int], bytes]
_NEGATIVE = 0x4000
_head = struct.Struct("!HhHH")
pair = struct.Struct("!HhHHHH").pack
_PAIR = 10_000 * 10_000


def _layout(scale: int) -> tuple[int, int]:
    """The weight of the last group, and what its missing digits multiply a number by."""
    behind = -(-scale // 4)  # groups behind the point
    return -behind, 10 ** (4 * behind - scale)


def packer(scale: int) -> Pack:
    """Packs a number that is given in units of its last digit: 1234 is 12.34 for a scale of 2."""
    last, fill = _layout(scale)
    above = last + 1

    def pack(units: int) -> bytes:
        filled = units * fill
        if 0 <= filled < _PAIR:
            return pair(2, above, 0, scale, filled // 10_000, filled % 10_000)
        groups = []
        rest = abs(filled)
        while rest:
            rest, group = divmod(rest, 10_000)
            groups.append(group)
        count = len(groups)
        sign = _NEGATIVE if units < 0 else 0
        of = (count, last + count - 1, sign, scale)
        return struct.pack(f"!HhHH{count}H", *of, *reversed(groups))

    return pack


def pack_decimal(of: ColumnType) -> Callable[[Decimal], bytes]:
    """Packs what the type's cast returns: a Decimal with its scale."""
    precision, scale = of.arguments
    pack, shift = packer(scale), Context(prec=precision, Emax=999_999, Emin=-999_999).scaleb
    return lambda number: pack(int(shift(number, scale)))


@dataclass(frozen=True, slots=True)
class Plain:
    """How a number of JSON is packed as it is written, for code that has no time for calls.

    `int` of its digits without the point, times `powers[digits behind the point]`, gives units. If they
    are at least 0 and less than `most`, `pair(2, above, 0, scale, units // part, units % part * fill)`
    packs them, else `pack`, which raises ValueError for what the type cannot hold. What is no plain
    number of the type raises ValueError or IndexError on the way.
    """

    powers: Sequence[int]
    most: int
    above: int
    scale: int
    part: int
    fill: int
    pack: Pack


def plain(of: ColumnType) -> Plain:
    """For numbers of this type."""
    precision, scale = of.arguments
    last, fill = _layout(scale)
    least, packed = 10**precision, packer(scale)

    def pack(units: int) -> bytes:
        if not -least < units < least:
            raise ValueError
        return packed(units)

    return Plain(
        powers=[10 ** (scale - digits) for digits in range(scale + 1)],
        most=min(least, _PAIR // fill),
        above=last + 1,
        scale=scale,
        part=10_000 // fill,
        fill=fill,
        pack=pack,
    )


def unpack(data: bytes) -> Decimal:
    """The number, with the digits behind its point that its type has."""
    count, weight, sign, scale = _head.unpack_from(data)
    units = 0
    for group in struct.unpack_from(f"!{count}H", data, _head.size):
        units = units * 10_000 + group
    exponent = 4 * (weight - count + 1)
    units = (
        units * 10 ** (exponent + scale)
        if exponent + scale >= 0
        else units // 10 ** -(exponent + scale)
    )
    return Decimal(((units and 1 if sign else 0), tuple(map(int, str(units))), -scale))
