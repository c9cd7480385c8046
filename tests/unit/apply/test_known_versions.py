"""What is said to a definition whose version is not the live one, and can or cannot become it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apply.known_versions import Version, objection
from apply.replay_report import ReplayRefused
from apply.shadow_versions import refuse_wrong_way, standing
from schemas.definitions.mapping import MappingSpec
from tests.unit.apply import mapped


def known(*states: str) -> list[Version]:
    """Versions 1, 2, … with these states, their hash `h` and their number."""
    return [
        Version(number, number, f"h{number}", state, "orders")
        for number, state in enumerate(states, start=1)
    ]


def spec(version: int, hash_: str | None = None) -> MappingSpec:
    return replace(
        mapped.spec(), name="orders", table="orders", version=version, hash=hash_ or f"h{version}",
        file="mappings/shop.yaml",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("states", "version", "hash_", "message", "advice"),
    [
        (["live"], 1, "other", "the mapping changed, its version did not", "`version: 2` in mappings/shop"),
        (["retired", "live"], 1, None, "version 1 is older than version 2", "`version: 3`"),
        (["retired", "live"], 1, "other", "version 1 is older than version 2", "`version: 3`"),
        (["live", "retired"], 2, "other", "the mapping changed, its version did not", "`version: 3`"),
        (["live", "shadow"], 2, None, "2 is being built beside version 1, which is live", "--shadow`"),
        (["kept", "live"], 1, None, "1 was swapped for version 2, which is live", "--swap-back`"),
        (["live", "kept"], 2, None, "2 was swapped for version 1, which is live", "--swap-back`"),
        (["live", "retired"], 2, None, "2 is retired: it was swapped back for version 1", "`version: 3`"),
        (["retired", "live", "retired"], 2, None, None, None),
        (["live", "retired"], 1, None, None, None),
        (["live", "retired"], 3, None, None, None),
        (["live", "kept"], 3, None, None, None),
        ([], 1, None, None, None),
    ],
)  # fmt: skip
def test_a_definition_hears_which_version_is_live_and_what_to_write(
    states: list[str], version: int, hash_: str | None, message: str | None, advice: str | None
) -> None:
    found = objection(spec(version, hash_), known(*states))
    if message is None or advice is None:
        assert found is None
        return
    assert found is not None
    assert message in found.message
    assert advice in found.advice
    live = states.index("live") + 1
    if hash_ is None:
        assert f"put version {live} into mappings/shop.yaml" in found.advice


def test_a_number_between_those_in_use_is_refused() -> None:
    versions = [
        Version(1, 2, "h2", "live", "orders"),
        Version(2, 5, "h5", "retired", "orders"),
    ]
    found = objection(spec(4), versions)
    assert found is not None and "`version: 6`" in found.advice


def test_a_swap_back_wants_the_definitions_of_the_table_that_stands_aside() -> None:
    versions = known("retired", "kept", "live")
    own, live = standing(spec(3), versions, back=True)
    assert own is live is versions[2]
    with pytest.raises(ReplayRefused, match="give the definitions of version 2"):
        refuse_wrong_way(versions[2], versions[1], back=True)
    refuse_wrong_way(versions[2], versions[1], back=False)  # what the swap left is done
    refuse_wrong_way(versions[1], versions[2], back=True)
    with pytest.raises(ReplayRefused, match="brought back instead of version 3"):
        refuse_wrong_way(versions[1], versions[2], back=False)
    refuse_wrong_way(versions[2], None, back=False)
