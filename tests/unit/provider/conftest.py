"""One provider for each test module; each test has a tenant of its own, and leaves no setting behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.provider.tenant import Tenant
from tests.upstream import Provider

_TENANTS = 40


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with Provider.start(seed=7, tenants=_TENANTS) as provider:
        yield provider


@pytest.fixture(scope="module")
def names(server: Provider) -> Iterator[str]:
    return iter(sorted({name.partition("/")[0] for name in server.counts()}))


@pytest.fixture
def tenant(server: Provider, names: Iterator[str]) -> Iterator[Tenant]:
    settings = server.settings()
    yield Tenant(server, next(names))
    server.faults()
    server.release()
    server.traffic(0)
    server.settings(**settings)
