"""A test that skips passes anywhere but in continuous integration, where everything must be there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SKIPPING = 'import pytest\n\n\ndef test_of_a_tool():\n    pytest.skip("the tool is missing")\n'


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_skip_is_a_failure_in_ci_only(tmp_path: Path, ci: str, code: int) -> None:
    (tmp_path / "test_tool.py").write_text(_SKIPPING)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", "-c", os.devnull, str(tmp_path)],
        env={**os.environ, "CI": ci, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("the tool is missing" in done.stdout) == (ci == "true")
