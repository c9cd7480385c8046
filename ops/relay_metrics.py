"""Metrics of `gapless relay`. How many events wait is the monitor's to say: it reads the outbox."""

from __future__ import annotations

from prometheus_client import Counter

SENT = Counter("gapless_relay_sent_events", "Events that Kafka has acknowledged")
FAILED = Counter("gapless_relay_failed_events", "Attempts that failed for a reason of the event")
TROUBLE = Counter("gapless_relay_pauses", "Times that Kafka or Postgres could not be reached")
