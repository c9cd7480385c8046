"""Runs `gapless probe` on a source of the demo, as it is or changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integration.ops.verbs import run


def changed(environment: dict[str, str], source: str, old: str, new: str) -> None:
    file = Path(environment["GAPLESS_DEFINITIONS"]) / f"sources/{source}.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def probe(
    environment: dict[str, str], source: str = "demo_crm", *words: str, code: int | None = None
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The findings of the changes by name, and the whole report."""
    done = run(environment, "probe", source, "--json", *words)
    assert done.returncode == code or (code is None and done.returncode in (0, 1)), (
        done.stdout + done.stderr
    )
    told = json.loads(done.stdout)
    (stream,) = told["streams"]
    found = {f["name"]: f for f in stream["findings"] if f["plan"] == "interval"}
    return found, told
