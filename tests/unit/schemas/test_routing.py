"""Routing agrees with Kafka's Java client, or another producer would put a key elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.routing import murmur2, route


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_as_the_java_client_computes_it(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % 2**32


@given(st.text(min_size=1), st.integers(1, 1024))
def test_route_is_a_partition(text: str, partitions: int) -> None:
    assert 0 <= route(text, partitions) < partitions


def test_no_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        route("a/b", 0)
