"""What may happen to the pipeline at any moment. Each is drawn from the seed and leaves nothing behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from schemas.failpoints import APPLY, INGEST
from tests.chaos.crew import SLOTS
from tests.chaos.world import World

Disturbance = Callable[[World, random.Random], str]
"""Does it and says what it did."""


def kill(at: World, dice: random.Random) -> str:
    slot, pause_s = dice.choice(SLOTS), dice.choice([0.0, dice.uniform(0, 3)])
    at.crew.kill(slot, pause_s)
    return f"kill -9 {slot}, the next one after {pause_s:.1f} s"


def kill_both(at: World, dice: random.Random) -> str:
    stage, pause_s = dice.choice(["ingest", "apply"]), dice.uniform(0, 3)
    for slot in SLOTS:
        if slot.startswith(stage):
            at.crew.kill(slot, pause_s)
    return f"kill -9 every {stage}, the next ones after {pause_s:.1f} s"


def failpoint(at: World, dice: random.Random) -> str:
    slot = dice.choice(SLOTS)
    every = INGEST if slot.startswith("ingest") else APPLY
    name = dice.choice(every)
    action = dice.choice(["kill", "stop", "raise"])
    passes = dice.choice([0, 0, 1, 3, 10])
    rule = f"{name}={passes}*off->1*{action}" if passes else f"{name}=1*{action}"
    at.crew.kill(slot, 0.0, rule)
    return f"kill -9 {slot}, the next one with {rule}"


def freeze(at: World, dice: random.Random) -> str:
    slot, for_s = dice.choice(SLOTS), dice.choice([dice.uniform(0.1, 1), dice.uniform(1, 8)])
    at.crew.freeze(slot, for_s)
    return f"SIGSTOP {slot} for {for_s:.1f} s"


def restart(at: World, dice: random.Random) -> str:
    slot = dice.choice(SLOTS)
    at.crew.restart(slot)
    return f"SIGTERM {slot}"


def provider(at: World, dice: random.Random) -> str:
    kinds = ("status", "status", "status", "delay", "cut", "html", "close", "reset", "gzip_bomb")
    rule: dict[str, object] = {"path": "^/t/", "kind": dice.choice(kinds)}
    rule["probability"] = dice.choice([0.1, 0.3, 1.0])
    if rule["kind"] == "status":
        rule["status"] = dice.choice([429, 500, 502, 503, 504])
        rule["headers"] = {"Retry-After": "1"} if rule["status"] in (429, 503) else {}
    if rule["kind"] == "delay":
        rule["delay_s"] = dice.uniform(0.1, 2)
    if rule["kind"] == "cut":
        rule["chunked"] = dice.random() < 0.5
    if rule["kind"] == "gzip_bomb":
        rule["times"] = 3
    for_s = dice.uniform(0.5, 5)
    at.scene.provider.faults(rule)
    at.wait(for_s)
    at.scene.provider.faults()
    return f"provider: {rule} for {for_s:.1f} s"


def postgres(at: World, dice: random.Random) -> str:
    for_s = dice.uniform(0, 6)
    at.stack.postgres.kill()
    at.wait(for_s)
    at.stack.postgres.start()
    return f"kill -9 PostgreSQL for {for_s:.1f} s"


def kafka(at: World, dice: random.Random) -> str:
    for_s = dice.uniform(0, 6)
    at.stack.kafka.kill()
    at.wait(for_s)
    at.stack.kafka.start()
    return f"kill -9 Kafka for {for_s:.1f} s"


def rate(at: World, dice: random.Random) -> str:
    wanted = dice.choice([0.0, 5.0, 20.0, 20.0, 60.0])
    at.traffic(wanted)
    return f"{wanted:.0f} writes per second"


EVERY: dict[Disturbance, int] = {
    kill: 6,
    kill_both: 2,
    failpoint: 8,
    freeze: 6,
    restart: 3,
    provider: 6,
    postgres: 2,
    kafka: 2,
    rate: 3,
}
"""All of them, with how often each is drawn."""


def one(at: World, dice: random.Random, only: Collection[str] = ()) -> str:
    """Draw one, of those named if any are, and do it; what was done."""
    drawable = {each: often for each, often in EVERY.items() if not only or each.__name__ in only}
    [drawn] = dice.choices(list(drawable), list(drawable.values()))
    return drawn(at, dice)
