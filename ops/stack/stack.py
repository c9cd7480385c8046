"""The local stack: real Kafka and real PostgreSQL on one folder, owned by this process.

Invariant: both servers end with the process that started them; their data stays in the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from ops.stack.folder import Addresses, FolderLock, Ports, remove_note, write_note
from ops.stack.kafka import Kafka
from ops.stack.postgres import Postgres


def _silent(_: str) -> None:
    """Tells nobody."""


class Stack:
    """Kafka and PostgreSQL for one folder. Use as a context manager, or call start and stop.

    `kafka_port`, `postgres_port`: else ports are chosen once and kept with the folder.
    `brokers`: number of Kafka nodes. `fsync`: False makes PostgreSQL faster and its data worthless
    after a power cut (a killed process is no power cut), and Kafka quick for minutes, not for days.
    `tell` hears of slow steps.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kafka_port: int | None = None,
        postgres_port: int | None = None,
        brokers: int = 1,
        fsync: bool = True,
        tell: Callable[[str], None] = _silent,
    ) -> None:
        self.folder = folder.absolute()
        self._lock = FolderLock(self.folder)
        ports = Ports(self.folder)
        self.kafka = Kafka(
            self.folder, self._lock, ports,
            port=kafka_port, brokers=brokers, brief=not fsync, tell=tell,
        )  # fmt: skip
        self.postgres = Postgres(self.folder, self._lock, ports, port=postgres_port, fsync=fsync)

    @property
    def addresses(self) -> Addresses:
        """Where the servers listen, or will when they run."""
        return Addresses(kafka=self.kafka.address, postgres=self.postgres.address)

    def start(self) -> Addresses:
        """Starts both servers, side by side, and waits until both answer.

        Raises StackBusy if another process runs a stack on this folder, StackError if a server
        cannot be started; then neither runs.
        """
        self._lock.acquire()
        try:
            with ThreadPoolExecutor(2) as pool:
                kafka = pool.submit(self.kafka.start)
                postgres = pool.submit(self.postgres.start)
            addresses = Addresses(kafka=kafka.result(), postgres=postgres.result())
            write_note(self.folder, addresses)
        except BaseException:
            self.stop()
            raise
        return addresses

    def stop(self) -> None:
        """Stops both servers and gives the folder free. Fine if nothing runs."""
        if not self._lock.held:
            return
        remove_note(self.folder)
        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(self.kafka.stop), pool.submit(self.postgres.stop)]
        self._lock.release()
        for end in ends:
            end.result()

    def remove(self) -> None:
        """Stops both servers and deletes the folder with all data.

        Raises StackBusy if another process runs a stack on this folder.
        """
        self._lock.acquire()
        # Nothing of it is kept, so nothing needs an orderly end.
        self.kafka.kill()
        self.postgres.kill()
        self.postgres.remove()
        shutil.rmtree(self.folder)
        self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
