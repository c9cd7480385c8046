"""What an operator is told who typed the obvious: the command that fits, and which version is live."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import structlog.testing

from apply.faults import NotPrepared
from apply.service import REFUSED, serve
from tests.integration.apply.scene import Scene
from tests.integration.apply.test_shadow import TO_TEXT, fill, serving
from tests.workers import workers


def test_every_verb_names_the_version_that_is_live_and_what_to_type(
    scene: Scene, tmp_path: Path
) -> None:
    with serving(scene):
        fill(scene)
        scene.settle()
    older = tmp_path / "older"
    for name in ("sources", "mappings"):
        shutil.copytree(scene.folder / name, older / name)
    with workers(scene.environment, tmp_path) as group:

        def says(verb: str, *words: str, code: int = 0) -> None:
            done = group.run(verb)
            said = done.stdout + done.stderr
            assert done.returncode == code, said
            for word in words:
                assert word in said, said

        scene.write(1, **TO_TEXT)
        unraised = (
            "the mapping changed, its version did not. Write `version: 2` in mappings/accounts"
        )
        says("replay accounts --dry-run", f"But {unraised}")
        says("check accounts", unraised)
        scene.write(2, **TO_TEXT)
        says("check accounts", "valid")
        says(
            "replay accounts --shadow", "Version 2 is live.\n",
            "gapless replay accounts --swap-back --definitions FOLDER, where FOLDER has the definitions of "
            "version 1, brings the table of version 1 back",
        )  # fmt: skip
        says("replay accounts --swap-back", "give the definitions of version 1 (--def", code=4)
        says(
            f"replay accounts --swap-back --definitions {older}", "Version 1 is live.\n",
            "Put version 1 into mappings/accounts.yaml of every worker: one that starts with version 2 is "
            "refused.", "where FOLDER has the definitions of version 2, brings the table of version 2 back",
        )  # fmt: skip
        swapped = "version 2 was swapped for version 1, which is live"
        says("apply", swapped, "else put version 1 into mappings/accounts.yaml", code=4)
        says("migrate", swapped, code=2)
        says("check accounts", swapped)
        says(
            "explain accounts a-1 north", "by accounts v1\n",
            "Version 1 of accounts is live; these definitions are version 2",
        )  # fmt: skip
        says("replay accounts --drop", "no way back, and its number is not free again")
        retired = (
            "2 is retired: it was swapped back for version 1, which is live, and its table dropped"
        )
        raised = (
            "Write `version: 3` to use this definition again; else put version 1 into mappings/"
        )
        says("apply", retired, raised, code=4)
        says("migrate", retired, code=2)
        says("check accounts", retired, raised)
        says("replay accounts --dry-run", retired, raised)
        says("replay accounts --shadow", "write `version: 3`", code=4)
        says(f"migrate --definitions {older}", "The database is ready.")
        says(
            f"replay accounts --definitions {older}", "observation in the log gives is of version 1"
        )


def test_a_worker_that_finds_the_definitions_it_had_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was refused for: reading the same once more would go on for ever."""

    def refuse(*_: object) -> None:
        raise NotPrepared("mapping accounts now belongs to another version")

    monkeypatch.setattr("apply.store.still_ours", refuse)
    with structlog.testing.capture_logs() as logs:
        assert serve(scene.settings, scene.definitions, threading.Event()) == REFUSED
    [said] = [one["why"] for one in logs if one["event"] == "refused"]
    assert said.startswith("mapping accounts now belongs to another version. The definitions in ")
    assert "are still those that this worker has run: put that version there" in said
