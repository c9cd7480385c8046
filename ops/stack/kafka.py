"""Real Apache Kafka (KRaft, each node broker and controller), for development and tests.

Listens on 127.0.0.1 only. Settings are those of one small node; with three nodes the replicated
internal topics are kept on all of them, so that any one may be killed.
"""

from __future__ import annotations

import base64
import functools
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ops.stack.errors import StackError
from ops.stack.folder import FolderLock, Ports, write_private
from ops.stack.java import java, kafka_jars
from ops.stack.process import Command, Process

_READY_S = 90.0
_HEAP = ("-Xms96m", "-Xmx512m")
_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
_LOG4J = Path(__file__).with_name("log4j2.properties")
_PARTITIONS_OF_INTERNAL_TOPICS = 5


class KafkaNode:
    """One broker (and controller) with its data below `folder`, kept across restarts."""

    def __init__(self, folder: Path, lock: FolderLock, number: int, *, brief: bool) -> None:
        """`brief`: a broker for minutes, which the compiler for long runs would only slow down."""
        self.folder = folder
        self._compiler = [_QUICK_COMPILER] if brief else []
        self._number = number
        self._process = Process(f"Kafka node {number}", folder / "output.log", lock)

    @property
    def pid(self) -> int:
        """The broker's process id. Raises StackError if it does not run."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the broker's process exists."""
        return self._process.running

    def launch(self, properties: dict[str, str], cluster_id: str, jars: Sequence[Path]) -> None:
        """Starts the broker, at first use after formatting its folder; does not wait for it."""
        # A killed Java leaves its unpacked libraries behind; they go with the next start.
        temporary = self.folder / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        settings = self.folder / "server.properties"
        text = "".join(f"{name}={value}\n" for name, value in sorted(properties.items()))
        write_private(settings, text)
        program = [str(java()), "-cp", os.pathsep.join(map(str, jars)), *_OPTIONS]
        program += [f"-Dlog4j2.configurationFile={_LOG4J}", f"-Djava.io.tmpdir={temporary}"]
        if not (self.folder / "formatted").exists():
            self._format([*program, f"-Dgapless.log={self.folder / 'format.log'}"], cluster_id)
        command = Command(
            arguments=[
                *program,
                *_HEAP,
                *self._compiler,
                f"-Dgapless.log={self.folder / 'server.log'}",
                "kafka.Kafka",
                str(settings),
            ],
            stop_signal=signal.SIGTERM,
            environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        )
        self._process.start(command)

    def _format(self, program: list[str], cluster_id: str) -> None:
        arguments = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        arguments += ["--cluster-id", cluster_id]
        arguments += ["--config", str(self.folder / "server.properties")]
        done = subprocess.run(
            [*program, _QUICK_COMPILER, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StackError(f"cannot format {self.folder}: {(done.stderr or done.stdout).strip()}")
        (self.folder / "formatted").touch()

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Waits until `ready` says yes. Raises StackError with the end of the broker's output."""
        self._process.wait_ready(ready, _READY_S)

    def stop(self) -> None:
        """Stops the broker in an orderly way."""
        self._process.stop()

    def kill(self) -> None:
        """Ends the broker by SIGKILL."""
        self._process.kill()


class Kafka:
    """A cluster of one node or more."""

    def __init__(
        self,
        folder: Path,
        lock: FolderLock,
        ports: Ports,
        *,
        port: int | None,
        brokers: int,
        brief: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._lock = lock
        self._ports = ports
        self._tell = tell
        self._wanted_port = port
        self.nodes = [
            KafkaNode(folder / f"kafka-{number}", lock, number, brief=brief)
            for number in range(1, brokers + 1)
        ]

    @property
    def pid(self) -> int:
        """The first node's process id. Raises StackError if it does not run."""
        return self.nodes[0].pid

    @property
    def running(self) -> bool:
        """Whether every node's process exists."""
        return all(node.running for node in self.nodes)

    @property
    def address(self) -> str:
        """The bootstrap servers; the same before and after restarts."""
        return ",".join(f"127.0.0.1:{self._port(number)}" for number in self._numbers())

    def start(self) -> str:
        """Starts the nodes that do not run and waits until all answer. Returns the address.

        Raises StackError or StackBusy.
        """
        self._lock.acquire()
        jars = kafka_jars(self._tell)
        for number, node in zip(self._numbers(), self.nodes, strict=True):
            if not node.running:
                node.launch(self._properties(number), self._cluster_id(), jars)
        for number, node in zip(self._numbers(), self.nodes, strict=True):
            node.wait_ready(functools.partial(_listens, self._port(number)))
        self.nodes[0].wait_ready(self._answers)
        return self.address

    def stop(self) -> None:
        """Stops every node, all at once: one by one, the last would wait for its lost quorum."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(KafkaNode.stop, self.nodes))

    def kill(self) -> None:
        """Ends every node by SIGKILL; `start` recovers what was written."""
        for node in self.nodes:
            node.kill()

    def _numbers(self) -> range:
        return range(1, len(self.nodes) + 1)

    def _port(self, number: int) -> int:
        return self._ports.get(f"kafka-{number}", self._wanted_port if number == 1 else None)

    def _controller_port(self, number: int) -> int:
        return self._ports.get(f"controller-{number}")

    def _cluster_id(self) -> str:
        path = self._folder / "kafka-cluster"
        if not path.exists():
            path.write_text(new_cluster_id())
        return path.read_text()

    def _properties(self, number: int) -> dict[str, str]:
        copies = min(3, len(self.nodes))
        voters = (f"{n}@127.0.0.1:{self._controller_port(n)}" for n in self._numbers())
        broker = f"PLAINTEXT://127.0.0.1:{self._port(number)}"
        controller = f"CONTROLLER://127.0.0.1:{self._controller_port(number)}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"{broker},{controller}",
            "advertised.listeners": broker,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._folder / f"kafka-{number}" / "data"),
            **node_settings(copies),
        }

    def _answers(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            return len(client.list_topics(timeout=5).brokers) == len(self.nodes)
        except KafkaException:
            return False


def new_cluster_id() -> str:
    """A random id as Kafka writes them. None begins with a dash: its tools would see an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def node_settings(copies: int) -> dict[str, str]:
    """Broker settings of a small node, apart from its addresses; `copies`: replicas of topics."""
    return {**_replication(copies), **_SMALL, **_QUICK}


def _replication(copies: int) -> dict[str, str]:
    enough = str(max(1, copies - 1))
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    settings = {
        "default.replication.factor": str(copies),
        "min.insync.replicas": enough,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.min.isr": enough,
    }
    for name in internal:
        settings[f"{name}.replication.factor"] = str(copies)
        settings[f"{name}.num.partitions"] = str(_PARTITIONS_OF_INTERNAL_TOPICS)
    return settings


# A topic that nobody created is a mistake that must show.
_SMALL = {
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.io.buffer.size": "131072",
}
# What a person or a test would otherwise wait for.
_QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "log.initial.task.delay.ms": "1000",
    # After a kill the controller refuses the broker until its old session has timed out.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
