"""A deployment of its own for each test of apply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apply.straight import Straight
from tests.conftest import Lane
from tests.integration.apply.scene import Scene


@pytest.fixture
def make_scene(lane: Lane, tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Scenes with settings of their own; closed after the test."""
    made: list[Scene] = []

    def make(**how: Any) -> Scene:
        made.append(Scene(lane, tmp_path, **how))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


@pytest.fixture
def straight_tries(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What became of each batch that was tried straight into the table: whether it stayed there."""
    tried: list[bool] = []
    land = Straight.land

    def told(self: Straight, *given: Any) -> bool:
        tried.append(land(self, *given))
        return tried[-1]

    monkeypatch.setattr(Straight, "land", told)
    return tried


@pytest.fixture
def scene(make_scene: Callable[..., Scene]) -> Scene:
    """Two log partitions, `accounts` with coarse revisions."""
    return make_scene()
