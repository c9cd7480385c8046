"""Whose trouble an error of Postgres is: one record's, or the sink's as a whole.

Record faults are isolated and stored; sink faults pause the stage and never become an outcome.
Whatever is not certainly a record's is the sink's: waiting loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import psycopg

from apply.functions.process import FunctionUnavailable
from apply.outcomes import Outcome, Reason, Refusal

_RECORD: dict[str, Reason] = {
    "23503": Reason.FOREIGN_KEY,
    "23505": Reason.UNIQUE,
    "23P01": Reason.UNIQUE,  # exclusion constraint
    "23514": Reason.CHECK,
    "23502": Reason.CHECK,  # not null
    "P0001": Reason.REFUSED_BY_SINK,  # a trigger of the user's said no
    "54000": Reason.REFUSED_BY_SINK,  # an index entry larger than a page
}
_CURED = frozenset((Reason.FOREIGN_KEY, Reason.UNIQUE))
"""What time may cure. A missing parent may still arrive; and who holds a value that must be unique may
have given it up already, in a record of another partition that is applied later."""
_DATA_EXCEPTION = "22"  # class: a value that the type does not take

_TIMEOUTS = ("57014", "55P03")
NO_FUNCTION = "mapping_function"
"""A function of a mapping was there at the start and cannot be started any more."""
TIMED_OUT = ("timed_out", "lock_timeout")
"""Reasons of sink faults that one record alone may be to blame for."""
_PAUSES: dict[str, str] = {
    "53100": "disk_full",
    "53200": "out_of_memory",
    "53300": "too_many_connections",
    "55P03": "lock_timeout",
    "57014": "timed_out",
    "57P01": "shut_down",
    "57P02": "shut_down",
    "57P03": "starting_up",
    "40001": "serialization",
    "40P01": "deadlock",
    "42P01": "missing_table",
    "42703": "missing_column",
    "42804": "changed_column",
    "42883": "changed_column",  # the two sides of a comparison are no longer of one type
    "428C9": "changed_column",  # it is generated now
    "42P10": "missing_key",
    "42501": "missing_privilege",
    "25006": "read_only",
    "28P01": "wrong_password",
    "28000": "not_authorised",
    "3D000": "missing_database",
}


class SinkFault(Exception):
    """The sink cannot take anything now: pause, keep everything, try again.

    `reason` is a label of metrics; `unclear` says that the transaction may have been committed.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def check_filled(error: BaseException, filled: Mapping[str, Collection[str]]) -> None:
    """Raise SinkFault if a column that the mapping does not fill must not be NULL.

    `filled`: the columns that it fills, by table. Somebody has added the other one by hand: every row
    fails, so none of them is to blame.
    """
    if not isinstance(error, psycopg.errors.NotNullViolation):
        return
    column, table = error.diag.column_name, error.diag.table_name
    if column is not None and column not in filled.get(table or "", (column,)):
        raise SinkFault(
            "column_not_filled",
            f"column {column} of {table} is NOT NULL without a default, and no mapping fills it:"
            " give it a default or drop NOT NULL",
        ) from error


def is_of_a_value(error: psycopg.Error) -> bool:
    """Whether a type did not take a value: of one record, if the type is what it should be."""
    return error.sqlstate is not None and error.sqlstate.startswith(_DATA_EXCEPTION)


class NotKept(psycopg.Error):
    """Postgres raised no error, and yet the table does not hold what was written: a trigger that
    returns NULL, or one that changes the key. Of the record that it happens to alone."""


_NOT_KEPT = "a trigger of the table keeps nothing of the row, or changes its key, without an error"


class NotPrepared(Exception):
    """The database lacks what this version needs; the message says which command makes it."""


def refusal(error: BaseException) -> Refusal | None:
    """What an error says about a single record; None if it is the sink's trouble.

    The detail names the constraint and the column, never a value: values may be personal.
    """
    if isinstance(error, NotKept):
        return Refusal(Reason.REFUSED_BY_SINK, _NOT_KEPT, Outcome.QUARANTINED)
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        return None
    state = error.sqlstate
    reason = _RECORD.get(state)
    if reason is None and state.startswith(_DATA_EXCEPTION):
        reason = Reason.REFUSED_BY_SINK
    if reason is None:
        return None
    names = [
        f"{kind} {name}"
        for kind, name in (
            ("constraint", error.diag.constraint_name),
            ("column", error.diag.column_name),
        )
        if name
    ]
    detail = f"SQLSTATE {state}" + (f", {', '.join(names)}" if names else "")
    return Refusal(reason, detail, Outcome.RETRYABLE if reason in _CURED else Outcome.QUARANTINED)


def timed_out(error: BaseException) -> Refusal | None:
    """A time-out as one record's trouble. Only for a record that stands alone: wider is the sink's."""
    if isinstance(error, psycopg.Error) and error.sqlstate in _TIMEOUTS:
        detail = f"SQLSTATE {error.sqlstate}: the row is locked, or a trigger takes too long"
        return Refusal(Reason.TIMED_OUT, detail, Outcome.RETRYABLE)
    return None


def sink_fault(error: BaseException) -> SinkFault:
    """Any other error as the sink's trouble, with a reason that an operator understands."""
    if isinstance(error, SinkFault):
        return error
    if isinstance(error, FunctionUnavailable):
        return SinkFault(NO_FUNCTION, str(error))  # no record is to blame for it either
    if isinstance(error, psycopg.Error):
        text = str(error).strip().splitlines()
        detail = text[0] if text else type(error).__name__
        if error.sqlstate is None:
            return SinkFault("unreachable", detail)
        return SinkFault(_PAUSES.get(error.sqlstate, f"sqlstate_{error.sqlstate}"), detail)
    return SinkFault("internal", f"{type(error).__name__}: {error}")
