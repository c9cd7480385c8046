"""The writer's one connection to Postgres: opened with limits, closed after every sink fault.

Knows nothing of batches. A connection is used by the thread that opened it, by no other.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from apply import dumpers

Connection = psycopg.Connection[tuple[Any, ...]]

CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_MS = 10_000
_LINK_TIMEOUT_MS = 20_000
_IDLE_IN_TRANSACTION_MS = 60_000


def connect(dsn: str, role: str) -> Connection:
    """A connection in autocommit mode (transactions are said), which waits for no lock for ever.

    A half-open link is noticed by TCP, a transaction forgotten by a stopped process ends by itself.
    Raises psycopg.OperationalError.
    """
    options = (
        f"-c lock_timeout={LOCK_TIMEOUT_MS}"
        f" -c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION_MS}"
        " -c TimeZone=UTC -c client_min_messages=warning"
        # the stage is small and without statistics, and so may a new table be: rows are looked up one
        # by one by their key, never by several indexes at once
        " -c enable_hashjoin=off -c enable_mergejoin=off -c enable_bitmapscan=off"
    )
    full = make_conninfo(
        dsn,
        application_name=f"gapless {role}",
        connect_timeout=CONNECT_TIMEOUT_S,
        options=options,
        keepalives=1,
        keepalives_idle=5,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=_LINK_TIMEOUT_MS,
    )
    connection = psycopg.connect(full, autocommit=True)
    # Every statement here runs with other parameters or once; the server's plan cache gains nothing
    # and would survive a change of a table.
    connection.prepare_threshold = None
    dumpers.register(connection)
    return connection
