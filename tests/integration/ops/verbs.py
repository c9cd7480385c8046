"""Runs verbs of the command line as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests import forked

REPOSITORY = Path(__file__).parents[3]


def run(
    environment: dict[str, str], *words: str, timeout_s: float = 90
) -> subprocess.CompletedProcess[str]:
    """`gapless WORDS` to its end, in the folder of the definitions if there is one."""
    folder = Path(environment.get("GAPLESS_DEFINITIONS", REPOSITORY))
    return forked.run(
        words,
        environment={**os.environ, **environment},
        cwd=folder if folder.is_dir() else REPOSITORY / "tests",
        timeout_s=timeout_s,
    )


def read(environment: dict[str, str], *words: str) -> Any:
    """What `gapless WORDS --json` prints; it must succeed."""
    done = run(environment, *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
