"""What answers mean when a definition says nothing: the rules after all of its own."""

from typing import Final

from schemas.definitions.paths import Path, Root
from schemas.definitions.predicates import Line, Operator, Predicate, Scalar, Test
from schemas.definitions.source import Action, ErrorRule

_STATUS: Final = Path(Root.STATUS, (), "status")
_FIRST_ERROR: Final = Path(Root.BODY, ("errors", 0), "body.errors[0]")


def _status(operator: Operator, operand: Scalar | tuple[Scalar, ...], do: Action) -> ErrorRule:
    return ErrorRule(Predicate(((Line(_STATUS, (Test(operator, operand),)),),)), do)


PARTIAL_GRAPHQL: Final = ErrorRule(
    Predicate(
        (
            (
                Line(_STATUS, (Test(Operator.LT, 300),)),
                Line(_FIRST_ERROR, (Test(Operator.EXISTS, True),)),
            ),
        )
    ),
    Action.RETRY,
)
"""GraphQL answers 200 with `errors` beside what it could find: such a page is not whole."""

DEFAULT_ERRORS: Final = (
    _status(Operator.EQUALS, 429, Action.RATE_LIMITED),
    _status(Operator.EQUALS, 401, Action.REFRESH_CREDENTIALS),
    _status(Operator.EQUALS, 408, Action.RETRY),
    _status(Operator.GTE, 500, Action.RETRY),
    _status(Operator.GTE, 300, Action.FAIL),  # also redirects: they may lead to another origin
    _status(Operator.LT, 200, Action.FAIL),
)
"""In this order; an answer that no rule names is a success. A cut body is no answer and is retried."""
