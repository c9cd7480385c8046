"""Kafka and PostgreSQL in containers, through testcontainers, where a Docker engine answers."""

from __future__ import annotations

import contextlib
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ops.stack import Addresses
from ops.stack.folder import free_port
from ops.stack.kafka import node_settings
from tests.waiting import wait_until

KAFKA_IMAGE = "apache/kafka:4.3.1"
POSTGRES_IMAGE = "postgres:18"
_READY_S = 90.0


def engine_answers() -> bool:
    """Whether a Docker engine can be reached as the environment says."""
    import docker

    try:
        client = docker.from_env(timeout=5)
    except docker.errors.DockerException:
        return False
    with contextlib.closing(client):
        try:
            return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False


class Containers:
    """The containers of one run."""

    def __init__(self, *, kafka: bool, postgres: bool) -> None:
        self._kafka = kafka
        self._postgres = postgres
        self._started: list[Any] = []

    def start(self) -> Addresses:
        """Starts what was asked for and waits until it answers; the other address is empty."""
        kafka = self._start_kafka() if self._kafka else ""
        postgres = self._start_postgres() if self._postgres else ""
        return Addresses(kafka, postgres)

    def stop(self) -> None:
        """Removes the containers with their data."""
        while self._started:
            self._started.pop().stop()

    def _start_kafka(self) -> str:
        from testcontainers.core.container import DockerContainer

        # The broker must say, before it runs, under which address clients reach it; so the port
        # of the host is chosen here. (The library's own Kafka class knows another image only.)
        port = free_port()
        container = DockerContainer(KAFKA_IMAGE).with_bind_ports(9092, port)
        address = f"{container.get_docker_client().host()}:{port}"
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            # The broker speaks to itself too, about transactions, and the port that clients use
            # is none of its own: without a listener for itself every commit would time out.
            "listeners": "PLAINTEXT://:9092,INTERNAL://:19092,CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{address},INTERNAL://localhost:19092",
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT"
            ),
            **node_settings(copies=1),
        }
        for name, value in settings.items():
            container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
        self._started.append(container)
        container.start()
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        wait_until(lambda: _broker_answers(client), _READY_S, f"Kafka at {address}")
        return address

    def _start_postgres(self) -> str:
        from testcontainers.community.postgres import PostgresContainer

        container = PostgresContainer(POSTGRES_IMAGE, driver=None, username="postgres")
        container.with_command("postgres -c fsync=off -c max_connections=200")
        self._started.append(container)
        container.start()
        return str(container.get_connection_url())


def _broker_answers(client: AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=5).brokers)
    except KafkaException:
        return False
