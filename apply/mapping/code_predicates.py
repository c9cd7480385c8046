"""Generated code for predicates: conditions over values that were fetched before."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from apply.mapping.code import Writer, fetch
from schemas.definitions.paths import Path, Root, find
from schemas.definitions.predicates import Operator, Predicate, Scalar, Test


def predicate_code(writer: Writer, predicate: Predicate) -> str:
    """A condition that holds where the predicate does; writes the lines that fetch its values."""
    alternatives = []
    for lines in predicate.any_of:
        tests = [test for line in lines for test in _line(writer, line.path, line.tests)]
        alternatives.append("(" + (" and ".join(tests) or "True") + ")")
    return " or ".join(alternatives) or "False"


def _line(writer: Writer, path: Path, tests: tuple[Test, ...]) -> list[str]:
    """Conditions of one line. A missing member and a null are told apart where it matters."""
    if path.root is Root.OBSERVATION or any(map(minds_null, tests)):
        general = writer.name("test", _general(path, tests))
        return [f"{general}(r, e, observed)"]
    found = fetch(writer, path.root, path.steps)
    name = f"p{len(writer.lines)}"
    writer.line(f"{name} = {found}")
    if writer.may_be_unset(path.root, path.steps):
        writer.line(f"if {name} is UNSET: {name} = None")
    return [_test(writer, test, name) for test in tests]


def _general(path: Path, tests: tuple[Test, ...]) -> Callable[[object, object, Any], bool]:
    def general(record: object, entity: object, observed: Any) -> bool:
        if path.root is Root.OBSERVATION:
            value = observed[str(path.steps[0])]
        else:
            value = find(path.steps, record if path.root is Root.RECORD else entity)
        return all(test.holds(value) for test in tests)

    return general


def minds_null(test: Test) -> bool:
    """Whether a test tells a null from a missing member, which the fetched values do not."""
    operands = test.operand if isinstance(test.operand, tuple) else (test.operand,)
    return any(minds_null(one) if isinstance(one, Test) else one is None for one in operands)


def _test(writer: Writer, test: Test, name: str) -> str:
    operand = test.operand
    match test.operator:
        case Operator.EXISTS:
            return f"{name} is {'not ' if operand else ''}None"
        case Operator.EQUALS if not isinstance(operand, tuple):
            return _equal(writer, operand, name)
        case Operator.ONE_OF if isinstance(operand, tuple):
            every = [_equal(writer, one, name) for one in operand if not isinstance(one, Test)]
            return "(" + (" or ".join(every) or "False") + ")"
        case Operator.NOT if isinstance(operand, tuple):
            inner = [_test(writer, one, name) for one in operand if isinstance(one, Test)]
            return "not (" + (" and ".join(inner) or "True") + ")"
        case Operator.MATCHES:
            search = writer.name("search", re.compile(str(operand)).search)
            return f"({name}.__class__ is str and {search}({name}) is not None)"
        case _:
            return f"{writer.name('holds', test.holds)}({name})"


def _equal(writer: Writer, operand: Scalar, name: str) -> str:
    if isinstance(operand, bool):
        return f"{name} is {operand}"
    if isinstance(operand, str):
        return f"{name} == {operand!r}"
    exact = Decimal(repr(operand)) if isinstance(operand, float) else operand
    return f"({name}.__class__ is not bool and {name} == {writer.name('N', exact)})"
