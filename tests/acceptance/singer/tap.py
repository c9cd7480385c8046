"""A Singer tap that nobody here wrote, in an environment of its own."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.foreign import environment_of, installed

HERE = Path(__file__).parent


def installed_tap() -> Path:
    """The folder of the tap's program; skips the test if it cannot be had."""
    return installed("singer", [HERE / "requirements.lock"], environment_of) / "environment/bin"
