"""Freed memory is used again: bodies that come and go are not faulted in anew each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ingest.memory import keep_freed

# Six bodies at once, as pages in flight are, freed together: a heap that shrinks and grows again.
FAULTS = """
import resource, sys
from ingest.memory import keep_freed, prepare
if sys.argv[1] == "kept":
    prepare()
def pages():
    held = [bytes(500_000) for _ in range(6)]
    del held
for _ in range(20):
    pages()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    pages()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed(), reason="another C library than glibc")
def test_bodies_that_come_and_go_are_not_faulted_in_again() -> None:
    assert faults("kept") * 20 < faults("not")
