"""A running GitHub API of `emulate` with two repositories, its writing clients and its own view."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.acceptance.asking import Answer, ask, next_link
from tests.acceptance.foreign import (
    ForeignServer,
    free_port,
    installed,
    need_program,
    run_installer,
)
from tests.acceptance.writing import Action, Ledger, Written, text

HERE = Path(__file__).parent
READER = "reader"
TENANTS = ("kernel", "tools")
COLLECTIONS = {
    "issues": "issues?state=all&",
    "pulls": "pulls?state=all&",
    "comments": "comments?",
    "labels": "labels?",
}
_COLORS = ("d73a4a", "0075ca", "a2eeef", "7057ff")
_REASONS = ("completed", "not_planned")


def installed_emulate() -> Path:
    """The folder with emulate, exactly as locked; skips the test if it cannot be had."""
    need_program("node")
    npm = need_program("npm")

    def install(folder: Path) -> None:
        run_installer([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    files = [HERE / name for name in ("package.json", "package-lock.json", "serve.mjs")]
    return installed("emulate", files, install)


class GitHub(ForeignServer):
    """Answers at `url`; `tallies` holds what the clients wrote."""

    def __init__(self, installation: Path, folder: Path) -> None:
        port = free_port()
        command: list[str | Path] = [need_program("node"), installation / "serve.mjs", str(port)]
        super().__init__(command, folder, f"http://127.0.0.1:{port}", "/rate_limit")
        self.tallies = Ledger()
        self._labels = 0
        self._commits = {repo: self._ask("GET", repo, "commits").body[0]["sha"] for repo in TENANTS}

    # What clients do.

    def open_issue(self, repo: str, chance: random.Random) -> None:
        named = [label.body["name"] for label in self.tallies.living(repo, "labels").values()]
        labels = chance.sample(named, k=min(len(named), chance.randrange(3)))
        body = {"title": text(chance, 5), "body": text(chance, 30), "labels": labels}
        self._note(repo, "issues", "POST", "issues", body)

    def edit_issue(self, repo: str, chance: random.Random) -> None:
        """Twice at once, so that two states may share their time."""
        number = self._any(repo, "issues", "number", chance)
        for _ in range(2 if number else 0):
            body = {"title": text(chance, 4)}
            self._note(repo, "issues", "PATCH", f"issues/{number}", body)

    def close_or_open(self, repo: str, chance: random.Random) -> None:
        number = self._any(repo, "issues", "number", chance)
        if number:
            closed = {"state": "closed", "state_reason": chance.choice(_REASONS)}
            body = chance.choice((closed, {"state": "open"}))
            self._note(repo, "issues", "PATCH", f"issues/{number}", body)

    def open_pull(self, repo: str, branch: str, chance: random.Random) -> None:
        body = {"title": text(chance, 5), "body": text(chance, 20), "head": branch, "base": "main"}
        self._note(repo, "pulls", "POST", "pulls", body)

    def discuss(self, repo: str, chance: random.Random) -> None:
        """A comment on an issue, which moves the time stamp of the issue."""
        number = self._any(repo, "issues", "number", chance)
        if number:
            self._ask("POST", repo, f"issues/{number}/comments", {"body": text(chance, 20)})

    def comment(self, repo: str, chance: random.Random) -> None:
        """A comment on the first commit."""
        path = f"commits/{self._commits[repo]}/comments"
        self._note(repo, "comments", "POST", path, {"body": text(chance, 20)})

    def edit_comment(self, repo: str, chance: random.Random) -> None:
        comment = self._any(repo, "comments", "id", chance)
        if comment:
            body = {"body": text(chance, 25)}
            self._note(repo, "comments", "PATCH", f"comments/{comment}", body)

    def delete_comment(self, repo: str, chance: random.Random) -> None:
        """Nothing shows it but a listing that lacks it."""
        comment = self._any(repo, "comments", "id", chance)
        if comment:
            self._delete(repo, "comments", str(comment), f"comments/{comment}")

    def create_label(self, repo: str, chance: random.Random) -> None:
        self._labels += 1
        body = {
            "name": f"label {self._labels:03d}",
            "color": chance.choice(_COLORS),
            "description": text(chance, 3),
        }
        self._note(repo, "labels", "POST", "labels", body)

    def rename_label(self, repo: str, chance: random.Random) -> None:
        """Which changes every issue that has it, without a time stamp."""
        name = self._any(repo, "labels", "name", chance)
        if name:
            self._labels += 1
            path = f"labels/{name.replace(' ', '%20')}"
            self._note(repo, "labels", "PATCH", path, {"new_name": f"renamed {self._labels:03d}"})

    def delete_label(self, repo: str, chance: random.Random) -> None:
        labels = self.tallies.living(repo, "labels")
        if len(labels) > 4:
            label = labels[chance.choice(sorted(labels))]
            path = f"labels/{label.body['name'].replace(' ', '%20')}"
            self._delete(repo, "labels", label.id, path)

    def actions(self, repo: str) -> Sequence[tuple[int, Action]]:
        """What one client does in one repository, by weight."""
        wanted = (
            (3, self.open_issue),
            (6, self.edit_issue),
            (4, self.close_or_open),
            (3, self.discuss),
            (6, self.comment),
            (6, self.edit_comment),
            (3, self.delete_comment),
            (1, self.create_label),
            (2, self.rename_label),
            (1, self.delete_label),
        )
        return [(weight, partial(act, repo)) for weight, act in wanted]

    # What is true, as the judge asks it.

    def ledger(self, tenant: str, collection: str) -> list[Written]:
        return self.tallies.of(tenant, collection)

    def counts(self) -> dict[str, dict[str, int]]:
        return self.tallies.counts()

    def state(self, tenant: str, collection: str) -> Mapping[str, Written]:
        """What the server lists now."""
        path = f"{COLLECTIONS[collection]}per_page=100"
        url: str | None = f"{self.url}/repos/octocat/{tenant}/{path}"
        found: dict[str, Written] = {}
        while url is not None:
            answer = ask("GET", url, {"Authorization": "Bearer judge"})
            for record in answer.body:
                found[str(record["id"])] = _written(record)
            url = next_link(answer)
        return found

    def _any(self, repo: str, collection: str, field: str, chance: random.Random) -> Any:
        """That field of something that lives; each repository has one client, so it still does."""
        living = self.tallies.living(repo, collection)
        return living[chance.choice(sorted(living))].body[field] if living else None

    def _note(
        self, repo: str, collection: str, method: str, path: str, body: Mapping[str, Any]
    ) -> None:
        answer = self._ask(method, repo, path, body)
        self.tallies.note(repo, collection, _written(answer.body))

    def _delete(self, repo: str, collection: str, name: str, path: str) -> None:
        self._ask("DELETE", repo, path)
        before = self.tallies.living(repo, collection)[name]
        gone = Written(name, before.updated_at, deleted=True, body=before.body)
        self.tallies.note(repo, collection, gone)

    def _ask(
        self, method: str, repo: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Answer:
        url = f"{self.url}/repos/octocat/{repo}/{path}"
        return ask(method, url, {"Authorization": "Bearer writer"}, body)


def _written(record: dict[str, Any]) -> Written:
    """Labels carry no time."""
    return Written(str(record["id"]), record.get("updated_at", ""), deleted=False, body=record)
