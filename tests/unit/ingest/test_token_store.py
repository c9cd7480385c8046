"""The store of refresh tokens: whole or not at all, for its owner alone, one writer at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from pathlib import Path

import pytest

from ingest.token_store import Kept, StoreUnusable, TokenStore

KEPT = Kept(chain="c", refresh_token="r1", access_token="a1", expires_at=5, written_at=1)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tokens.json"

    async def run() -> None:
        store = TokenStore(path)
        async with store.locked(1):
            assert store.read() is None
            store.prepare(None)
            assert store.read() is None, "preparing changes nothing"
            store.write(KEPT)
        assert TokenStore(path).read() == KEPT

    asyncio.run(run())


def test_nobody_else_may_read_it_whatever_the_umask_is(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    (tmp_path / "tokens.json.new").write_text("left by one that died")
    (tmp_path / "tokens.json.new").chmod(0o666)
    before = os.umask(0)
    try:
        TokenStore(path).write(KEPT)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["tokens.json"]


def test_the_file_is_replaced_and_never_written_into(tmp_path: Path) -> None:
    """Who reads while it is written sees the one or the other, whole."""
    path = tmp_path / "tokens.json"
    store = TokenStore(path)
    store.write(KEPT)
    with path.open("rb") as earlier:
        store.write(Kept(chain="c", refresh_token="r2", access_token="a2", written_at=2))
        assert b"r1" in earlier.read()
    assert b"r2" in path.read_bytes()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("x")
    (tmp_path / "tokens.json.new").symlink_to(target)
    with pytest.raises(StoreUnusable):
        TokenStore(tmp_path / "tokens.json").write(KEPT)
    assert target.read_text() == "x"


def test_what_is_no_store_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(b'{"refresh_token": "mine"}')
    with pytest.raises(StoreUnusable, match="holds no tokens of ours") as caught:
        TokenStore(path).read()
    assert "mine" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_noticed_before_a_token_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    (tmp_path / "tokens.json.new").mkdir()
    with pytest.raises(StoreUnusable, match="cannot be written"):
        TokenStore(path).prepare(None)


def test_a_process_that_hangs_with_the_lock_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    holder = os.open(tmp_path / "tokens.json.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)

    async def run() -> None:
        async with TokenStore(path).locked(0.1):
            raise AssertionError("it was locked")

    with pytest.raises(StoreUnusable, match="locked by another process"):
        asyncio.run(run())
    os.close(holder)

    async def again() -> None:
        async with TokenStore(path).locked(0.1):
            pass

    asyncio.run(again())


def test_only_one_at_a_time_is_inside(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    inside = most = 0

    async def one() -> None:
        nonlocal inside, most
        async with TokenStore(path).locked(30):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    async def run() -> None:
        await asyncio.gather(*(one() for _ in range(5)))

    asyncio.run(run())
    assert most == 1
