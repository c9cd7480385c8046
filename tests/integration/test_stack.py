"""The local stack: starts, keeps its data, recovers from kill -9, and never outlives its owner."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ops.stack import Addresses, Stack, StackBusy, StackError, running
from ops.stack.account import SHARED
from tests.stack import fresh_folder
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("stack")


def _put(stack: Stack, word: str) -> None:
    """Stores a word in both servers, in a topic and in a table of that name."""
    admin = AdminClient({"bootstrap.servers": stack.kafka.address})
    for created in admin.create_topics([NewTopic(word, 1)]).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": stack.kafka.address, "acks": "all"})
    producer.produce(word, word.encode())
    assert producer.flush(30) == 0
    with psycopg.connect(stack.postgres.address) as connection:
        connection.execute(f"CREATE TABLE {word} AS SELECT %s AS word", [word])


def _in_kafka(address: str, word: str) -> bool:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": word, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([word])
    try:
        message = consumer.poll(30)
        return message is not None and message.value() == word.encode()
    finally:
        consumer.close()


def _in_postgres(address: str, word: str) -> bool:
    with psycopg.connect(address) as connection:
        return connection.execute(f"SELECT word FROM {word}").fetchone() == (word,)


def _word() -> str:
    return f"w{secrets.token_hex(4)}"


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A process that nobody has waited for yet has ended all the same.
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_restart_keeps_data_and_addresses(own_stack: Stack) -> None:
    word = _word()
    before = Addresses(own_stack.kafka.address, own_stack.postgres.address)
    _put(own_stack, word)
    assert running(own_stack.folder) == before
    own_stack.stop()
    assert running(own_stack.folder) is None
    assert own_stack.start() == before
    assert _in_kafka(before.kafka, word)
    assert _in_postgres(before.postgres, word)


def test_killed_servers_recover(own_stack: Stack) -> None:
    word = _word()
    _put(own_stack, word)
    pids = own_stack.kafka.pid, own_stack.postgres.pid
    own_stack.kafka.kill()
    own_stack.postgres.kill()
    assert [_gone(pid) for pid in pids] == [True, True]
    with pytest.raises(StackError, match="not running"):
        _ = own_stack.kafka.pid
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(own_stack.postgres.address)
    kafka, postgres = own_stack.kafka.start(), own_stack.postgres.start()
    assert _in_kafka(kafka, word)
    assert _in_postgres(postgres, word)


def test_postgres_killed_with_sessions_at_work_restarts(own_stack: Stack) -> None:
    word = _word()
    _put(own_stack, word)
    with psycopg.connect(own_stack.postgres.address) as session:
        session.execute(f"INSERT INTO {word} SELECT 'lost' FROM generate_series(1, 10000)")
        own_stack.postgres.kill()
        own_stack.postgres.start()
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    with psycopg.connect(own_stack.postgres.address) as connection:
        assert connection.execute(f"SELECT word FROM {word}").fetchall() == [(word,)]


def test_second_stack_on_one_folder_is_refused(own_stack: Stack) -> None:
    with pytest.raises(StackBusy, match=f"process {os.getpid()}"):
        Stack(own_stack.folder).start()
    assert running(own_stack.folder) is not None


_OWNER = """
import sys, time
from pathlib import Path
from ops.stack import Stack
stack = Stack(Path(sys.argv[1]), fsync=False)
stack.start()
print(stack.kafka.pid, stack.postgres.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = fresh_folder()
    yield folder
    Stack(folder).remove()


def test_servers_end_with_a_killed_owner(folder: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    try:
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(_gone(pid) for pid in pids)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
    # The next stack waits for the old servers instead of meeting them.
    with Stack(folder, fsync=False) as stack:
        assert [_gone(pid) for pid in pids] == [True, True]
        _put(stack, _word())
    assert running(folder) is None


def test_servers_end_with_their_killed_watcher(own_stack: Stack) -> None:
    pid = own_stack.kafka.pid
    status = Path(f"/proc/{pid}/status").read_text()
    watcher = int(status.split("PPid:")[1].split()[0])
    os.kill(watcher, signal.SIGKILL)
    wait_until(lambda: _gone(pid), 10, "the end of the broker")


def test_postgres_runs_out_of_a_closed_folder_and_never_as_root() -> None:
    closed = fresh_folder()
    closed.chmod(0o700)
    stack = Stack(closed / "stack", fsync=False)
    try:
        address = stack.postgres.start()
        owner = Path(f"/proc/{stack.postgres.pid}").stat().st_uid
        place = (stack.folder / "postgres").resolve()
        if os.geteuid() == 0:
            assert owner != 0
            assert place.parent == SHARED
        else:
            assert owner == os.geteuid()
        with psycopg.connect(address) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        stack.postgres.kill()
        with psycopg.connect(stack.postgres.start()) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (1,)
    finally:
        stack.remove()
    assert not place.exists()
    closed.rmdir()


@pytest.mark.parametrize("own_stack", [{"brokers": 3}], indirect=True)
def test_three_brokers_survive_the_loss_of_one(own_stack: Stack) -> None:
    word = _word()
    admin = AdminClient({"bootstrap.servers": own_stack.kafka.address})
    for created in admin.create_topics([NewTopic(word, 3, 3)]).values():
        created.result(30)
    own_stack.kafka.nodes[2].kill()
    producer = Producer({"bootstrap.servers": own_stack.kafka.address, "acks": "all"})
    for partition in range(3):
        producer.produce(word, word.encode(), partition=partition)
    assert producer.flush(60) == 0
    own_stack.kafka.start()
    assert _in_kafka(own_stack.kafka.address, word)
