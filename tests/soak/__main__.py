"""Runs the pipeline for long under a changing load: `python -m tests.soak --minutes 120 --seed 7`.

Disturbances are rare; what is looked for grows slowly: memory, lag, whatever never drains. Exit code 1
with the seed if a promise was broken or a worker held more memory than a worker may.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time

from tests.chaos import disturbances
from tests.chaos.__main__ import tell
from tests.chaos.world import World, broken_in

_RATES = (0.0, 2.0, 10.0, 30.0, 100.0)
_STRETCH_S = (30.0, 180.0)
_FINAL_EVERY = 4


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    tell(f"seed {seed}")
    dice = random.Random(seed)
    broken = broken_in(_RATES[2], tell, lambda at: _run(at, dice, given.minutes * 60))
    if broken is not None:
        print(f"\nBROKEN with seed {seed}: {broken}", file=sys.stderr)
    return int(broken is not None)


def _run(at: World, dice: random.Random, seconds: float) -> None:
    until = time.monotonic() + seconds
    stretch = 0
    while time.monotonic() < until:
        stretch += 1
        at.traffic(dice.choice(_RATES))
        for_s = min(dice.uniform(*_STRETCH_S), max(0.0, until - time.monotonic()))
        tell(f"{stretch}. {at.rate:.0f} writes per second for {for_s:.0f} s")
        at.wait(for_s)
        if stretch % _FINAL_EVERY == 0:
            tell(f"   {disturbances.one(at, dice)}")
            _final(at)
        else:
            at.judge_live()
    _final(at)


def _final(at: World) -> None:
    begun = time.monotonic()
    at.judge_final()
    peaks = ", ".join(
        f"{slot} {at.crew.peak_bytes[worker.name] // 1_000_000} MB"
        for slot, worker in sorted(at.crew.running.items())
    )
    tell(f"   drained, judged and audited in {time.monotonic() - begun:.0f} s; {peaks}")


if __name__ == "__main__":
    raise SystemExit(main())
