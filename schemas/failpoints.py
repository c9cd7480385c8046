"""Names of the failpoints between every two durable effects, and the function that does nothing.

Stage code calls a plain `hit(name)`; what happens there is decided by the command line.
"""

from __future__ import annotations

from collections.abc import Callable

Hit = Callable[[str], None]

INGEST = (
    "ingest.after_fetch",
    "ingest.before_fence",
    "ingest.after_fence",
    "ingest.after_restore",
    "ingest.before_begin",
    "ingest.after_begin",
    "ingest.between_pages",
    "ingest.after_pages",
    "ingest.after_flush",
    "ingest.after_checkpoints",
    "ingest.before_commit",
    "ingest.answer_lost",
    "ingest.after_commit",
    "ingest.before_tombstones",
)
APPLY = (
    "apply.after_poll",
    "apply.after_claim",
    "apply.after_compare_and_set",
    "apply.after_first_upsert",
    "apply.after_last_upsert",
    "apply.after_exceptions",
    "apply.after_ledger",
    "apply.after_outbox",
    "apply.before_commit",
    "apply.answer_lost",
    "apply.after_commit",
    "apply.after_kafka_offset",
)
REPLAY = (
    "replay.after_prepare",
    "replay.after_commit",
    "replay.before_swap",
    "replay.before_swap_commit",
    "replay.after_swap",
)

RELAY = (
    "relay.after_select",
    "relay.after_publish",
    "relay.after_mark",
    "relay.after_commit",
)


def none(name: str) -> None:
    """The failpoint of production: nothing."""
