"""What verbs start from: addresses of a stack that runs, and nothing heavy before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ops.cli.context import STACK_NOTE, load_settings
from ops.stack.folder import Addresses, FolderLock, write_note

ADDRESSES = Addresses(kafka="127.0.0.1:1234", postgres="postgresql://u:p@127.0.0.1:5678/gapless")


@pytest.fixture
def stack_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("GAPLESS_KAFKA", "GAPLESS_POSTGRES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / STACK_NOTE.parent


def note(folder: Path) -> FolderLock:
    lock = FolderLock(folder)
    lock.acquire()
    write_note(folder, ADDRESSES)
    return lock


def test_a_running_stack_is_found(stack_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = note(stack_folder)
    try:
        found = load_settings()
        assert (found.kafka, found.postgres) == (ADDRESSES.kafka, ADDRESSES.postgres)
        monkeypatch.setenv("GAPLESS_KAFKA", "elsewhere:9092")
        assert load_settings().kafka == "elsewhere:9092"
    finally:
        lock.release()


def test_the_note_of_a_killed_stack_is_not_believed(stack_folder: Path) -> None:
    note(stack_folder).release()  # as the kernel does when the owner and its servers are gone
    assert (stack_folder / "stack.json").exists()
    assert load_settings().kafka == "localhost:9092"


def test_no_stack(stack_folder: Path) -> None:
    assert load_settings().kafka == "localhost:9092"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kafka": "x"}'])
def test_a_note_that_makes_no_sense_is_as_none(stack_folder: Path, content: str) -> None:
    lock = note(stack_folder)
    try:
        (stack_folder / "stack.json").write_text(content)
        assert load_settings().kafka == "localhost:9092"
    finally:
        lock.release()


HEAVY = ("ops.stack", "rich", "structlog", "psycopg", "confluent_kafka", "aiohttp", "pydantic")


def modules_after(code: str, folder: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        cwd=folder, capture_output=True, text=True, check=True, timeout=120,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    return set(done.stdout.split())


def test_building_the_application_imports_nothing_heavy(tmp_path: Path) -> None:
    found = modules_after("from ops.cli.main import build_app; build_app()", tmp_path)
    assert found.isdisjoint(HEAVY)


def test_looking_for_a_stack_does_not_import_what_runs_one(stack_folder: Path) -> None:
    lock = note(stack_folder)
    try:
        found = modules_after(
            "from ops.cli.context import load_settings\n"
            f"assert load_settings().kafka == {ADDRESSES.kafka!r}",
            stack_folder.parent,
        )
    finally:
        lock.release()
    assert "ops.stack.folder" in found
    assert found.isdisjoint({"ops.stack.stack", "ops.stack.kafka", "ops.stack.postgres"})
    assert found.isdisjoint({"rich", "structlog"})


@pytest.mark.parametrize("as_json", [False, True])
def test_a_long_running_verb_does_not_log_what_only_finds_faults_of_the_program(
    as_json: bool,
) -> None:
    script = (
        "import structlog\n"
        "from ops.cli import context\n"
        "from schemas.settings import Settings\n"
        f"context.configure_logging(Settings(log_json={as_json}))\n"
        "log = structlog.get_logger('x')\n"
        "log.debug('quiet')\n"
        "log.info('told')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "told" in done.stderr, done.stderr
    assert "quiet" not in done.stderr
