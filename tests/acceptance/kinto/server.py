"""A running Kinto with two collections, its writing clients and its own view of what is there."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.acceptance.asking import Answer, ask
from tests.acceptance.foreign import ForeignServer, environment_of, free_port, installed
from tests.acceptance.writing import Action, Ledger, Written, rfc3339, text

HERE = Path(__file__).parent
USER, PASSWORD = "reader", "a password of this test"
TENANTS = ("papers", "films")
COLLECTION = "records"


def installed_kinto() -> Path:
    """The folder with Kinto in an environment of its own; skips the test if it cannot be had."""
    return installed("kinto", [HERE / "requirements.lock", HERE / "kinto.ini"], environment_of)


class Kinto(ForeignServer):
    """Answers at `url`; `tallies` holds what the clients wrote."""

    def __init__(self, installation: Path, folder: Path) -> None:
        port = free_port()
        command: list[str | Path] = [installation / "environment/bin/kinto", "start"]
        options: list[str | Path] = ["--ini", installation / "kinto.ini", "--port", str(port)]
        super().__init__([*command, *options], folder, f"http://127.0.0.1:{port}/v1", "/")
        self.tallies = Ledger()
        self._next = 0
        self._ask("PUT", "/buckets/library", {})
        for tenant in TENANTS:
            self.create_collection(tenant)

    def create_collection(self, tenant: str) -> None:
        self._ask("PUT", f"/buckets/library/collections/{tenant}", {})

    def create_anew(self, tenant: str) -> None:
        """Another collection of the same name: all records gone, without a tombstone for any."""
        self._ask("DELETE", f"/buckets/library/collections/{tenant}")
        for state in self.tallies.living(tenant, COLLECTION).values():
            gone = Written(state.id, state.updated_at, deleted=True, body=state.body)
            self.tallies.note(tenant, COLLECTION, gone)
        self.create_collection(tenant)

    # What clients do.

    def create(self, tenant: str, chance: random.Random) -> None:
        self._next += 1
        name = f"{tenant}-{self._next:05d}"
        body = {"data": _content(chance)}
        self._note(tenant, self._ask("PUT", self._path(tenant, name), body))

    def replace(self, tenant: str, chance: random.Random) -> None:
        name = self._any(tenant, chance)
        if name:
            body = {"data": _content(chance)}
            self._note(tenant, self._ask("PUT", self._path(tenant, name), body))

    def change(self, tenant: str, chance: random.Random) -> None:
        """Some fields only, twice at once."""
        name = self._any(tenant, chance)
        if name:
            for pages in (chance.randrange(1000), chance.randrange(1000)):
                body = {"data": {"pages": pages, "title": text(chance, 4)}}
                self._note(tenant, self._ask("PATCH", self._path(tenant, name), body))

    def delete(self, tenant: str, chance: random.Random) -> None:
        name = self._any(tenant, chance)
        if name:
            self._note(tenant, self._ask("DELETE", self._path(tenant, name)))

    def actions(self, tenant: str) -> Sequence[tuple[int, Action]]:
        """What one client does in one collection, by weight."""
        wanted = ((4, self.create), (3, self.replace), (3, self.change), (2, self.delete))
        return [(weight, partial(act, tenant)) for weight, act in wanted]

    # What is true, as the judge asks it.

    def ledger(self, tenant: str, collection: str) -> list[Written]:
        return self.tallies.of(tenant, collection)

    def counts(self) -> dict[str, dict[str, int]]:
        return self.tallies.counts()

    def state(self, tenant: str, collection: str) -> Mapping[str, Written]:
        """What the server lists now."""
        url: str | None = self.url + self._path(tenant) + "?_limit=25"
        found: dict[str, Written] = {}
        while url is not None:
            answer = ask("GET", url, _authorization())
            for record in answer.body["data"]:
                found[record["id"]] = _written(record)
            url = answer.headers.get("next-page")
        return found

    def _any(self, tenant: str, chance: random.Random) -> str | None:
        """A record that lives; each collection has one client, so it still does when it is used."""
        living = sorted(self.tallies.living(tenant, COLLECTION))
        return chance.choice(living) if living else None

    def _note(self, tenant: str, answer: Answer) -> None:
        self.tallies.note(tenant, COLLECTION, _written(answer.body["data"]))

    def _path(self, tenant: str, name: str | None = None) -> str:
        path = f"/buckets/library/collections/{tenant}/records"
        return path if name is None else f"{path}/{name}"

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        return ask(method, self.url + path, _authorization(), body)


def _authorization() -> dict[str, str]:
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return {"Authorization": f"Basic {login}"}


def _written(record: dict[str, Any]) -> Written:
    deleted = record.get("deleted", False)
    return Written(record["id"], rfc3339(record["last_modified"]), deleted, record)


def _content(chance: random.Random) -> dict[str, Any]:
    return {
        "title": text(chance, 6),
        "pages": chance.randrange(1000),
        "price": f"{chance.randrange(10**7) / 100:.2f}",
        "tags": chance.choices(["new", "sold", "größer", "a,b", "{}"], k=chance.randrange(4)),
        "author": {"name": text(chance, 2), "contact": {"email": "someone@example.org"}},
    }
