"""Files of a local stack that were damaged cost what they say, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.stack.folder import FolderLock, Ports, running


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": "x"}', '{"a": 99999999}'])
def test_damaged_ports_are_chosen_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "ports.json").write_text(text)
    port = Ports(tmp_path).get("a")
    assert 0 < port < 65_536
    assert Ports(tmp_path).get("a") == port


def test_a_damaged_note_is_no_address(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire()
    try:
        (tmp_path / "stack.json").write_text('{"kafka": 5, "postgres": []}')
        with pytest.raises(ValueError, match="damaged"):
            running(tmp_path)
    finally:
        lock.release()
