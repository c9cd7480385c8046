"""A written deployment per test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Lane
from tests.integration.ops.written import Deployment


@pytest.fixture
def deployment(lane: Lane, tmp_path: Path) -> Deployment:
    """Consistent topics and tables, with the example written."""
    found = Deployment(lane, tmp_path)
    found.example()
    return found
