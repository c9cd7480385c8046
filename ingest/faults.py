"""What can go wrong at the log, split by reaction. `LogUnavailable` (try again) is the reader's."""

from __future__ import annotations

import traceback

from confluent_kafka import KafkaError

from schemas.log.reader import LogUnavailable


class Fenced(Exception):
    """Another owner took the partition, or the broker timed our transaction out.

    Reaction: wait one session time-out, so that two owners never chase each other, then restore.
    """


class Refused(Exception):
    """The broker will never accept this: a permission, a credential, a limit. Reaction: stop.

    The message says what to do.
    """


class LogCut(LogUnavailable):
    """The log lost acknowledged records under a live owner. Reaction: close, restore, fetch again."""


def where(error: BaseException) -> str:
    """The innermost calls that raised, as `file:line function`; no values, which may be personal."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " < ".join(
        f"{'/'.join(f.filename.split('/')[-2:])}:{f.lineno} {f.name}" for f in reversed(frames)
    )


_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
    }
)
_CREDENTIALS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._SSL,
    }
)


def is_credential_fault(error: KafkaError) -> bool:
    """Whether the broker knows us not; librdkafka reports it beside the call that times out."""
    return error.code() in _CREDENTIALS


def fault_of(error: KafkaError, doing: str, transactional_id: str) -> Exception:
    """The exception whose reaction fits `error`, which came while `doing`."""
    code, said = error.code(), f"{doing}: {error.str()}"
    if code in _FENCED:
        return Fenced(said)
    if code in _CREDENTIALS:
        return Refused(
            f"{said}; the broker does not accept the credentials: correct the file that "
            "GAPLESS_KAFKA_CONFIG names"
        )
    if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return Refused(
            f"{said}; allow Write and Describe on the transactional id {transactional_id} "
            "(best on its prefix): kafka-acls.sh --add --operation Write --operation Describe "
            "--resource-pattern-type prefixed --transactional-id PREFIX"
        )
    if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return Refused(
            f"{said}; allow Write, Read and Describe on the topics of this deployment "
            "(kafka-acls.sh --add --operation Write --operation Read --topic …)"
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return Refused(
            f"{said}; the broker's transaction.max.timeout.ms is below "
            "GAPLESS_TRANSACTION_TIMEOUT_MS: lower the latter"
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return Refused(
            f"{said}; the topic's max.message.bytes is below GAPLESS_RECORD_MAX_BYTES: "
            "run `gapless topics`, it says how to correct it"
        )
    return LogUnavailable(said)
