"""What is expected to go wrong at the start of a process becomes one message, and no traceback."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from apply import metrics, service
from ops import problems
from ops.cli import context
from ops.facts.log import KafkaUnreachable
from ops.stack.folder import FolderLock
from schemas.definitions.load import Definitions, load_folder
from schemas.settings import Settings


def no_definitions(folder: Path) -> Definitions:
    (folder / "sources").mkdir()
    (folder / "sources" / "s.yaml").write_text(
        "gapless: 1\nsource: s\nbase_url: http://localhost\nstreams: {}\n", encoding="utf-8"
    )
    return load_folder(folder)


def test_a_metrics_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        settings = Settings(metrics_port=taken.getsockname()[1])
        with pytest.raises(OSError) as raised:
            metrics.expose(settings.metrics_port)
    found = problems.explain(raised.value, settings)
    assert found is not None and found.exit_code == problems.REFUSED
    assert f"GAPLESS_METRICS_PORT={settings.metrics_port}" in found.message


def test_a_stack_that_is_stopped_is_named_and_not_an_address_that_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("GAPLESS_KAFKA", "GAPLESS_POSTGRES"):
        monkeypatch.delenv(name, raising=False)
    faults = (KafkaUnreachable("refused"), psycopg.OperationalError("connection refused"))
    for fault in faults:  # no stack ever ran here
        found = problems.explain(fault, Settings())
        assert found is not None
        assert "localhost:" in found.message
        assert "`gapless up`" in found.message
    lock = FolderLock(tmp_path / ".gapless")
    lock.acquire()
    lock.release()
    for fault in faults:
        found = problems.explain(fault, Settings())
        assert found is not None and found.exit_code == problems.UNREACHABLE
        first = "The local stack of this folder (.gapless) is not running: `gapless up`."
        assert found.message.splitlines()[0] == first
        assert "localhost" not in found.message
    elsewhere = Settings(kafka="kafka.example:9092")
    found = problems.explain(faults[0], elsewhere)
    assert found is not None and "Kafka at kafka.example:9092" in found.message


def test_other_files_and_ports_keep_their_traceback() -> None:
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/some/file")
    assert problems.explain(denied, Settings(metrics_port=9100)) is None
    taken = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    assert problems.explain(taken, Settings()) is None


def test_a_port_out_of_range_is_a_bad_setting() -> None:
    with pytest.raises(problems.BadSettings, match="METRICS_PORT"):
        context.load_settings(metrics_port=70_000)


@pytest.mark.parametrize("text", ["not a url", "postgresql://u:s3cret@[x/db", "host=a s3cret"])
def test_what_is_no_connection_string_is_refused_at_once_and_not_shown(
    tmp_path: Path, text: str
) -> None:
    settings = Settings(postgres=text)
    with pytest.raises(psycopg.ProgrammingError) as raised:
        service.run(settings, no_definitions(tmp_path))
    found = problems.explain(raised.value, settings)
    assert found is not None and found.exit_code == problems.USAGE
    assert "GAPLESS_POSTGRES" in found.message and "s3cret" not in found.message
    assert conninfo_to_dict(Settings().postgres)["dbname"] == "gapless"
