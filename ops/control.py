"""Operators' decisions that ingest obeys, written to the control topic. Needs Kafka only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ops.facts.deployment import LogFacts
from schemas.codec import encode
from schemas.definitions.problems import closest
from schemas.keys import encode_part
from schemas.log import config
from schemas.records import BY_TIME, Control, Failed
from schemas.settings import Settings

_TIMEOUT_S = 20.0


class RefusedDecision(Exception):
    """The decision would mean nothing; says what could be meant."""


def send(settings: Settings, control: Control) -> int:
    """Write one decision; returns its offset. Raises KafkaException."""
    delivered: list[tuple[KafkaError | None, Message]] = []
    properties = {
        **config.client(settings, "control"),
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": int(_TIMEOUT_S * 1000),
    }
    producer = Producer(properties)
    producer.produce(
        settings.control,
        encode(control),
        key_of(control),
        partition=0,
        on_delivery=lambda error, message: delivered.append((error, message)),
    )
    left = producer.flush(_TIMEOUT_S + 5)
    error = delivered[0][0] if delivered else KafkaError(KafkaError._TIMED_OUT)
    if left or error is not None:
        raise KafkaException(error)
    offset = delivered[0][1].offset()
    assert offset is not None
    return offset


def key_of(control: Control) -> str:
    """What it is about: a later decision about the same replaces it, others stay."""
    topic = "pause" if control.action in ("pause", "resume") else control.action
    scope = f"{control.start}~{control.end}" if control.start is not None else "-"
    rest = (topic, control.plan or "-", scope)
    return "/".join([control.about, *(encode_part(part) for part in rest)])


def check_about(about: str, known: Sequence[str]) -> list[str]:
    """The partition ids that a source, a stream or a partition id stands for.

    Raises RefusedDecision if there is none.
    """
    meant = [name for name in known if name == about or name.startswith(f"{about}/")]
    if meant:
        return meant
    prefixes = {"/".join(name.split("/")[:parts]) for name in known for parts in (1, 2, 3)}
    near = closest(about, sorted(prefixes))
    hint = f" Did you mean {near}?" if near else " Nothing was read yet under this prefix."
    raise RefusedDecision(f"No partition id is {about} or below it.{hint}")


def check_listed(about: str, meant: Sequence[str], streams: Mapping[str, bool]) -> list[str]:
    """Those of the partition ids that have a snapshot plan; `streams`: `source/stream` to whether.

    Raises RefusedDecision if there is none: nothing would ever be listed.
    """
    listed = [name for name in meant if streams.get("/".join(name.split("/")[:2]))]
    if listed:
        return listed
    raise RefusedDecision(
        f"{about} has no snapshot: its definition declares none, so nothing can be listed. Write "
        "`snapshot: {every: 7d}` in its `plan`; the first one is taken by itself."
    )


def check_failed(
    log: LogFacts, about: str, plan: str | None, start: str | None, end: str | None
) -> str:
    """The plan of which exactly this interval has failed; `plan`: only that one is meant.

    Raises RefusedDecision and lists those that have.
    """
    record = log.checkpoints.get(about)
    plans = record.checkpoint.plans if record else {}
    failed: list[Failed] = []
    for name in BY_TIME if plan is None else (plan,):
        found: Sequence[Failed] = plans[name].failed if name in plans else ()
        if any((one.start, one.end) == (start, end) for one in found):
            return name
        failed += found
    if not failed:
        of = "" if plan is None else f", plan {plan},"
        raise RefusedDecision(f"No interval of {about}{of} has failed.")
    listed = "\n".join(f"  --start {f.start} --end {f.end}   {f.reason}" for f in failed)
    raise RefusedDecision(f"Name the interval that is accepted; these have failed:\n{listed}")
