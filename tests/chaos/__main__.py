"""Runs the pipeline under random disturbances: `python -m tests.chaos --minutes 10 --seed 7`.

The same seed draws the same disturbances; when they meet which step is up to the machine. Exit code 1
with the seed if a promise was broken, and then everything is kept for a look.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time

from tests.chaos import disturbances
from tests.chaos.world import World, broken_in

_RATE = 20.0
_LIVE_EVERY = 6
_FINAL_EVERY_S = 100.0


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None)
    names = sorted(each.__name__ for each in disturbances.EVERY)
    parser.add_argument("--only", nargs="+", default=[], choices=names, help="draw only these")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    again = f"python -m tests.chaos --minutes {given.minutes:g} --seed {seed}"
    again += f" --only {' '.join(given.only)}" if given.only else ""
    tell(f"seed {seed}; again: {again}")
    dice = random.Random(seed)
    broken = broken_in(_RATE, tell, lambda at: _run(at, dice, given.minutes * 60, given.only))
    if broken is not None:
        print(f"\nBROKEN with seed {seed}: {broken}\nagain: {again}", file=sys.stderr)
    return int(broken is not None)


def _run(at: World, dice: random.Random, seconds: float, only: list[str]) -> None:
    until = time.monotonic() + seconds
    at.wait(5)
    final_at = time.monotonic() + _FINAL_EVERY_S
    number = 0
    while time.monotonic() < until:
        number += 1
        tell(f"{number}. {disturbances.one(at, dice, only)}")
        at.wait(dice.choice([0.0, dice.uniform(0, 2), dice.uniform(2, 6)]))
        if number % _LIVE_EVERY == 0:
            at.judge_live()
            tell("   judged while it runs: every promise holds")
        if time.monotonic() > final_at:
            _final(at)
            final_at = time.monotonic() + _FINAL_EVERY_S
    _final(at)
    tell(
        f"clean after {number} disturbances, {at.crew.deaths} deaths of workers"
        f" and {at.scene.provider_written()} writes of the provider"
    )


def _final(at: World) -> None:
    begun = time.monotonic()
    at.judge_final()
    tell(f"   drained, judged and audited in {time.monotonic() - begun:.0f} s: every promise holds")


def tell(text: str) -> None:
    """One line with the time of day."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
