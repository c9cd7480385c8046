"""How each way to authenticate becomes a proof: signed in once, again when it ends or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ingest.auth import Credential
from ingest.http import FetchFailed
from ingest.responses import Answer
from ingest.signing import AuthFailed, SignInLater
from schemas.definitions.load import load_folder
from schemas.definitions.secrets import Secrets, SecretUnavailable
from tests.unit.ingest.polling import EVENTS, write

SESSION = (
    "session: {post: '/{tenant.id}/login', token: body.t, lifetime: 1h, header: X-Session,"
    " body: {user: '{tenant.user}', password: {env: PASSWORD}}}"
)
TENANT = {"tenant.id": "a/b", "tenant.user": "ann", "tenant.key": "the tenant's key"}


class Login:
    """Answers a sign-in with the next of `answers`: a token, a status, or an error to raise."""

    def __init__(self, *answers: str | int | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, object]] = []

    async def __call__(self, path: str, body: object) -> Answer:
        self.asked.append((path, body))
        await asyncio.sleep(0)
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            return Answer(found, {"retry-after": "7"}, dict)
        return Answer(200, {}, lambda: {"t": found})


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def credential(
    folder: Path,
    auth: str,
    login: Login | None = None,
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
) -> Credential:
    tenants = "    tenants: {list: [{id: a, user: ann, key: k}]}\n"
    text = EVENTS.replace("URL", "http://127.0.0.1:9")
    write(folder, text.replace("    limits:", f"{tenants}    auth: {{{auth}}}\n    limits:"))
    spec = load_folder(folder).check().sources["shop"].auth
    secrets = Secrets(environ or {"PASSWORD": "open sesame", "KEY": "a-key-by-reference"})
    return Credential(
        spec, secrets, lambda: TENANT, login or Login(), clock or Clock(), lambda: 1_000_000
    )


@pytest.mark.parametrize(
    ("auth", "headers", "params"),
    [
        ("bearer: {env: KEY}", {"Authorization": "Bearer a-key-by-reference"}, {}),
        ("bearer: '{tenant.key}'", {"Authorization": "Bearer the tenant's key"}, {}),
        ("basic: {user: me, password: {env: KEY}}", {"Authorization": "Basic bWU6YS1rZXktYnktcmVmZXJlbmNl"}, {}),
        ("basic: {user: '{tenant.user}', password: {env: KEY}}", {"Authorization": "Basic YW5uOmEta2V5LWJ5LXJlZmVyZW5jZQ=="}, {}),
        ("basic: {user: {env: KEY}, password: '{tenant.key}'}", {"Authorization": "Basic YS1rZXktYnktcmVmZXJlbmNlOnRoZSB0ZW5hbnQncyBrZXk="}, {}),
        ("api_key: {header: X-Key, value: {env: KEY}}", {"X-Key": "a-key-by-reference"}, {}),
        ("api_key: {param: key, value: '{tenant.key}'}", {}, {"key": "the tenant's key"}),
        ("api_key: {param: key, value: 'pre-{tenant.id}'}", {}, {"key": "pre-a/b"}),
    ],
)  # fmt: skip
def test_what_is_sent(
    tmp_path: Path, auth: str, headers: dict[str, str], params: dict[str, str]
) -> None:
    proof = asyncio.run(credential(tmp_path, auth).proof())
    assert (proof.headers, proof.params) == (headers, params)


def test_a_session_signs_in_once_for_all_who_wait(tmp_path: Path) -> None:
    login = Login("session-1")

    async def main() -> None:
        one = credential(tmp_path, SESSION, login)
        proofs = await asyncio.gather(*(one.proof() for _ in range(5)))
        assert [proof.headers for proof in proofs] == [{"X-Session": "session-1"}] * 5

    asyncio.run(main())
    body = {"user": "ann", "password": "open sesame"}
    assert login.asked == [("/a%2Fb/login", body)]


def test_a_session_ends_with_its_lifetime(tmp_path: Path) -> None:
    login, clock = Login("session-1", "session-2"), Clock()

    async def main() -> list[str]:
        one = credential(tmp_path, SESSION, login, clock)
        seen = []
        for clock.now_s in (100.0, 3699.9, 3700.0, 3800.0):
            seen.append((await one.proof()).headers["X-Session"])
        return seen

    assert asyncio.run(main()) == ["session-1", "session-1", "session-2", "session-2"]


def test_a_refused_session_is_replaced_once_for_all_who_had_it(tmp_path: Path) -> None:
    login = Login("session-1", "session-2")

    async def main() -> None:
        one = credential(tmp_path, SESSION, login)
        first = await one.proof()
        one.refresh(first)
        second = await one.proof()
        one.refresh(first)  # somebody else, whose answer came later
        assert await one.proof() == second
        assert second.headers == {"X-Session": "session-2"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (401, AuthFailed, "answered 401"),
        (404, AuthFailed, "answered 404"),
        (302, AuthFailed, "answered 302"),
        ("", AuthFailed, "no text at the token's path"),
        (429, SignInLater, "answered 429"),
        (503, SignInLater, "answered 503"),
        (FetchFailed("no whole answer", slow=True), SignInLater, "no whole answer"),
    ],
)
def test_a_sign_in_that_fails(
    tmp_path: Path, answer: Any, error: type[Exception], said: str
) -> None:
    """A slow login is no reason to ask for less, and a busy one none to block."""

    async def main() -> None:
        one = credential(tmp_path, SESSION, Login(answer, "session-2"))
        with pytest.raises(error, match=said) as caught:
            await one.proof()
        assert "sesame" not in str(caught.value)
        if isinstance(caught.value, SignInLater) and isinstance(answer, int):
            assert caught.value.wait_s == 7
        assert (await one.proof()).headers == {"X-Session": "session-2"}, "the next one tries again"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ("bearer: {env: MISSING}", "no variable MISSING"),
        ("api_key: {param: key, value: '{tenant.user}'}", "shorter than 4"),
        ("bearer: {file: nowhere}", "No such file"),
    ],
)
def test_a_secret_that_is_not_there_says_which(tmp_path: Path, auth: str, said: str) -> None:
    with pytest.raises(SecretUnavailable, match=said) as caught:
        asyncio.run(credential(tmp_path, auth).proof())
    assert "ann" not in str(caught.value)


def test_a_refused_secret_is_read_anew(tmp_path: Path) -> None:
    environ = {"KEY": "the-old-key"}

    async def main() -> None:
        one = credential(tmp_path, "bearer: {env: KEY}", environ=environ)
        first = await one.proof()
        environ["KEY"] = "the-new-key"
        assert await one.proof() == first, "not before it is refused"
        one.refresh(first)
        assert (await one.proof()).headers == {"Authorization": "Bearer the-new-key"}

    asyncio.run(main())
