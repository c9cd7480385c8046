"""`gapless check MAPPING --from log` where the log gives no records: why, in the words of other verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ops import problems
from ops.check import mapping
from ops.cli.main import build_app
from ops.facts.log import KafkaUnreachable, TopicsMissing
from ops.stack.folder import FolderLock
from schemas.settings import Settings
from tests.unit.definition_files import ORDERS, SHOP, load

EMPTY = "the log has no records of shop/orders yet\n  gapless ingest, or --from provider"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    load(tmp_path, SHOP, ORDERS).check()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAPLESS_KAFKA", raising=False)
    monkeypatch.setenv("GAPLESS_POSTGRES", "postgresql://127.0.0.1:9/none")
    return tmp_path


def told(monkeypatch: pytest.MonkeyPatch, fault: Exception | None) -> str:
    def newest(*_: Any) -> list[Any]:
        if fault is not None:
            raise fault
        return []

    monkeypatch.setattr(mapping, "newest_pages", newest)
    done = CliRunner().invoke(build_app(), ["check", "shop_orders", "--from", "log", "-d", "."])
    assert done.exit_code == problems.UNREACHABLE, done.output
    assert done.stderr == ""
    return done.stdout


def test_a_stack_that_is_stopped_is_named_as_other_verbs_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FolderLock(folder / ".gapless")
    lock.acquire()
    lock.release()
    said = problems.stopped_stack(Settings(), "kafka")
    assert said is not None
    found = told(monkeypatch, KafkaUnreachable("refused"))
    assert "No records                 the log: " + said.replace("\n", "\n  ") in found
    assert "localhost" not in found


@pytest.mark.parametrize("fault", [KafkaUnreachable("refused"), TopicsMissing("none is there")])
def test_so_is_whatever_else_keeps_the_log_from_being_read(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    problem = problems.explain(fault, Settings())
    assert problem is not None
    assert problem.message.replace("\n", "\n  ") in told(monkeypatch, fault)


def test_a_log_without_records_says_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EMPTY in told(monkeypatch, None)
