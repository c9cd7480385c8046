"""Fixtures of all tests: the servers of the run, a lane of one's own on them, a stack of one's own.

Tests may run side by side: whatever they store lies in their lane, or on their own stack.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import psycopg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from ops.stack import Addresses, Stack
from tests.stack import Desk, Servers, ask_desk, fresh_folder, has_desk

# A run says the same twice, however busy the machine is; `make hunt` looks at new examples.
_SLOW = [HealthCheck.too_slow]
hypothesis.register_profile("test", derandomize=True, deadline=None, suppress_health_check=_SLOW)
hypothesis.register_profile("hunt", deadline=None, suppress_health_check=_SLOW, print_blob=True)
hypothesis.load_profile(os.environ.get("GAPLESS_TEST_EXAMPLES", "test"))

_SERVERS = pytest.StashKey[Servers]()
_DESK = pytest.StashKey[Desk]()


def pytest_configure(config: pytest.Config) -> None:
    """The process that starts a run keeps its servers; workers find its desk in the environment."""
    if not has_desk():
        config.stash[_SERVERS] = Servers()
        config.stash[_DESK] = Desk(config.stash[_SERVERS])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Servers end with their run."""
    if _DESK in config.stash:
        config.stash[_DESK].close()
        config.stash[_SERVERS].stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In continuous integration everything has to be there: a test that skips has failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        _, _, reason = report.longrepr if isinstance(report.longrepr, tuple) else (0, 0, "?")
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} may not be skipped where CI=true: {reason}"
    return report


@pytest.fixture(scope="session")
def servers() -> Addresses:
    """Kafka and PostgreSQL of this run, shared by all its tests."""
    return ask_desk()


@pytest.fixture(scope="session")
def kafka(servers: Addresses) -> str:
    """Bootstrap servers. Topics belong into a lane; use this for what only looks."""
    return servers.kafka


@pytest.fixture(scope="session")
def postgres(servers: Addresses) -> str:
    """Connection URI of the superuser in the server's own database."""
    return servers.postgres


@dataclass(frozen=True)
class Lane:
    """What one test has for itself on the shared servers.

    `postgres`: connection URI of a fresh, empty database. `prefix`: of all topics, groups and
    transactional ids, ends with a dot. `environment`: the same for processes of the product.
    """

    kafka: str
    postgres: str
    prefix: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def _kafka_admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka, "log_level": 0})


@pytest.fixture
def lane(lanes: Callable[[], AbstractContextManager[Lane]]) -> Iterator[Lane]:
    """A lane; its database and topics are gone after the test."""
    with lanes() as made:
        yield made


@pytest.fixture(scope="session")
def lanes(
    kafka: str, postgres: str, _kafka_admin: AdminClient
) -> Callable[[], AbstractContextManager[Lane]]:
    """Makes lanes, for tests that share one or need several; each is gone when it is left."""
    return lambda: _new_lane(kafka, postgres, _kafka_admin)


@contextlib.contextmanager
def _new_lane(kafka: str, postgres: str, admin: AdminClient) -> Iterator[Lane]:
    name = f"t{secrets.token_hex(6)}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    database = _in_database(postgres, name)
    environment = {
        "GAPLESS_KAFKA": kafka,
        "GAPLESS_POSTGRES": database,
        "GAPLESS_PREFIX": f"{name}.",
    }
    yield Lane(kafka, database, f"{name}.", environment)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
    _delete_topics(admin, f"{name}.")


def _in_database(uri: str, name: str) -> str:
    """The same connection, to another database, as a URI."""
    parts = {key: str(value) for key, value in conninfo_to_dict(uri).items() if value is not None}
    parts.pop("dbname", None)
    user, password = parts.pop("user", "postgres"), parts.pop("password", "")
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    host, port = parts.pop("host", "localhost"), parts.pop("port", "5432")
    rest = f"?{urlencode(parts)}" if parts else ""
    return f"postgresql://{login}@{host}:{port}/{name}{rest}"


def _delete_topics(admin: AdminClient, prefix: str) -> None:
    topics = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    if topics:
        for deleted in admin.delete_topics(topics).values():
            # What cannot be deleted now goes with the servers at the end of the run.
            with contextlib.suppress(KafkaException):
                deleted.result(30)


@pytest.fixture
def own_stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A private Kafka and PostgreSQL, running, for tests that stop or kill them.

    Indirect parameters are passed on to Stack, for example {"brokers": 3}.
    """
    stack = Stack(fresh_folder(), **{"fsync": False, **getattr(request, "param", {})})
    try:
        stack.start()
        yield stack
    finally:
        stack.remove()
