"""How long can what is missing still be had: the provider's memory and the topic's. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ops.facts.deployment import LogFacts
from ops.status.expected import ExpectedStream
from ops.status.model import Horizons


def topic_retention_s(topic: Mapping[str, str]) -> float | None:
    """How long the topic keeps records by age; None: for ever."""
    if "delete" not in topic.get("cleanup.policy", "compact").split(","):
        return None
    limit = int(topic.get("retention.ms", "-1"))
    return None if limit < 0 else limit / 1e3


def horizons(
    log: LogFacts | None,
    partition: int,
    now_us: int,
    ingest_lag_s: float | None,
    apply_lag_s: float | None,
    cursor_age_s: float | None,
    declared: ExpectedStream | None,
) -> Horizons:
    """`share_used` and `time_left_s` are of the tightest race: ingest against the provider's
    retention, apply against the topic's, the cursor's age against its lifetime.
    """
    topic_s = topic_retention_s(log.topic) if log else None
    upstream_s = declared.upstream_retention_s if declared else None
    oldest_ms = log.oldest_ms.get(partition) if log else None
    token_s = declared.token_lifetime_s if declared else None
    races = [(ingest_lag_s, upstream_s), (apply_lag_s, topic_s), (cursor_age_s, token_s)]
    known = [(lag, limit) for lag, limit in races if lag is not None and limit is not None]
    tombstones = log.topic.get("delete.retention.ms") if log else None
    return Horizons(
        upstream_s=upstream_s,
        topic_known=log is not None,
        topic_s=topic_s,
        topic_observed_s=None if oldest_ms is None else max(0.0, now_us / 1e6 - oldest_ms / 1e3),
        tombstones_s=None if tombstones is None else int(tombstones) / 1e3,
        token_s=token_s,
        share_used=max((lag / limit for lag, limit in known), default=None),
        time_left_s=min((limit - lag for lag, limit in known), default=None),
    )
