"""Tenants that come and go while running, and lists that break."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import weakref
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from ingest.pollers import Pollers
from ingest.roster import change
from ingest.tenancy import Tenancy
from schemas.definitions.load import Definitions, load_folder
from schemas.definitions.problems import DefinitionError
from schemas.failpoints import none
from schemas.settings import Settings
from tests.unit.ingest.polling import EVENTS, write

FILE = EVENTS.replace("    limits:", "    tenants: {file: tenants.yaml}\n    limits:")
FILE = FILE.replace("URL", "http://127.0.0.1:9").replace("get: /events", "get: /{tenant.id}")
ONCE = EVENTS.replace("URL", "http://127.0.0.1:9")


def definitions(folder: Path, listed: str, text: str = FILE) -> Definitions:
    (folder / "tenants.yaml").write_text(listed)
    write(folder, text)
    return load_folder(folder).check()


def ids(tenancy: Tenancy, loaded: Definitions) -> list[str | None]:
    found = tenancy.of(loaded.sources["shop"])
    return [None if tenant is None else tenant.id for tenant in found]


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_list_is_read_again_when_it_is_due(tmp_path: Path) -> None:
    loaded, clock = definitions(tmp_path, "- id: north"), Clock()
    tenancy = Tenancy(loaded.sources, clock)
    asyncio.run(tenancy.begin())
    assert tenancy.next_look_s == 10.0
    (tmp_path / "tenants.yaml").write_text("[{id: north}, {id: south}]")
    assert asyncio.run(tenancy.look()) == frozenset()
    assert ids(tenancy, loaded) == ["north"]
    clock.now_s = 10.0
    assert asyncio.run(tenancy.look()) == {"shop"}
    assert ids(tenancy, loaded) == ["north", "south"]
    clock.now_s = 20.0
    assert asyncio.run(tenancy.look()) == frozenset(), "the same list again is no news"


@pytest.mark.parametrize(
    "broken",
    ["- {id: north", "", "- {name: x}", "[{id: a}, {id: a}]", "\x00", None, "key: s3cr3t-value"],
)
def test_a_broken_list_keeps_the_last_good_one_and_says_so(
    tmp_path: Path, broken: str | None
) -> None:
    loaded, clock = definitions(tmp_path, "- {id: north, key: s3cr3t-value}"), Clock()
    tenancy = Tenancy(loaded.sources, clock)
    asyncio.run(tenancy.begin())
    path = tmp_path / "tenants.yaml"
    path.unlink() if broken is None else path.write_text(broken)
    stale = ("gapless_ingest_tenants_stale", {"source": "shop"})
    with capture_logs() as logs:
        for clock.now_s in (10.0, 20.0, 30.0):
            assert asyncio.run(tenancy.look()) == frozenset()
    assert ids(tenancy, loaded) == ["north"]
    assert REGISTRY.get_sample_value(*stale) == 1
    [told] = [line for line in logs if line["log_level"] == "error"]  # once, not at every look
    assert told["source"] == "shop" and told["error"]
    assert "s3cr3t" not in repr(logs)
    path.write_text("- id: south")
    clock.now_s = 40.0
    assert asyncio.run(tenancy.look()) == {"shop"}
    assert REGISTRY.get_sample_value(*stale) == 0


def test_an_empty_list_is_a_list(tmp_path: Path) -> None:
    loaded, clock = definitions(tmp_path, "- id: north"), Clock()
    tenancy = Tenancy(loaded.sources, clock)
    asyncio.run(tenancy.begin())
    (tmp_path / "tenants.yaml").write_text("list: []")
    clock.now_s = 10.0
    assert asyncio.run(tenancy.look()) == {"shop"}
    assert ids(tenancy, loaded) == []


def command(script: str) -> str:
    words = json.dumps(["sh", "-c", script])
    return FILE.replace("{file: tenants.yaml}", f"{{command: {words}, every: 2m}}")


def test_a_command_prints_the_tenants_and_runs_in_the_definitions_folder(tmp_path: Path) -> None:
    loaded, clock = definitions(tmp_path, "- id: north", command("cat tenants.yaml")), Clock()
    tenancy = Tenancy(loaded.sources, clock)
    asyncio.run(tenancy.begin())
    assert (ids(tenancy, loaded), tenancy.next_look_s) == (["north"], 120.0)
    (tmp_path / "tenants.yaml").write_text(json.dumps([{"id": "south", "plan": 3}]))
    clock.now_s = 120.0
    assert asyncio.run(tenancy.look()) == {"shop"}
    assert ids(tenancy, loaded) == ["south"]


def test_a_command_is_not_run_to_check_a_definition(tmp_path: Path) -> None:
    definitions(tmp_path, "", command("touch ran"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo '- id: a'; exit 3", "exit code 3"),
        ("echo '- {key: s3cr3t-value}'", "a tenant needs an `id`"),
        ("printf '\\377'", "not UTF-8"),
        ("yes", "larger than 33,554,432 bytes"),
    ],
)
def test_a_command_that_fails_at_first_stops_and_says_why(
    tmp_path: Path, script: str, said: str
) -> None:
    loaded = definitions(tmp_path, "", command(script))
    with pytest.raises(DefinitionError, match=said) as caught:
        asyncio.run(Tenancy(loaded.sources, Clock()).begin())
    assert "s3cr3t" not in str(caught.value)


def test_a_source_without_tenants_is_never_read_again(tmp_path: Path) -> None:
    loaded = definitions(tmp_path, "", ONCE)
    tenancy = Tenancy(loaded.sources, Clock())
    asyncio.run(tenancy.begin())
    assert (ids(tenancy, loaded), tenancy.next_look_s) == ([None], None)


def test_pollers_of_tenants_that_stayed_are_the_same(tmp_path: Path) -> None:
    loaded = definitions(tmp_path, "[{id: a, x: 1}, {id: b, x: 1}, {id: c, x: 1}]")
    pollers = Pollers(loaded, Settings(partitions=1), none)
    before = pollers.of(0)
    assert sorted(before) == ["shop/events/a", "shop/events/b", "shop/events/c"]
    (tmp_path / "tenants.yaml").write_text("[{id: a, x: 1}, {id: b, x: 2}, {id: d, x: 1}]")
    pollers.tenancy = Tenancy(loaded.sources, Clock())  # which has read nothing yet
    again = pollers.again(0, before)
    found = change(before, again)
    assert sorted(found.ended) == ["shop/events/b", "shop/events/c"]
    assert sorted(found.begun) == ["shop/events/b", "shop/events/d"]
    assert again["shop/events/a"] is before["shop/events/a"]


def test_following_tells_of_changes_until_nothing_can_change(tmp_path: Path) -> None:
    loaded = definitions(
        tmp_path,
        "- id: north",
        FILE.replace("{file: tenants.yaml}", "{file: tenants.yaml, every: 20ms}"),
    )

    async def main() -> None:
        pollers = Pollers(loaded, Settings(partitions=1), none)
        await pollers.tenancy.begin()
        known, changed = pollers.of(0), asyncio.Event()
        following = asyncio.create_task(pollers.follow(changed.set))
        swapped = tmp_path / "next"
        swapped.write_text("[{id: north}, {id: south}]")
        os.replace(swapped, tmp_path / "tenants.yaml")
        async with asyncio.timeout(10):
            await changed.wait()
        assert list(pollers.again(0, known)) == ["shop/events/north", "shop/events/south"]
        # who went is let go of: tenants may come and go for years
        gone, known = weakref.ref(known["shop/events/north"]), {}
        swapped.write_text("[{id: south}]")
        os.replace(swapped, tmp_path / "tenants.yaml")
        async with asyncio.timeout(10):
            while gone() is not None:
                gc.collect()
                await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await pollers.close()
        fixed = Pollers(definitions(tmp_path, "", ONCE), Settings(partitions=1), none)
        await fixed.tenancy.begin()
        async with asyncio.timeout(1):
            await fixed.follow(changed.set)

    asyncio.run(main())


NAMES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 2))


@given(NAMES, NAMES)
@settings(max_examples=200)
def test_a_change_applied_to_what_was_gives_what_is(
    before: dict[str, int], after: dict[str, int]
) -> None:
    pool = {(name, kind): object() for name in "abcdefgh" for kind in range(3)}
    was = {name: pool[name, kind] for name, kind in before.items()}
    now = {name: pool[name, kind] for name, kind in after.items()}
    found = change(was, now)  # type: ignore[arg-type]
    running = {name: poller for name, poller in was.items() if name not in found.ended}
    assert not set(running) & set(found.begun), "nobody is polled twice at a time"
    running |= {name: now[name] for name in found.begun}
    assert running == now
