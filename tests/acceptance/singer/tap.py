"""A Singer tap that nobody here wrote, in an environment of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.acceptance.foreign import installed, run_installer

HERE = Path(__file__).parent


def installed_tap() -> Path:
    """The folder of the tap's program; skips the test if it cannot be had."""

    def install(folder: Path) -> None:
        run_installer([sys.executable, "-m", "venv", "environment"], folder)
        pip: list[str | Path] = [folder / "environment/bin/python", "-m", "pip", "install"]
        options = ["--quiet", "--disable-pip-version-check", "--require-hashes"]
        run_installer([*pip, *options, "-r", "requirements.lock"], folder)

    return installed("singer", [HERE / "requirements.lock"], install) / "environment/bin"
