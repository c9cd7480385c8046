"""`gapless probe` against servers that nobody here wrote: what their definitions claim holds."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.couch import server as couch_server
from tests.acceptance.couch.server import Couch, installed_couch
from tests.acceptance.github import server as github_server
from tests.acceptance.github.server import GitHub, installed_emulate
from tests.acceptance.kinto import server as kinto_server
from tests.acceptance.kinto.server import Kinto, installed_kinto
from tests.acceptance.pocket import server as pocket_server
from tests.acceptance.pocket.server import Pocket, installed_pocketbase
from tests.acceptance.scene import definitions_with, writing
from tests.acceptance.writing import Writer
from tests.integration.ops.verbs import run

NOWHERE = {"GAPLESS_KAFKA": "127.0.0.1:9", "GAPLESS_POSTGRES": "postgresql://127.0.0.1:9/none"}


@pytest.fixture
def kinto(tmp_path: Path) -> Iterator[Kinto]:
    with Kinto(installed_kinto(), tmp_path) as server:
        chance = random.Random(3)
        for number in range(100):
            server.create("papers", chance)
            if number % 10 == 9:
                server.delete("papers", chance)
        yield server


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    with GitHub(installed_emulate(), tmp_path) as server:
        chance = random.Random(5)
        for _ in range(6):
            server.create_label("kernel", chance)
        for _ in range(45):
            server.open_issue("kernel", chance)
            server.edit_issue("kernel", chance)
        yield server


@pytest.fixture
def pocket(tmp_path: Path) -> Iterator[Pocket]:
    """With fewer records than a probe's listing may have pages, some of them written together."""
    with Pocket(installed_pocketbase(), tmp_path) as server:
        chance = random.Random(7)
        for _ in range(40):
            server.create("ada", chance)
        server.batch("ada", chance)
        for _ in range(20):
            server.change("ada", chance)
        yield server


@pytest.fixture
def couch(tmp_path: Path) -> Iterator[Couch]:
    with Couch(installed_couch(), tmp_path) as server:
        chance = random.Random(9)
        for _ in range(36):
            server.create("papers", chance)
        for _ in range(4):
            server.change("papers", chance)
            server.delete("papers", chance)
        yield server


def probe(
    definitions: Path, source: str, environment: dict[str, str], *words: str
) -> dict[str, dict[str, dict[str, Any]]]:
    """Findings by stream and by `plan: name`."""
    full = {**NOWHERE, "GAPLESS_DEFINITIONS": str(definitions), **environment}
    done = run(full, "probe", source, "--json", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    return {
        stream["stream"]: {f"{f['plan']}: {f['name']}": f for f in stream["findings"]}
        for stream in told["streams"]
    }


def test_kinto_keeps_what_its_definition_says(kinto: Kinto) -> None:
    environment = {"KINTO_URL": kinto.url, "KINTO_PASSWORD": kinto_server.PASSWORD}
    found = probe(kinto_server.HERE, "kinto", environment)["records"]
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["cursor: cursor"] == "goes on"
    assert observed["cursor: cursor, used twice"] == "same page"
    assert observed["cursor: page cap"] == "25"
    assert observed["cursor: token, used twice"] == "same page"
    assert observed["cursor: token, elsewhere"] == "same page"
    # Without `_since` it lists no tombstones, and nothing is deleted meanwhile.
    assert observed["cursor: deletes"] == "none seen"
    assert observed["snapshot: page cap"] == "25"
    assert observed["snapshot: same walk again"] == "same, 2 of 2"


def test_kinto_shows_what_is_deleted_meanwhile(kinto: Kinto) -> None:
    environment = {"KINTO_URL": kinto.url, "KINTO_PASSWORD": kinto_server.PASSWORD}
    with writing(Writer(kinto.actions("papers"), seed=7, every_s=0.05)):
        found = probe(kinto_server.HERE, "kinto", environment)["records"]
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["cursor: deletes"].startswith("shown, ")
    assert observed["cursor: cursor"].startswith("goes on")
    # whether something changed between two walks is a matter of luck
    assert observed["cursor: same walk again"].startswith("same")


def test_emulate_keeps_what_its_definition_says(github: GitHub) -> None:
    environment = {"GITHUB_URL": github.url, "GITHUB_TOKEN": github_server.READER}
    streams = probe(github_server.HERE, "github", environment, "--requests", "150")
    issues = streams["issues"]
    observed = {name: finding["observed"] for name, finding in issues.items()}
    assert observed["interval: filter, direction"] == "works"
    # Compared as text, a second leaves out what was changed within it: see README.md.
    assert observed["interval: bounds"] == "(·"
    assert issues["interval: bounds"]["would_lose"] == "nothing"
    assert observed["interval: order"] == "asc"
    assert observed["interval: token, used twice"] == "same page"
    assert observed["snapshot: same walk again"] == "same, 2 of 2"
    assert set(streams) == {"issues", "comments", "labels"}


def probe_pocket(pocket: Pocket, folder: Path, *words: str) -> dict[str, dict[str, Any]]:
    definitions = definitions_with(folder, pocket_server.HERE, {"pocket": pocket_server.PASSWORD})
    environment = {"POCKET_URL": pocket.url, "POCKET_USER": pocket_server.USER}
    return probe(definitions, "pocket", environment, *words)["items"]


def test_pocketbase_keeps_what_its_definition_says(pocket: Pocket, tmp_path: Path) -> None:
    found = probe_pocket(pocket, tmp_path)
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["keyset: filter, direction"] == "works"
    assert observed["keyset: bounds"] == "[)"
    assert observed["keyset: granularity"] == "1ms, stored 1ms"
    assert observed["keyset: order"] == "asc"
    assert observed["keyset: order of ties"] == "by id"
    assert observed["keyset: position"] == "goes on"
    assert observed["keyset: page cap"].startswith("at least ")
    assert observed["keyset: same walk again"] == "same, 3 of 3"
    assert observed["keyset: deletes"] == "none seen"
    assert found["keyset: deletes"]["would_lose"] == "found by snapshot"
    assert observed["snapshot: lists all"] == "all 40"
    assert observed["snapshot: same walk again"] == "same, 2 of 2"


def test_pocketbase_shows_at_once_what_is_written_meanwhile(pocket: Pocket, tmp_path: Path) -> None:
    clients = ("ada", "bela", "cleo")
    with writing(*(Writer(pocket.actions(c), seed=len(c), every_s=0.2) for c in clients)):
        found = probe_pocket(pocket, tmp_path, "--requests", "120")
    late = found["keyset: visible after"]
    assert late["observed"].startswith(("at once, ", "up to "))
    assert {finding["would_lose"] for finding in found.values()} <= {
        "nothing",
        "found by snapshot",
        "unknown",
    }
    assert found["keyset: bounds"]["observed"] == "[)"


def probe_couch(couch: Couch, folder: Path) -> dict[str, dict[str, Any]]:
    definitions = definitions_with(folder, couch_server.HERE, {"couch": couch_server.PASSWORD})
    environment = {"COUCH_URL": couch.url, "COUCH_USER": couch_server.USER}
    return probe(definitions, "couch", environment)["docs"]


def test_couchdb_keeps_what_its_definition_says(couch: Couch, tmp_path: Path) -> None:
    found = probe_couch(couch, tmp_path)
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["cursor: cursor"] == "goes on"
    assert observed["cursor: cursor, used twice"] == "same page"
    assert observed["cursor: cursor, elsewhere"] == "same page"
    assert observed["cursor: same walk again"] == "same, 3 of 3"
    assert observed["cursor: deletes"] == "shown, 4 seen"
    assert observed["snapshot: lists all"].startswith("all ")
    assert observed["snapshot: same walk again"] == "same, 2 of 2"
    # A page of everything is followed by one that repeats its last record.
    assert observed["snapshot: page cap"] == "at least 33"
    assert {finding["would_lose"] for finding in found.values()} == {"nothing"}


def test_couchdb_goes_on_while_it_is_written_to(couch: Couch, tmp_path: Path) -> None:
    with writing(Writer(couch.actions("papers"), seed=7, every_s=0.05)):
        found = probe_couch(couch, tmp_path)
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["cursor: cursor"].startswith("goes on")
    assert observed["cursor: deletes"].startswith("shown, ")
    assert observed["cursor: same walk again"].startswith("same")
    assert found["cursor: same walk again"]["would_lose"] == "nothing"
