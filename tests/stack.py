"""Where the tests' Kafka and PostgreSQL come from, once per run, for all workers of it.

In this order: addresses in the environment, containers where a Docker engine answers, else the
local stack. Started when the first test asks; owned by the process that started the run, since a
worker of it may end while others still test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from ops.stack import Addresses, Stack
from tests import containers

KAFKA = "GAPLESS_TEST_KAFKA"
POSTGRES = "GAPLESS_TEST_POSTGRES"
_SOCKET = "GAPLESS_TEST_SERVERS"
_KEY = b"only against accidents: the socket's folder is private"


def fresh_folder() -> Path:
    """A new folder for a stack, which PostgreSQL's own account can reach when we are root."""
    folder = Path(tempfile.mkdtemp(prefix="gapless-test-"))
    folder.chmod(0o711)
    return folder


class Servers:
    """The servers of this run. `addresses` starts what is needed, once; `stop` ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: Addresses | None = None
        self._fault: Exception | None = None
        self._ends: list[Callable[[], None]] = []

    def addresses(self) -> Addresses:
        """Where Kafka and PostgreSQL answer. Raises the first failure again on every call."""
        with self._lock:
            if self._fault is not None:
                raise self._fault
            if self._addresses is None:
                try:
                    self._addresses = self._start()
                except Exception as fault:
                    self._fault = fault
                    raise
            return self._addresses

    def _start(self) -> Addresses:
        kafka, postgres = os.environ.get(KAFKA), os.environ.get(POSTGRES)
        if kafka and postgres:
            return Addresses(kafka, postgres)
        if containers.engine_answers():
            running = containers.Containers(kafka=not kafka, postgres=not postgres)
            self._ends.append(running.stop)
            found = running.start()
            return Addresses(kafka or found.kafka, postgres or found.postgres)
        stack = Stack(fresh_folder(), fsync=False)
        self._ends.append(stack.remove)
        if kafka:
            return Addresses(kafka, stack.postgres.start())
        if postgres:
            return Addresses(stack.kafka.start(), postgres)
        return stack.start()

    def stop(self) -> None:
        """Stops whatever this run started."""
        with self._lock:
            while self._ends:
                self._ends.pop()()


class Desk:
    """Answers the workers of a run when they ask for the servers' addresses."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._folder = tempfile.mkdtemp(prefix="gapless-run-")
        self._listener = Listener(f"{self._folder}/socket", backlog=64, authkey=_KEY)
        threading.Thread(target=self._answer_all, daemon=True).start()
        os.environ[_SOCKET] = f"{self._folder}/socket"

    def _answer_all(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            try:
                answer: Addresses | str = self._servers.addresses()
            except Exception as fault:
                answer = f"{type(fault).__name__}: {fault}"
            connection.send(answer)

    def close(self) -> None:
        """Answers nobody any more."""
        os.environ.pop(_SOCKET, None)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def has_desk() -> bool:
    """Whether this process belongs to a run that has a desk: its workers and what they start do."""
    return _SOCKET in os.environ


def ask_desk() -> Addresses:
    """The servers' addresses. Raises RuntimeError with the reason if they could not be started."""
    with Client(os.environ[_SOCKET], authkey=_KEY) as connection:
        answer = connection.recv()
    if isinstance(answer, Addresses):
        return answer
    raise RuntimeError(answer)
