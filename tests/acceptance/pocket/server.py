"""A running PocketBase with one collection, its writing clients and its own view of what is there."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.acceptance.asking import Answer, ask
from tests.acceptance.foreign import (
    ForeignServer,
    environment_of,
    free_port,
    installed,
    run_installer,
)
from tests.acceptance.writing import Action, Ledger, Written, text

HERE = Path(__file__).parent
USER, PASSWORD = "reader@example.org", "a password of this test"
COLLECTION = "items"
_GO_MIN = (1, 25)
_LONG_S, _USERS_MAX = 2.0, 200
_RECORDS = f"/api/collections/{COLLECTION}/records"
_FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "number"},
    {"name": "v", "type": "number"},
    {"name": "name", "type": "text"},
    {"name": "updated", "type": "autodate", "onCreate": True, "onUpdate": True},
]


def installed_pocketbase() -> Path:
    """The folder with PocketBase, built from sources as locked; skips the test if it cannot be."""
    names = ("main.go", "go.mod", "go.sum", "requirements.lock")
    return installed("pocketbase", [HERE / name for name in names], _build)


def _build(folder: Path) -> None:
    """With the Go of this machine, or with that of a package; nothing but the program is kept."""
    go = _go_of_this_machine() or environment_of(folder) / "go"
    places = {name: folder / name.lower() for name in ("GOPATH", "GOCACHE", "GOTMPDIR")}
    for place in places.values():
        place.mkdir()
    environment = {
        **{name: str(place) for name, place in places.items()},
        "GOMODCACHE": str(places["GOPATH"] / "modules"),
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    run_installer([go, "build", "-o", "pocketbase", "."], folder, environment)
    for place in (*places.values(), folder / "environment"):
        shutil.rmtree(place, ignore_errors=True)


def _go_of_this_machine() -> str | None:
    """The Go on the path, if it is new enough for PocketBase."""
    go = shutil.which("go")
    if go is None:
        return None
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment
    )
    version = re.match(r"go(\d+)\.(\d+)", done.stdout)
    found = version is not None and (int(version[1]), int(version[2])) >= _GO_MIN
    return go if found else None


class Pocket(ForeignServer):
    """Answers at `url`; `tallies` holds what the clients wrote. Many may write at once."""

    def __init__(self, installation: Path, folder: Path) -> None:
        port, program = free_port(), installation / "pocketbase"
        data: list[str | Path] = ["--dir", folder / "pocketbase"]
        run_installer([program, "superuser", "upsert", USER, PASSWORD, *data], folder)
        address = f"127.0.0.1:{port}"
        command: list[str | Path] = [program, "serve", "--http", address, *data]
        super().__init__(command, folder, f"http://{address}", "/api/health")
        self.tallies = Ledger()
        self._lock = threading.Lock()
        self._mine: dict[str, set[str]] = {}
        login = {"identity": USER, "password": PASSWORD}
        self._headers: dict[str, str] = {}
        told = self._ask("POST", "/api/collections/_superusers/auth-with-password", login)
        self._headers = {"Authorization": told.body["token"]}
        index = f"CREATE INDEX by_time ON {COLLECTION} (updated, id)"
        collection = {"name": COLLECTION, "type": "base", "fields": _FIELDS, "indexes": [index]}
        self._ask("POST", "/api/collections", collection)
        limits = {"enabled": True, "maxRequests": _USERS_MAX + 1, "timeout": 60}
        self._ask("PATCH", "/api/settings", {"batch": limits})
        self._users = 0
        began = time.monotonic()
        self._in_one(self._sign_ups(4))
        each_s = (time.monotonic() - began) / 4
        self._users_at_once = max(1, min(_USERS_MAX, round(_LONG_S / each_s)))

    # What clients do; each changes and deletes only what it made itself, so it still lives.

    def create(self, client: str, chance: random.Random) -> None:
        self._made(client, self._ask("POST", _RECORDS, _content(chance)).body)

    def change(self, client: str, chance: random.Random) -> None:
        """Once, or twice at once, so that two states may share their time."""
        name = self._any(client, chance)
        for _ in range(chance.choice((1, 2)) if name else 0):
            answer = self._ask("PATCH", f"{_RECORDS}/{name}", {"v": chance.randrange(1000)})
            self._note(answer.body)

    def delete(self, client: str, chance: random.Random) -> None:
        """Nothing shows it but a listing that lacks it."""
        name = self._any(client, chance)
        if name:
            self._ask("DELETE", f"{_RECORDS}/{name}")
            self._gone(client, name)

    def batch(self, client: str, chance: random.Random) -> None:
        """One transaction: its first stamps are older when it commits than those of others."""
        names = {name for name in (self._any(client, chance) for _ in range(8)) if name}
        changed = [
            {"method": "PATCH", "url": f"{_RECORDS}/{name}", "body": _content(chance)}
            for name in names
        ]
        created = [{"method": "POST", "url": _RECORDS, "body": _content(chance)} for _ in range(12)]
        for number, one in enumerate(self._in_one([*changed, *created])):
            if number < len(changed):
                self._note(one["body"])
            else:
                self._made(client, one["body"])

    def sign_up(self, client: str, chance: random.Random) -> None:
        """A record and then many users, whose passwords take their time, in one transaction: the
        record is stamped when it begins, and shows when it is over.
        """
        record = {"method": "POST", "url": _RECORDS, "body": _content(chance)}
        answer = self._in_one([record, *self._sign_ups(self._users_at_once)])
        self._made(client, answer[0]["body"])

    def actions(self, client: str) -> Sequence[tuple[int, Action]]:
        """What one client does, by weight."""
        wanted = ((4, self.create), (8, self.change), (3, self.delete), (1, self.batch))
        return [(weight, partial(act, client)) for weight, act in wanted]

    # What is true, as the judge asks it.

    def ledger(self, tenant: str, collection: str) -> list[Written]:
        return self.tallies.of(tenant, collection)

    def counts(self) -> dict[str, dict[str, int]]:
        return self.tallies.counts()

    def state(self, tenant: str, collection: str) -> Mapping[str, Written]:
        """What the server lists now."""
        found: dict[str, Written] = {}
        last = ""
        while True:
            query = f"?perPage=500&skipTotal=1&sort=id&filter=id%3E%27{last}%27"
            items = self._ask("GET", _RECORDS + query).body["items"]
            if not items:
                return found
            found |= {record["id"]: _written(record) for record in items}
            last = items[-1]["id"]

    def _sign_ups(self, count: int) -> list[dict[str, Any]]:
        first, self._users = self._users, self._users + count
        users = [
            {"email": f"{n}@example.org", "password": PASSWORD, "passwordConfirm": PASSWORD}
            for n in range(first, first + count)
        ]
        path = "/api/collections/users/records"
        return [{"method": "POST", "url": path, "body": user} for user in users]

    def _in_one(self, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answers to several requests that are one transaction."""
        answers: list[dict[str, Any]] = self._ask("POST", "/api/batch", {"requests": requests}).body
        return answers

    def _any(self, client: str, chance: random.Random) -> str | None:
        with self._lock:
            mine = sorted(self._mine.get(client, ()))
        return chance.choice(mine) if mine else None

    def _made(self, client: str, record: dict[str, Any]) -> None:
        with self._lock:
            self._mine.setdefault(client, set()).add(record["id"])
        self._note(record)

    def _gone(self, client: str, name: str) -> None:
        with self._lock:
            self._mine[client].remove(name)
        before = self.tallies.living("", COLLECTION)[name]
        gone = Written(name, before.updated_at, deleted=True, body=before.body)
        self.tallies.note("", COLLECTION, gone)

    def _note(self, record: dict[str, Any]) -> None:
        self.tallies.note("", COLLECTION, _written(record))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        return ask(method, self.url + path, self._headers, body)


def _written(record: dict[str, Any]) -> Written:
    return Written(record["id"], record["updated"], deleted=False, body=record)


def _content(chance: random.Random) -> dict[str, Any]:
    return {
        "n": chance.randrange(10**7) / 100,
        "v": chance.randrange(1000),
        "name": text(chance, 6),
    }
