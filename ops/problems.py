"""Expected errors as one message that says what to do next, with the exit code of the contract.

What is not expected here is a fault of the program: it keeps its traceback and exits with 70.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from schemas.settings import Settings

STACK = Path(".gapless")
"""Where `gapless up` keeps the local stack of the folder that commands are started in."""
FINDING = 1
USAGE = 2
UNREACHABLE = 3
REFUSED = 4
INTERNAL = 70


@dataclass(frozen=True, slots=True)
class Problem:
    """What is printed to standard error, and the exit code."""

    message: str
    exit_code: int


class BadSettings(Exception):
    """An environment variable or option cannot be used; says which and why."""


class Stop(Exception):
    """A verb ends with this message and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.problem = Problem(message, exit_code)


def explain(error: BaseException, settings: Settings | None) -> Problem | None:
    """What to say about `error`; None for what is not expected."""
    if isinstance(error, Stop):
        return error.problem
    if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
        if settings is not None and settings.metrics_port and error.filename is None:
            return Problem(
                f"metrics cannot be served on GAPLESS_METRICS_PORT={settings.metrics_port}: "
                f"{error.strerror}. Name a free port, one for each process.",
                REFUSED,
            )
    for link in _chain(error):
        found = _own(link) or _postgres(link, settings) or _kafka(link, settings)
        if found is not None:
            return found
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it, causes last."""
    found = [error]
    while found[-1].__cause__ is not None:
        found.append(found[-1].__cause__)
    return found


def _own(error: BaseException) -> Problem | None:
    from ops.failpoints import BadFailpoints
    from ops.migrate import MigrationRefused
    from ops.relay.answers import ReceiverAway
    from schemas.definitions.problems import DefinitionError
    from schemas.definitions.secrets import SecretUnavailable
    from schemas.log.config import BadKafkaConfig

    if isinstance(error, DefinitionError | BadSettings | BadKafkaConfig):
        return Problem(str(error), USAGE)
    if type(error).__module__.startswith("apply."):
        return _apply(error)
    if isinstance(error, SecretUnavailable):
        return Problem(f"{error}\nSet it for this command, too.", USAGE)
    if isinstance(error, ReceiverAway):
        return Problem(f"Events cannot be published. {error}", UNREACHABLE)
    if isinstance(error, BadFailpoints):
        return Problem(f"GAPLESS_FAILPOINTS: {error}", USAGE)
    if isinstance(error, MigrationRefused):
        return Problem(str(error), REFUSED)
    return None


def _apply(error: BaseException) -> Problem | None:
    """Refusals and pauses of stage 2, where a verb meets them."""
    from apply.faults import NotPrepared, SinkFault
    from apply.functions.process import FunctionUnavailable
    from apply.pass_over import PassFailed
    from apply.replay_report import ReplayRefused

    if isinstance(error, NotPrepared | ReplayRefused):
        return Problem(str(error), REFUSED)
    if isinstance(error, FunctionUnavailable):
        return Problem(
            f"{error}\nPut its module into the folder of definitions, or install it here.", USAGE
        )
    if isinstance(error, SinkFault) and error.__cause__ is None:
        return Problem(f"Postgres cannot take anything now: {error}", UNREACHABLE)
    if isinstance(error, PassFailed):
        return Problem(f"{error}\nStart it again: it goes on where it was.", UNREACHABLE)
    return None


def _postgres(error: BaseException, settings: Settings | None) -> Problem | None:
    import psycopg
    from psycopg import errors

    if not isinstance(error, psycopg.Error):
        return None
    where = without_password(settings.postgres) if settings else "Postgres"
    if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName | errors.UndefinedColumn):
        return Problem(
            f"{where} lacks what this version of Gapless needs ({_first_line(error)}).\n"
            "Run `gapless migrate` first.",
            REFUSED,
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return Problem(f"{where}: {_first_line(error)}. Grant it to this account.", UNREACHABLE)
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        # what the parser says of it may quote a password
        return Problem(
            "GAPLESS_POSTGRES is no connection string. Write it as "
            "postgresql://user@host:5432/database; a password may stand in PGPASSWORD.",
            USAGE,
        )
    text = str(error)
    if "authentication failed" in text or "no password supplied" in text:
        return Problem(
            f"{where} refuses this user or password.\n"
            "Set GAPLESS_POSTGRES, or PGPASSWORD beside it.",
            UNREACHABLE,
        )
    if "does not exist" in text and "database" in text:
        return Problem(f"{where}: {_first_line(error)}.\nCreate it with createdb.", UNREACHABLE)
    if isinstance(error, psycopg.OperationalError):
        return Problem(
            stopped_stack(settings, "postgres")
            or f"Postgres at {where} cannot be reached: {_first_line(error)}.\n"
            "Is it running? `gapless up` starts a local one; GAPLESS_POSTGRES names another.",
            UNREACHABLE,
        )
    return None


def _kafka(error: BaseException, settings: Settings | None) -> Problem | None:
    from confluent_kafka import KafkaError, KafkaException

    from ops.facts.log import KafkaUnreachable, TopicsMissing
    from schemas.log.reader import LogUnavailable

    where = settings.kafka if settings else "Kafka"
    if isinstance(error, TopicsMissing):
        return Problem(f"{error}\nRun `gapless topics` first.", REFUSED)
    if isinstance(error, KafkaUnreachable):
        return Problem(
            stopped_stack(settings, "kafka")
            or f"Kafka at {where} cannot be reached: {error}.\n"
            "Is it running? `gapless up` starts a local one; GAPLESS_KAFKA names another.",
            UNREACHABLE,
        )
    if isinstance(error, LogUnavailable) and error.__cause__ is None:
        return Problem(f"Kafka at {where}: {error}", UNREACHABLE)
    if not isinstance(error, KafkaException):
        return None
    fault = error.args[0] if error.args else None
    if not isinstance(fault, KafkaError):
        return Problem(f"Kafka at {where}: {error}", UNREACHABLE)
    if fault.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return Problem(f"Kafka at {where}: {fault.str()}.\nRun `gapless topics` first.", REFUSED)
    return Problem(f"Kafka at {where}: {fault.str()} ({fault.name()})", UNREACHABLE)


def stopped_stack(settings: Settings | None, server: str) -> str | None:
    """What to do where `server` (`kafka` or `postgres`) is that of this folder's stack, which does
    not run: then its address is not known, and that of the settings is nobody's.
    """
    from ops.stack.folder import stopped

    if settings is None or not stopped(STACK):
        return None
    if getattr(settings, server) != type(settings).model_fields[server].default:
        return None
    variable = f"GAPLESS_{server.upper()}"
    return (
        f"The local stack of this folder ({STACK}) is not running: `gapless up`.\n"
        f"Another server than its own is named by {variable}."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def without_password(dsn: str) -> str:
    """A connection string that may be shown."""
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return "Postgres"
    if not parts.scheme:
        kept = [word for word in dsn.split() if not word.startswith("password=")]
        return " ".join(kept)
    if parts.password is None:
        return dsn
    user = f"{parts.username}@" if parts.username else ""
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit(parts._replace(netloc=f"{user}{host}{port}"))
