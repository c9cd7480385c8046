"""A broker that asks for a password and has ACLs: for tests of what a refused worker says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from ops.stack.folder import FolderLock, free_port
from ops.stack.java import kafka_jars
from ops.stack.kafka import KafkaNode, new_cluster_id, node_settings
from tests.stack import fresh_folder
from tests.waiting import wait_until

USER, PASSWORD = "gapless", "secret"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_EVERYBODY = (
    (ResourceType.TOPIC, "{prefix}", (AclOperation.READ, AclOperation.WRITE)),
    (ResourceType.GROUP, "{prefix}", (AclOperation.READ,)),
    (ResourceType.TRANSACTIONAL_ID, "{prefix}", (AclOperation.WRITE, AclOperation.DESCRIBE)),
    (ResourceType.BROKER, "kafka-cluster", (AclOperation.DESCRIBE_CONFIGS,)),
)


@dataclass(frozen=True)
class SecuredKafka:
    """Its address, an administrator, and the properties file of the user that has ACLs only."""

    address: str
    admin: AdminClient
    properties: Path
    wrong_properties: Path
    admin_properties: Path

    def allow(self, prefix: str, without: ResourceType | None = None) -> None:
        """Everything that ingest needs below `prefix`, except on `without`."""
        bindings = [
            self._binding(kind, name.format(prefix=prefix), operation)
            for kind, name, operations in _EVERYBODY
            if kind is not without
            for operation in operations
        ]
        self._create(bindings)

    def _create(self, bindings: list[AclBinding]) -> None:
        """Done once the broker judges by them: it answers before it has read its own metadata."""
        for created in self.admin.create_acls(bindings).values():
            created.result(20)
        wanted = set(map(str, bindings))
        wait_until(lambda: wanted <= self._known(), 20, "the broker to know its permissions")

    def _known(self) -> set[str]:
        return {str(one) for one in self.admin.describe_acls(_ours()).result(20)}

    def deny(self, topic: str, operation: AclOperation) -> None:
        """Takes one operation on one topic away."""
        binding = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            operation,
            AclPermissionType.DENY,
        )
        self._create([binding])

    def verify_transactions(self, value: str) -> None:
        """Turns the broker's check of transactions on or off, while it runs."""
        name = "transaction.partition.verification.enable"
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for altered in self.admin.incremental_alter_configs([broker]).values():
            altered.result(20)

        def known() -> bool:
            found = self.admin.describe_configs([broker])[broker].result(20)
            return bool(found[name].value == value)

        wait_until(known, 20, f"{name}={value}")

    def revoke_all(self) -> None:
        for deleted in self.admin.delete_acls([_ours()]).values():
            deleted.result(20)

    @staticmethod
    def _binding(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
        whole = kind is ResourceType.BROKER
        pattern = ResourcePatternType.LITERAL if whole else ResourcePatternType.PREFIXED
        return AclBinding(
            kind, name, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW
        )


def _ours() -> AclBindingFilter:
    """All permissions of the user."""
    return AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any, as the library documents it
        ResourcePatternType.ANY,
        f"User:{USER}",
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


@contextmanager
def secured_kafka() -> Iterator[SecuredKafka]:
    """One broker of its own, gone afterwards."""
    folder = fresh_folder()
    lock = FolderLock(folder)
    lock.acquire()
    node = KafkaNode(folder / "kafka", lock, 1, brief=True)
    port = free_port()
    address = f"127.0.0.1:{port}"
    files = {name: folder / f"{name}.properties" for name in ("admin", "user", "wrong")}
    _write_login(files["admin"], "admin", "admin")
    _write_login(files["user"], USER, PASSWORD)
    _write_login(files["wrong"], USER, "not it")
    try:
        controller = free_port({port})
        node.launch(_properties(folder, port, controller), new_cluster_id(), kafka_jars(print))
        admin = AdminClient(
            {**_login("admin", "admin"), "bootstrap.servers": address, "log_level": 0}
        )
        node.wait_ready(lambda: _answers(admin))
        yield SecuredKafka(address, admin, files["user"], files["wrong"], files["admin"])
    finally:
        node.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _login(user: str, password: str) -> dict[str, str | int | float | bool]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def _write_login(file: Path, user: str, password: str) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in _login(user, password).items()))


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def _properties(folder: Path, port: int, controller: int) -> dict[str, str]:
    users = f'user_admin="admin" user_{USER}="{PASSWORD}"'
    return {
        **node_settings(1),
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{_LOGIN} required username="admin" password="admin" {users};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "log.dirs": str(folder / "data"),
    }
