"""Metrics of `gapless relay`. How many events wait is the monitor's to say: it reads the outbox.

The label `lane` is `topics`, or the mapping whose events are posted.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_LANE = ("lane",)
SENT = Counter("gapless_relay_sent_events", "Events that were accepted", _LANE)
FAILED = Counter(
    "gapless_relay_failed_events", "Attempts that failed for a reason of the event", _LANE
)
TROUBLE = Counter(
    "gapless_relay_pauses", "Times that nobody took events, or Postgres was away", _LANE
)
PAUSED = Gauge("gapless_relay_paused", "1 while it waits for the other side", _LANE)
ROUND = Histogram("gapless_relay_publish_seconds", "Duration of publishing one batch", _LANE)
PRUNED = Counter("gapless_relay_pruned_events", "Events that were sent long ago, removed")
