"""Predicates: maps of path to test whose lines must all hold; a list of maps means "or"."""

from dataclasses import dataclass
from enum import StrEnum

from schemas.definitions.paths import Path

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


@dataclass(frozen=True, slots=True)
class Line:
    """One path and the tests that its value must all pass."""

    path: Path
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """True if all lines of any one alternative hold."""

    any_of: tuple[tuple[Line, ...], ...]
