"""A running PouchDB server with some databases, its writing clients and its own view of them."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.acceptance.asking import Answer, ask
from tests.acceptance.foreign import (
    ForeignServer,
    free_port,
    installed,
    need_program,
    run_installer,
)
from tests.acceptance.writing import Action, Ledger, Written, text

HERE = Path(__file__).parent
USER, PASSWORD = "reader", "a password of this test"
TENANTS = ("papers", "films")
COLLECTION = "docs"


def installed_couch() -> Path:
    """The folder with the server, exactly as locked; skips the test if it cannot be had."""
    need_program("node")
    npm = need_program("npm")

    def install(folder: Path) -> None:
        options = ["--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"]
        run_installer([npm, "ci", *options], folder)

    files = [HERE / name for name in ("package.json", "package-lock.json", "serve.mjs")]
    return installed("couch", files, install)


class Couch(ForeignServer):
    """Answers at `url`; `tallies` holds what the clients wrote."""

    def __init__(self, installation: Path, folder: Path) -> None:
        port = free_port()
        command: list[str | Path] = [need_program("node"), installation / "serve.mjs"]
        options = [str(port), USER, PASSWORD]
        super().__init__([*command, *options], folder, f"http://127.0.0.1:{port}", "/")
        self.tallies = Ledger()
        self._next: dict[str, int] = {}
        for tenant in TENANTS:
            self.create_database(tenant)

    def create_database(self, tenant: str) -> None:
        """With a design document, which is no record."""
        self._next[tenant] = 0
        self._ask("PUT", f"/{tenant}", {})
        self._ask("PUT", f"/{tenant}/_design/views", {"views": {}})

    def create_anew(self, tenant: str) -> None:
        """Another database of the same name: everything gone, sequence and revisions begin again."""
        self._ask("DELETE", f"/{tenant}")
        for state in self.tallies.living(tenant, COLLECTION).values():
            self._note(tenant, state.id, state.body, deleted=True)
        self.create_database(tenant)

    # What clients do.

    def create(self, tenant: str, chance: random.Random) -> None:
        self._next[tenant] += 1
        self._put(tenant, f"{tenant}+{self._next[tenant]:05d}/ü", _content(chance))

    def change(self, tenant: str, chance: random.Random) -> None:
        """Once, or twice at once."""
        name = self._any(tenant, chance)
        for _ in range(chance.choice((1, 2)) if name else 0):
            assert name is not None
            self._put(tenant, name, _content(chance), self._revision(tenant, name))

    def delete(self, tenant: str, chance: random.Random) -> None:
        name = self._any(tenant, chance)
        if name:
            path = f"{_path(tenant, name)}?rev={self._revision(tenant, name)}"
            answer = self._ask("DELETE", path)
            self._note(tenant, name, {"rev": answer.body["rev"]}, deleted=True)

    def revive(self, tenant: str, chance: random.Random) -> None:
        """A document that was deleted is made again under its name; its revisions go on."""
        gone = sorted(self.tallies.deleted(tenant, COLLECTION))
        if gone:
            self._put(tenant, chance.choice(gone), _content(chance))

    def actions(self, tenant: str) -> Sequence[tuple[int, Action]]:
        """What one client does in one database, by weight."""
        wanted = ((4, self.create), (6, self.change), (3, self.delete), (1, self.revive))
        return [(weight, partial(act, tenant)) for weight, act in wanted]

    # What is true, as the judge asks it.

    def ledger(self, tenant: str, collection: str) -> list[Written]:
        return self.tallies.of(tenant, collection)

    def counts(self) -> dict[str, dict[str, int]]:
        return self.tallies.counts()

    def state(self, tenant: str, collection: str) -> Mapping[str, Written]:
        """What the server lists now."""
        rows = self._ask("GET", f"/{tenant}/_all_docs?include_docs=true").body["rows"]
        living = [row for row in rows if not row["id"].startswith("_design/")]
        return {row["id"]: Written(row["id"], "", deleted=False, body=row) for row in living}

    def head(self, tenant: str) -> int:
        """The sequence number of the newest change."""
        return int(self._ask("GET", f"/{tenant}").body["update_seq"])

    def changes(self, tenant: str) -> list[dict[str, Any]]:
        """The last change of every document, deletes included, as the feed shows it."""
        found: list[dict[str, Any]] = self._ask("GET", f"/{tenant}/_changes").body["results"]
        return found

    def _any(self, tenant: str, chance: random.Random) -> str | None:
        """A document that lives; each database has one client, so it still does when it is used."""
        living = sorted(self.tallies.living(tenant, COLLECTION))
        return chance.choice(living) if living else None

    def _revision(self, tenant: str, name: str) -> str:
        return str(self.tallies.living(tenant, COLLECTION)[name].body["rev"])

    def _put(
        self, tenant: str, name: str, content: Mapping[str, Any], rev: str | None = None
    ) -> None:
        body = {**content, **({"_rev": rev} if rev else {})}
        answer = self._ask("PUT", _path(tenant, name), body)
        self._note(tenant, name, {"rev": answer.body["rev"]}, deleted=False)

    def _note(self, tenant: str, name: str, body: Any, *, deleted: bool) -> None:
        self.tallies.note(tenant, COLLECTION, Written(name, "", deleted, body))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return ask(method, self.url + path, {"Authorization": f"Basic {login}"}, body)


def _path(tenant: str, name: str) -> str:
    return f"/{tenant}/{quote(name, safe='')}"


def _content(chance: random.Random) -> dict[str, Any]:
    return {
        "type": chance.choice(["essay", "note"]),
        "title": text(chance, 6),
        "price": f"{chance.randrange(10**7) / 100:.2f}",
        "tags": chance.choices(["new", "sold", "größer", "a,b", "{}"], k=chance.randrange(4)),
    }
