"""A link that is dead although both its ends live: found by asking Postgres over another one.

TCP notices a peer that is gone. It does not notice something in between that keeps the connection
and moves nothing (a frozen proxy, a load balancer that switched over). Whoever waits longer than it
should asks here; a statement that merely takes long is left alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass

import psycopg
from psycopg.pq import TransactionStatus

from apply.sink import Connection, connect

# Behind a pooler the pid that a connection was told is none of the server's: whether its backend is
# gone or at work cannot be asked then. The asking connection's own pid tells.
_ASK = """
SELECT count(*) FILTER (WHERE wait_event_type IS DISTINCT FROM 'Client') AS busy,
  pg_backend_pid() = %s AS told_truly
FROM pg_stat_activity WHERE pid = %s"""
_SURE = 2
"""So often in a row the server must say that it waits for us, while we wait for it."""


_OURS = (TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR)


def awaits(connection: Connection | None) -> bool:
    """Whether whoever uses this waits for Postgres, and not the other way round: between two
    statements it is busy itself, as with mapping functions that take their time. Safe between threads.
    """
    if connection is None or connection.closed:
        return True
    return connection.pgconn.transaction_status not in _OURS


@dataclass(slots=True)
class _Seen:
    connection: Connection
    times: int = 0


class Link:
    """Watches the connection of one writer from another thread."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._seen: _Seen | None = None

    def answered(self) -> None:
        """The writer heard from Postgres: whatever was seen before is over."""
        self._seen = None

    def cut_if_dead(self, connection: Connection | None) -> bool:
        """Whether both ends were seen waiting for each other, and the link was cut because of it.

        Blocks for the time-out of a connection at most; what cannot be asked is not dead.
        """
        if connection is None or connection.closed:
            self._seen = None
            return False
        if self._seen is None or self._seen.connection is not connection:
            self._seen = _Seen(connection)
        if not self._server_waits(connection):
            self._seen.times = 0
            return False
        self._seen.times += 1
        if self._seen.times < _SURE or connection.closed:
            return False
        self._seen = None
        return _shut(connection)

    def _server_waits(self, connection: Connection) -> bool:
        """Whether its backend is gone, or waits for its client."""
        try:
            with connect(self._dsn, "link") as asking:
                pids = [asking.info.backend_pid, connection.info.backend_pid]
                row = asking.execute(_ASK, pids).fetchone()
        except psycopg.Error:
            return False
        return row == (0, True)


def _shut(connection: Connection) -> bool:
    """Ends both directions: the thread that waits on it gets an error, and nobody else does."""
    with contextlib.suppress(OSError, psycopg.Error):
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)
        return True
    return False
