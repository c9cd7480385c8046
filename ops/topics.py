"""Creates and verifies the topics of one deployment, with the settings that the promises rest on.

Idempotent: what is right is left alone, what is missing is created, what is wrong is refused with
what to do. Never alters or deletes an existing topic: that is the operator's decision.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from ops.facts.log import KafkaUnreachable, connect
from schemas.settings import Settings

_TIMEOUT_S = 30.0
_KNOWN_S = 60.0
_LOOK_S = 0.05
_DAY_MS = 86_400_000
_MINUTE_MS = 60_000
# Old bytes of an erased record are gone within this and a cleaning; the proof of an erasure says so.
COMPACTION_BOUND_MS = 7 * _DAY_MS
_FALL_BACK_MS = 15 * _MINUTE_MS
_FRAMING_BYTES = 100_000


class TopicsRefused(Exception):
    """Topics that would break a promise; the message says what to do."""


class TopicsUnreachable(Exception):
    """Kafka did not answer, or refused to be asked."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One setting: what it is created with, and what is accepted of an existing topic."""

    name: str
    value: str
    accept: Literal["exactly", "at most", "at least", "including"]

    def holds(self, found: str | None) -> bool:
        """Whether a topic that has this value keeps the promise."""
        if found is None:
            return False
        if self.accept == "exactly":
            return found == self.value
        if self.accept == "including":
            return set(self.value.split(",")) <= set(found.split(","))
        limit = math.inf if found == "-1" else float(found)
        return (
            limit <= float(self.value) if self.accept == "at most" else limit >= float(self.value)
        )


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic as it must be."""

    name: str
    partitions: int
    settings: tuple[Wanted, ...]


def topic_plans(settings: Settings, acknowledged: int) -> tuple[TopicPlan, ...]:
    """All topics of a deployment; `acknowledged` replicas must hold a record before it counts."""
    largest = str(settings.record_max_bytes + _FRAMING_BYTES)
    common = (
        Wanted("min.insync.replicas", str(acknowledged), "at least"),
        Wanted("unclean.leader.election.enable", "false", "exactly"),
        Wanted("max.message.bytes", largest, "at least"),
    )
    bound = Wanted("max.compaction.lag.ms", str(COMPACTION_BOUND_MS), "at most")
    observations = (
        Wanted("cleanup.policy", "compact", "including"),
        Wanted("message.timestamp.type", "LogAppendTime", "exactly"),
        bound,
    )
    checkpoints = (
        Wanted("cleanup.policy", "compact", "exactly"),
        Wanted("min.compaction.lag.ms", str(_FALL_BACK_MS), "at least"),
        Wanted("delete.retention.ms", str(_FALL_BACK_MS), "at least"),
        Wanted("segment.bytes", str(16 * 1024 * 1024), "at most"),
        Wanted("min.cleanable.dirty.ratio", "0.1", "at most"),
    )
    events = (
        Wanted("cleanup.policy", "delete", "exactly"),
        Wanted("retention.ms", str(COMPACTION_BOUND_MS), "at most"),
    )
    quarantine = (
        Wanted("cleanup.policy", "compact,delete", "including"),
        Wanted("retention.ms", str(30 * _DAY_MS), "at most"),
        bound,
    )
    control = (Wanted("cleanup.policy", "compact", "exactly"),)
    many = settings.partitions
    return (
        TopicPlan(settings.observations, many, (*common, *observations)),
        TopicPlan(settings.checkpoints, many, (*common, *checkpoints)),
        TopicPlan(settings.control, 1, (*common, *control)),
        TopicPlan(settings.events, many, (*common, *events)),
        TopicPlan(settings.quarantine, many, (*common, *quarantine)),
    )


def ensure_topics(settings: Settings) -> list[str]:
    """Creates what is missing, then verifies all; one report line per topic.

    Raises TopicsRefused (nothing was altered) or TopicsUnreachable.
    """
    admin, brokers = _admin(settings)
    existing, replication = _existing(admin), _replication(settings, admin, brokers)
    plans = topic_plans(settings, in_sync(replication))
    faults = [f for plan in plans if plan.name in existing for f in _faults(admin, plan, existing)]
    if faults:
        raise TopicsRefused("\n".join(faults))
    missing = [plan for plan in plans if plan.name not in existing]
    _create(admin, missing, replication)
    _wait_until_known(settings, missing)
    created = {plan.name for plan in missing}
    return [
        f"{plan.name}: {'created' if plan.name in created else 'as it must be'}, "
        f"{plan.partitions} partition{'s' if plan.partitions > 1 else ''}"
        for plan in plans
    ]


def verify_topics(settings: Settings) -> list[str]:
    """What is wrong with the topics, one line each with what to do; empty when all is right.

    Raises TopicsUnreachable.
    """
    admin, brokers = _admin(settings)
    existing, replication = _existing(admin), _replication(settings, admin, brokers)
    faults: list[str] = []
    for plan in topic_plans(settings, in_sync(replication)):
        if plan.name in existing:
            faults += _faults(admin, plan, existing)
        else:
            faults.append(f"{plan.name} is missing: run `gapless topics`")
    return faults


def _admin(settings: Settings) -> tuple[AdminClient, int]:
    try:
        admin = connect(settings, _TIMEOUT_S)
        brokers = len(admin.list_topics(timeout=_TIMEOUT_S).brokers)
    except (KafkaUnreachable, KafkaException) as error:
        raise TopicsUnreachable(f"Kafka at {settings.kafka} does not answer: {error}") from error
    return admin, brokers


def _existing(admin: AdminClient) -> dict[str, int]:
    """Partition counts by topic name."""
    return {name: len(topic.partitions) for name, topic in _topics(admin).items()}


def _topics(admin: AdminClient) -> dict[str, TopicMetadata]:
    try:
        return admin.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise TopicsUnreachable(f"topics cannot be listed: {error}") from error


def replicas(asked: int, brokers: int, default: Callable[[], int]) -> int:
    """As many as the settings ask for; 0: three where there are three brokers, else the default."""
    if asked:
        return asked
    return 3 if brokers >= 3 else default()


def in_sync(replication: int) -> int:
    """How many replicas must hold a record before it counts: one of three may be away."""
    return 2 if replication >= 3 else 1


def _replication(settings: Settings, admin: AdminClient, brokers: int) -> int:
    def default() -> int:
        broker = next(iter(admin.list_topics(timeout=_TIMEOUT_S).brokers))
        found = _describe(admin, ConfigResource(ResourceType.BROKER, str(broker)))
        return int(found.get("default.replication.factor") or 1)

    return replicas(settings.replication, brokers, default)


def _describe(admin: AdminClient, resource: ConfigResource) -> dict[str, str | None]:
    try:
        entries = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
    except KafkaException as error:
        raise TopicsUnreachable(
            f"the settings of {resource.name} cannot be read: {error}; "
            "this needs the ACL DescribeConfigs on it"
        ) from error
    return {name: entry.value for name, entry in entries.items()}


def _faults(admin: AdminClient, plan: TopicPlan, existing: dict[str, int]) -> list[str]:
    faults: list[str] = []
    if existing[plan.name] != plan.partitions:
        faults.append(_wrong_count(plan, existing[plan.name]))
    found = _describe(admin, ConfigResource(ResourceType.TOPIC, plan.name))
    wrong = [wanted for wanted in plan.settings if not wanted.holds(found.get(wanted.name))]
    faults += [
        f"{plan.name} has {wanted.name}={found.get(wanted.name)}, needs {wanted.accept} "
        f"{wanted.value}: kafka-configs.sh --alter --entity-type topics --entity-name "
        f"{plan.name} --add-config {wanted.name}={_quoted(wanted.value)}"
        for wanted in wrong
    ]
    return faults


def _wrong_count(plan: TopicPlan, found: int) -> str:
    if plan.partitions == 1:
        return (
            f"{plan.name} has {found} partitions, needs exactly 1: its order is the order of the "
            "operators' decisions; delete it if it is empty, or choose another GAPLESS_PREFIX"
        )
    return (
        f"{plan.name} has {found} partitions, the settings say {plan.partitions}: partition ids are "
        f"routed by this number, so it is fixed for ever; set GAPLESS_PARTITIONS={found}, or choose "
        "another GAPLESS_PREFIX to begin anew"
    )


def _wait_until_known(settings: Settings, created: list[TopicPlan]) -> None:
    """Brokers learn of a new topic a moment after it was created; who comes next may rely on it.

    Waits until each leads its partitions and tells its settings; an answer of one broker is one
    broker's, so clusters may still lag, and every reader asks again by itself.
    """
    deadline = time.monotonic() + _KNOWN_S
    waiting = list(created)
    admin, _ = _admin(settings)
    while waiting:
        topics = _topics(admin)
        waiting = [plan for plan in waiting if not _known(admin, plan, topics.get(plan.name))]
        if waiting and time.monotonic() > deadline:
            names = ", ".join(plan.name for plan in waiting)
            raise TopicsUnreachable(f"created, but after {_KNOWN_S:.0f} s unknown: {names}")
        if waiting:
            time.sleep(_LOOK_S)


def _known(admin: AdminClient, plan: TopicPlan, found: TopicMetadata | None) -> bool:
    if found is None or len(found.partitions) != plan.partitions:
        return False
    if any(one.leader < 0 for one in found.partitions.values()):
        return False
    resource = ConfigResource(ResourceType.TOPIC, plan.name)
    try:
        admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
    except KafkaException as error:
        # without the permission to look, the topic is known: somebody refused to tell
        return bool(error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART)
    return True


def _quoted(value: str) -> str:
    return f"[{value}]" if "," in value else value


def _create(admin: AdminClient, plans: list[TopicPlan], replication: int) -> None:
    new = [
        NewTopic(
            plan.name,
            num_partitions=plan.partitions,
            replication_factor=replication,
            config={wanted.name: wanted.value for wanted in plan.settings},
        )
        for plan in plans
    ]
    if not new:
        return
    for name, future in admin.create_topics(new, operation_timeout=_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as error:
            fault: KafkaError = error.args[0]
            if fault.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue  # somebody else creates them too; the next verification judges the result
            if fault.code() in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                KafkaError.INVALID_REPLICATION_FACTOR,
                KafkaError.INVALID_CONFIG,
                KafkaError.POLICY_VIOLATION,
                KafkaError.INVALID_PARTITIONS,
            ):
                raise TopicsRefused(f"{name} cannot be created: {fault.str()}") from error
            raise TopicsUnreachable(f"{name} was not created: {fault.str()}") from error
