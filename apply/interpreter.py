"""How the interpreter is set for a process that decodes on one thread and writes on another."""

from __future__ import annotations

import gc
import sys

# Two threads share the interpreter; at the default of 5 ms every answer of Postgres would wait for
# the decoder that long.
_SWITCH_S = 0.0005
# What batches in flight hold is no garbage: looking through it again and again took a sixth of the
# time. The count falls when a batch goes, so only true cycles ever reach this.
_UNTOUCHED_OBJECTS = 50_000


def tune() -> None:
    """Once everything is loaded, before the first batch."""
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(_UNTOUCHED_OBJECTS)
