"""Predicates: maps of path to test whose lines must all hold; a list of maps means "or".

A missing field and a null do not `exist`, and no comparison holds of them; `not` is the plain
opposite, so `{x: {not: a}}` holds where x is missing. Texts are compared with texts and numbers with
numbers only: "403" is not 403. The interpreter here is the reference for compiled forms.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache

from schemas.definitions.paths import MISSING, Path

Scalar = str | int | float | bool | None


class Operator(StrEnum):
    """What a test asks of one value."""

    EQUALS = "equals"  # operand: a scalar
    ONE_OF = "one_of"  # operand: a tuple of scalars
    EXISTS = "exists"  # operand: a bool; a null does not exist
    NOT = "not"  # operand: a tuple of tests of which at least one must fail
    LT = "lt"
    LTE = "lte"
    GT = "gt"
    GTE = "gte"
    MATCHES = "matches"  # operand: a regular expression that is searched for


@dataclass(frozen=True, slots=True)
class Test:
    """One operator with its operand."""

    operator: Operator
    operand: "Scalar | tuple[Scalar, ...] | tuple[Test, ...]"

    def holds(self, value: object) -> bool:
        """Whether the value, or MISSING, passes."""
        operand = self.operand
        match self.operator:
            case Operator.EXISTS:
                return (value is not MISSING and value is not None) is operand
            case Operator.NOT:
                tests = operand if isinstance(operand, tuple) else ()
                return not all(isinstance(test, Test) and test.holds(value) for test in tests)
            case Operator.EQUALS:
                return _equal(value, operand)
            case Operator.ONE_OF:
                return isinstance(operand, tuple) and any(_equal(value, one) for one in operand)
            case Operator.MATCHES:
                return isinstance(value, str) and _regex(str(operand)).search(value) is not None
            case _:
                return _compares(self.operator, value, operand)


@dataclass(frozen=True, slots=True)
class Line:
    """One path and the tests that its value must all pass."""

    path: Path
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """True if all lines of any one alternative hold."""

    any_of: tuple[tuple[Line, ...], ...]

    def matches(self, value_of: Callable[[Path], object]) -> bool:
        """Whether it holds; `value_of` gives the value at a path, or MISSING."""
        return any(
            all(test.holds(value_of(line.path)) for line in lines for test in line.tests)
            for lines in self.any_of
        )


def _number(value: object) -> Decimal | int | None:
    """Numbers as what compares exactly: 0.1 read as a float is the 0.1 that was written."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return Decimal(repr(value))
    return value if isinstance(value, int | Decimal) else None


def _equal(value: object, operand: object) -> bool:
    one, other = _number(value), _number(operand)
    if one is not None and other is not None:
        return one == other
    return type(value) is type(operand) and value == operand


def _compares(operator: Operator, value: object, operand: object) -> bool:
    one: Decimal | int | str | None = _number(value)
    other: Decimal | int | str | None = _number(operand)
    if isinstance(value, str) and isinstance(operand, str):
        one, other = value, operand
    if one is None or other is None:
        return False
    less = one < other  # type: ignore[operator]  # both texts or both numbers
    return {
        Operator.LT: less,
        Operator.LTE: less or one == other,
        Operator.GT: not less and one != other,
        Operator.GTE: not less,
    }[operator]


@lru_cache(maxsize=512)
def _regex(text: str) -> re.Pattern[str]:
    return re.compile(text)
