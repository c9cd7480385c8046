"""What must hold before ingest starts: brokers that verify transactions, and the right topics.

Only asks; creates and alters nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ConsumerGroupDescription,
    ResourceType,
)

from ingest.faults import Refused, is_credential_fault
from schemas.log import config
from schemas.log.reader import LogUnavailable
from schemas.settings import Settings

_VERIFICATION = "transaction.partition.verification.enable"
_TIMEOUT_S = 10.0
_COORDINATOR_S = 30.0
_COORDINATOR_STARTS = (
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
)


@dataclass(slots=True)
class _Reported:
    """Errors that librdkafka reports beside the call that only times out."""

    errors: list[KafkaError] = field(default_factory=list)

    def __call__(self, error: KafkaError) -> None:
        self.errors.append(error)


class Cluster:
    """The cluster as ingest sees it at start. Blocking.

    Every method raises LogUnavailable or Refused with what to do.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reported = _Reported()
        try:
            self._admin = AdminClient(config.admin(settings, "checks"), error_cb=self._reported)
        except KafkaException as error:
            raise Refused(f"the properties for Kafka cannot be used: {error}") from error

    def check(self) -> None:
        """Refuses what would break a promise."""
        known = self._metadata()
        check_topics(self._settings, {t: len(m.partitions) for t, m in known.topics.items()})
        self.members()  # may we use the group at all?
        self._check_brokers(known.brokers)

    def members(self) -> dict[str, str]:
        """Active members of ingest's group: client id by member id."""
        group = self._settings.ingest_group
        try:
            found = self._described(group)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise Refused(
                    f"the group {group} may not be used: allow Read and Describe on it "
                    f"(kafka-acls.sh --add --operation Read --operation Describe --group {group})"
                ) from error
            raise self._fault(f"group {group} cannot be described", error) from error
        if found.state is ConsumerGroupState.DEAD:
            return {}
        return {member.member_id: member.client_id for member in found.members}

    def _described(self, group: str) -> ConsumerGroupDescription:
        """Waits for the group's coordinator: a broker that has just started has none for a second."""
        give_up_at = time.monotonic() + _COORDINATOR_S
        while True:
            try:
                future = self._admin.describe_consumer_groups([group], request_timeout=_TIMEOUT_S)
                found: ConsumerGroupDescription = future[group].result()
                return found
            except KafkaException as error:
                starts = error.args[0].code() in _COORDINATOR_STARTS
                if not starts or time.monotonic() > give_up_at:
                    raise
            time.sleep(0.1)

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=_TIMEOUT_S)
        except KafkaException as error:
            where = f"Kafka at {self._settings.kafka} does not answer"
            raise self._fault(where, error) from error

    def _check_brokers(self, brokers: Iterable[int]) -> None:
        """Every broker must check that a transaction is open before it appends (Kafka >= 3.6)."""
        if self._settings.accept_unverified_transactions:
            return
        for broker in brokers:
            found = self._describe(broker)
            if found != "true":
                raise Refused(
                    f"broker {broker} does not verify transactions ({_VERIFICATION} is "
                    f"{found or 'not known to it'}): pages of a worker that was thought dead could "
                    "be published late. Use Apache Kafka 3.6 or later with it enabled, or accept "
                    "the risk by name: GAPLESS_ACCEPT_UNVERIFIED_TRANSACTIONS=true"
                )

    def _describe(self, broker: int) -> str | None:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        try:
            future = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource]
            entry = future.result().get(_VERIFICATION)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                raise Refused(
                    "whether the brokers verify transactions cannot be read: allow DescribeConfigs "
                    "on the cluster, or accept the risk by name: "
                    "GAPLESS_ACCEPT_UNVERIFIED_TRANSACTIONS=true"
                ) from error
            raise self._fault(f"the settings of broker {broker}", error) from error
        return None if entry is None else entry.value

    def _fault(self, doing: str, error: KafkaException) -> Exception:
        self._admin.poll(0)  # serves what was reported meanwhile
        for said in self._reported.errors:
            if is_credential_fault(said):
                return Refused(
                    f"{doing}: {said.str()}; correct the file that GAPLESS_KAFKA_CONFIG names"
                )
        return LogUnavailable(f"{doing}: {error.args[0].name()} {error.args[0].str()}")


def check_topics(settings: Settings, partitions: dict[str, int]) -> None:
    """Raises Refused unless the topics are there with the partition counts of the settings."""
    wanted = {
        settings.observations: settings.partitions,
        settings.checkpoints: settings.partitions,
        settings.control: 1,
    }
    missing = [topic for topic in wanted if topic not in partitions]
    if missing:
        raise Refused(f"there is no topic {', '.join(missing)}: run `gapless topics`")
    pages, claims = partitions[settings.observations], partitions[settings.checkpoints]
    if pages != claims:
        raise Refused(
            f"{settings.observations} has {pages} partitions and {settings.checkpoints} {claims}: "
            "they must have the same number. Somebody added some; partition ids are routed by this "
            "number, so create both anew under another GAPLESS_PREFIX"
        )
    for topic, count in wanted.items():
        if partitions[topic] != count:
            raise Refused(
                f"{topic} has {partitions[topic]} partitions, the settings say {count}: partition "
                "ids are routed by this number. Run `gapless topics`, it says what to do"
            )
