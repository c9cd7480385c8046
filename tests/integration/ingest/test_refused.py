"""A worker that the broker refuses says what to do, stops, and never loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from ingest.process import OK, REFUSED
from schemas.settings import Settings
from tests.conftest import Lane
from tests.integration.ingest.conftest import small_settings, with_topics
from tests.integration.ingest.secured import SecuredKafka, secured_kafka
from tests.integration.ingest.test_process import A, child

SOURCES: list[dict[str, object]] = [{"partition_id": A, "pages": 3}]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredKafka]:
    with secured_kafka() as found:
        yield found


@pytest.fixture
def allowed(secured: SecuredKafka, lane: Lane) -> Iterator[Settings]:
    """Topics on the secured broker; the user has no ACLs yet."""
    found = small_settings(lane, kafka=secured.address, kafka_config=secured.admin_properties)
    with_topics(found)
    yield found.model_copy(update={"kafka_config": secured.properties})
    secured.revoke_all()


def run_once(settings: Settings) -> tuple[int, str]:
    with child(settings, SOURCES, "once") as run:
        return run.ends(40)


def test_with_every_permission_it_works(secured: SecuredKafka, allowed: Settings) -> None:
    secured.allow(allowed.prefix)
    code, output = run_once(allowed)
    assert code == OK, output


def test_wrong_credentials(secured: SecuredKafka, allowed: Settings) -> None:
    wrong = allowed.model_copy(update={"kafka_config": secured.wrong_properties})
    code, output = run_once(wrong)
    assert code == REFUSED, output
    assert "GAPLESS_KAFKA_CONFIG" in output
    assert "not it" not in output, "no password in a message"


def test_no_permission_on_the_transactional_id(secured: SecuredKafka, allowed: Settings) -> None:
    secured.allow(allowed.prefix, without=ResourceType.TRANSACTIONAL_ID)
    code, output = run_once(allowed)
    assert code == REFUSED, output
    assert "allow Write and Describe on the transactional id" in output


def test_no_permission_to_write_pages(secured: SecuredKafka, allowed: Settings) -> None:
    secured.allow(allowed.prefix)
    secured.deny(allowed.observations, AclOperation.WRITE)
    code, output = run_once(allowed)
    assert code == REFUSED, output
    assert "allow Write, Read and Describe on the topics" in output


def test_no_permission_to_read_the_brokers_settings(
    secured: SecuredKafka, allowed: Settings
) -> None:
    secured.allow(allowed.prefix, without=ResourceType.BROKER)
    code, output = run_once(allowed)
    assert code == REFUSED, output
    assert "allow DescribeConfigs" in output


def test_no_permission_on_the_group(secured: SecuredKafka, allowed: Settings) -> None:
    secured.allow(allowed.prefix, without=ResourceType.GROUP)
    code, output = run_once(allowed)
    assert code == REFUSED, output
    assert "group" in output


def test_no_topic_is_shown_without_permission(secured: SecuredKafka, allowed: Settings) -> None:
    secured.allow(allowed.prefix, without=ResourceType.TOPIC)
    code, output = run_once(allowed)
    assert code == REFUSED, output
    assert "Describe" in output or "run `gapless topics`" in output


def test_brokers_that_do_not_verify_transactions(secured: SecuredKafka, allowed: Settings) -> None:
    secured.allow(allowed.prefix)
    secured.verify_transactions("false")
    try:
        code, output = run_once(allowed)
        assert code == REFUSED, output
        assert "does not verify transactions" in output
        risky = allowed.model_copy(update={"accept_unverified_transactions": True})
        code, output = run_once(risky)
        assert code == OK, output
    finally:
        secured.verify_transactions("true")
