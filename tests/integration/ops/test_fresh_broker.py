"""A broker that has only just started has no coordinator for most groups yet."""

from __future__ import annotations

import pytest

from ops.facts.log import mirrored
from ops.stack import Stack
from schemas.settings import Settings

pytestmark = pytest.mark.timeout(120)
_GROUPS = 30


def test_the_mirrored_offsets_can_be_asked_for_at_once(own_stack: Stack) -> None:
    """Groups have coordinators of their own; asked by librdkafka's admin client, the process
    ended with a segmentation fault within a few of them."""
    for number in range(_GROUPS):
        settings = Settings(kafka=own_stack.addresses.kafka, prefix=f"fresh{number}.")
        assert mirrored(settings, 2) == {}
