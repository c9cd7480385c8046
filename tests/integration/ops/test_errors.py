"""Expected errors are one clear message with what to do next and its exit code, never a traceback."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from ops.topics import ensure_topics
from schemas.settings import Settings
from tests.conftest import Lane
from tests.integration.ops.verbs import run
from tests.integration.ops.written import MAPPING, SOURCE

NO_KAFKA = {"GAPLESS_KAFKA": "127.0.0.1:9"}
NO_SINK = {"GAPLESS_POSTGRES": "postgresql://nobody:hidden@127.0.0.1:9/nothing"}


@pytest.fixture
def environment(lane: Lane, tmp_path: Path) -> dict[str, str]:
    """A lane without topics and tables, with definitions."""
    for name, text in (("sources/shop", SOURCE), ("mappings/orders", MAPPING)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    return {**lane.environment, "GAPLESS_DEFINITIONS": str(tmp_path), "GAPLESS_PARTITIONS": "2"}


def says(environment: dict[str, str], verb: str, code: int, *parts: str, **changes: str) -> None:
    done = run({**environment, **changes}, *verb.split())
    told = done.stdout + done.stderr
    assert done.returncode == code, told
    assert "Traceback" not in told
    for part in parts:
        assert part in told, told


@pytest.mark.parametrize("verb", ["topics", "audit", "ingest --once"])
def test_kafka_is_away(environment: dict[str, str], verb: str) -> None:
    says(environment, verb, 3, "127.0.0.1:9", **NO_KAFKA)


def test_a_budget_below_the_reserve_is_told_before_kafka_is_asked(
    environment: dict[str, str],
) -> None:
    words = "the budget is spent before the first request"
    says(environment, "ingest --once --budget 5s", 2, words, **NO_KAFKA)


@pytest.mark.parametrize("verb", ["migrate", "coverage", "quarantine list"])
def test_postgres_is_away(environment: dict[str, str], verb: str) -> None:
    says(environment, verb, 3, "Postgres at postgresql://nobody@127.0.0.1:9", **NO_SINK)
    assert "hidden" not in run({**environment, **NO_SINK}, verb.split()[0]).stderr


def test_the_password_is_wrong(environment: dict[str, str], lane: Lane) -> None:
    user, _, rest = lane.postgres.removeprefix("postgresql://").partition(":")
    wrong = f"postgresql://{user}:wrong@{rest.partition('@')[2]}"
    told = run({**environment, "GAPLESS_POSTGRES": wrong}, "coverage")
    if told.returncode == 4:
        pytest.skip("this server trusts everybody")
    says(environment, "coverage", 3, "refuses this user or password", GAPLESS_POSTGRES=wrong)


def test_the_database_does_not_exist(environment: dict[str, str], lane: Lane) -> None:
    other = lane.postgres.rsplit("/", 1)[0] + "/no_such_database"
    says(environment, "coverage", 3, "no_such_database", "createdb", GAPLESS_POSTGRES=other)


@pytest.mark.parametrize("verb", ["coverage", "quarantine list", "events list"])
def test_the_tables_are_missing(environment: dict[str, str], verb: str) -> None:
    says(environment, verb, 4, "gapless migrate")


@pytest.mark.parametrize("verb", ["audit", "control pause shop"])
def test_the_topics_are_missing(environment: dict[str, str], verb: str) -> None:
    says(environment, verb, 4, "topics are missing", "gapless topics")


def test_status_says_what_is_missing(environment: dict[str, str]) -> None:
    said = ("The topics are missing: `gapless topics`", "The tables are missing: `gapless migrate`")
    says(environment, "status", 4, *said)
    assert "cannot be asked" not in run(environment, "status").stdout


def test_another_number_of_partitions_is_refused(environment: dict[str, str], lane: Lane) -> None:
    ensure_topics(Settings(kafka=lane.kafka, prefix=lane.prefix, partitions=2))
    says(environment, "topics", 4, "has 2 partitions, the settings say 3", GAPLESS_PARTITIONS="3")


def test_migrating_twice_changes_nothing(environment: dict[str, str], lane: Lane) -> None:
    says(environment, "migrate", 0, "0001_gapless.sql", "orders version 1 registered")
    says(environment, "migrate", 0, "The database is ready.")
    with psycopg.connect(lane.postgres, autocommit=True) as connection:
        connection.execute("UPDATE gapless.schema_migration SET sha256 = 'other'")
    says(environment, "migrate", 4, "0001_gapless.sql is not the file that was applied")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"GAPLESS_PARTITIONS": "many"}, ("GAPLESS_PARTITIONS:", "valid integer")),
        ({"GAPLESS_FAILPOINTS": "ingest.after_flsh=kill"}, ("did you mean ingest.after_flush?",)),
        ({"GAPLESS_DEFINITIONS": "nowhere"}, ("there are no definitions here",)),
        ({"GAPLESS_KAFKA_CONFIG": "/dev/null/x"}, ("/dev/null/x", "cannot be read")),
    ],
)
def test_settings_that_cannot_be_used(
    environment: dict[str, str], changes: dict[str, str], parts: tuple[str, ...]
) -> None:
    says(environment, "ingest --once", 2, *parts, **changes)


def test_a_definition_that_is_wrong(environment: dict[str, str]) -> None:
    file = Path(environment["GAPLESS_DEFINITIONS"]) / "mappings/orders.yaml"
    file.write_text(file.read_text() + "colour: red\n")
    says(environment, "migrate", 2, "mappings/orders.yaml:", "colour")


def test_a_budget_that_is_none(environment: dict[str, str]) -> None:
    says(environment, "ingest --once --budget soon", 2, '"soon" is no duration')
    says(environment, "ingest --budget 5s", 2, "--budget goes with --once")
