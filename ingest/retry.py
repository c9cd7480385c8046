"""How long to wait before trying again: exponential, bounded, with full jitter. Pure."""

from __future__ import annotations

BASE_S = 0.5
CAP_S = 60.0


def backoff_s(attempt: int, share: float) -> float:
    """Seconds before attempt `attempt` + 1 (1 is the first one that failed); `share` is random in [0, 1).

    Full jitter: a crowd of workers that failed together does not return together.
    """
    if attempt < 1:
        raise ValueError("attempts count from 1")
    return float(min(CAP_S, BASE_S * 2 ** min(attempt - 1, 20))) * (0.1 + 0.9 * share)
