"""One provider for all of these tests; each has a tenant of its own, and leaves no setting behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.hostile.scene import Scene
from tests.upstream import Provider

_TENANTS = 120


@pytest.fixture(scope="package")
def server() -> Iterator[Provider]:
    with Provider.start(seed=11, tenants=_TENANTS, record_bytes=240) as provider:
        yield provider


@pytest.fixture(scope="package")
def names(server: Provider) -> Iterator[str]:
    return iter(sorted({name.partition("/")[0] for name in server.counts()}))


@pytest.fixture
def scene(server: Provider, names: Iterator[str], tmp_path: Path) -> Iterator[Scene]:
    settings = server.settings()
    scene = Scene(server, next(names), names, tmp_path)
    yield scene
    server.faults()
    server.release()
    server.settings(**settings)
    scene.move(-scene.ahead_s)
