"""OAuth 2 against a real token endpoint: both grants, rotation, races, and every way it fails."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from ingest.token_store import TokenStore
from tests.unit.ingest.oauth_provider import CLIENT, CLIENT_SECRET, TokenEndpoint
from tests.unit.ingest.polling import EVENTS, Polled, polling, run

SEED = "the-first-refresh-token"
CREDENTIALS = EVENTS.replace(
    "    limits:",
    "    auth: {oauth2: {token_url: URL/login/token, client_id: 'shop client',\n"
    "                    client_secret: {env: GAPLESS_TEST_SECRET}, scopes: [a, b],\n"
    "                    params: {audience: here}}}\n"
    "    limits:",
)
REFRESH = CREDENTIALS.replace(
    "params: {audience: here}",
    "refresh_token: {env: GAPLESS_TEST_REFRESH}, store: tokens/shop.json",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GAPLESS_TEST_SECRET", CLIENT_SECRET)
    monkeypatch.setenv("GAPLESS_TEST_REFRESH", SEED)
    yield


def store_of(folder: Path) -> TokenStore:
    return TokenStore(folder / "tokens" / "shop.json")


def test_client_credentials_are_asked_once_and_sent(tmp_path: Path) -> None:
    endpoint = TokenEndpoint()
    polled = run(tmp_path, CREDENTIALS, endpoint.handle, polls=2)
    assert (polled.blocked, len(polled.records)) == ("", 1)
    [form] = endpoint.forms
    assert {n: form[n] for n in ("grant_type", "scope", "audience")} == {
        "grant_type": "client_credentials",
        "scope": "a b",
        "audience": "here",
    }
    assert "client_secret" not in form and form["Authorization"].startswith("Basic ")
    assert CLIENT_SECRET not in repr(polled.emissions)


def test_a_client_that_sends_its_secret_in_the_body(tmp_path: Path) -> None:
    endpoint = TokenEndpoint()
    text = CREDENTIALS.replace("scopes:", "client_auth: body, scopes:")
    assert run(tmp_path, text, endpoint.handle).blocked == ""
    [form] = endpoint.forms
    assert (form["client_id"], form["client_secret"]) == (CLIENT, CLIENT_SECRET)
    assert form["Authorization"] == ""


@pytest.mark.parametrize("expires_in", [None, "3600", 3600.5, 10**400, -1, True, "soon"])
def test_a_life_that_is_told_strangely_or_not_at_all(tmp_path: Path, expires_in: object) -> None:
    shown = "9" * 400 if expires_in == 10**400 else expires_in
    endpoint = TokenEndpoint(expires_in=shown)
    assert run(tmp_path, CREDENTIALS, endpoint.handle).blocked == ""


@pytest.mark.parametrize("text", [CREDENTIALS, REFRESH], ids=["credentials", "refresh"])
def test_no_token_is_asked_for_that_could_not_be_waited_for(tmp_path: Path, text: str) -> None:
    """The answer may hold the only good refresh token; the next run begins with time enough."""
    endpoint = TokenEndpoint(refresh=SEED if text is REFRESH else None)

    async def main() -> None:
        async with polling(tmp_path, text, endpoint.handle, budget_s=6.5) as polled:
            await polled.poll()
            assert endpoint.forms == [] and polled.blocked == ""
            assert (polled.state.not_before or 0) > 0

    asyncio.run(main())


def test_a_token_endpoint_that_hangs_does_not_outlast_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.accesses._SIGN_IN_S", 0.2)
    endpoint = TokenEndpoint(delay_s=4.0)

    async def main() -> float:
        async with polling(tmp_path, CREDENTIALS, endpoint.handle, budget_s=3.0) as polled:
            begun = time.monotonic()
            await polled.poll()
            assert polled.blocked == "" and (polled.state.not_before or 0) > 0
            return time.monotonic() - begun

    assert 0.2 < asyncio.run(main()) < 2.0, "it is given the time that is left, and no more"


def test_a_token_is_renewed_shortly_before_its_end_and_after_a_401(tmp_path: Path) -> None:
    endpoint = TokenEndpoint(expires_in=1)

    async def main() -> None:
        async with polling(tmp_path, CREDENTIALS, endpoint.handle) as polled:
            await polled.poll()
            assert endpoint.issued == 1
            endpoint.expires_in = 3600
            endpoint.good.clear()  # revoked
            polled.poller.restore(None)
            await polled.poll()
            assert endpoint.issued == 2
            assert polled.blocked == ""

    asyncio.run(main())


def test_a_refresh_token_is_kept_and_the_next_process_goes_on_with_it(tmp_path: Path) -> None:
    endpoint = TokenEndpoint(refresh=SEED)
    assert run(tmp_path, REFRESH, endpoint.handle).blocked == ""
    kept = store_of(tmp_path).read()
    assert kept is not None and kept.refresh_token == endpoint.refresh
    polled = run(tmp_path, REFRESH, endpoint.handle)
    assert (polled.blocked, endpoint.issued) == ("", 1), "the stored access token is still good"
    endpoint.good.clear()
    polled = run(tmp_path, REFRESH, endpoint.handle)
    assert (polled.blocked, endpoint.issued) == ("", 2)
    assert endpoint.spent == {SEED: 1, kept.refresh_token: 1}
    for secret in (SEED, kept.refresh_token, kept.access_token):
        assert secret not in repr(polled.emissions)


def test_a_provider_that_does_not_rotate_keeps_its_token(tmp_path: Path) -> None:
    endpoint = TokenEndpoint(refresh=SEED, rotate=False)
    for _ in range(2):
        assert run(tmp_path, REFRESH, endpoint.handle).blocked == ""
        endpoint.good.clear()
    assert endpoint.spent == {SEED: 2}


def test_another_token_of_the_operator_begins_a_new_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = TokenEndpoint(refresh=SEED)
    run(tmp_path, REFRESH, endpoint.handle)
    endpoint.refresh, endpoint.good = "authorised-again", set()
    assert "invalid_grant" in run(tmp_path, REFRESH, endpoint.handle).blocked
    monkeypatch.setenv("GAPLESS_TEST_REFRESH", "authorised-again")
    assert run(tmp_path, REFRESH, endpoint.handle).blocked == ""
    assert endpoint.spent["authorised-again"] == 1


def test_two_workers_spend_a_single_use_token_once(tmp_path: Path) -> None:
    """Each has read the store before the other wrote: the lock decides, not the luck."""
    endpoint = TokenEndpoint(refresh=SEED, delay_s=0.2)

    async def main() -> None:
        async with (
            polling(tmp_path, REFRESH, endpoint.handle) as one,
            polling(tmp_path, REFRESH.replace("URL", one.provider.url), endpoint.handle) as two,
        ):
            await asyncio.gather(one.poll(), two.poll())
            assert (one.blocked, two.blocked) == ("", "")
            assert endpoint.spent == {SEED: 1}
            endpoint.good.clear()
            for worker in (one, two):
                worker.poller.restore(None)
            await asyncio.gather(one.poll(), two.poll())
            assert (one.blocked, two.blocked) == ("", "")
            assert set(endpoint.spent.values()) == {1} and len(endpoint.spent) == 2

    asyncio.run(main())


def test_workers_that_share_no_store_are_told_why_the_second_is_refused(tmp_path: Path) -> None:
    """Two containers, each with a folder of its own: the second spends what the first has spent."""
    endpoint = TokenEndpoint(refresh=SEED)
    folders = [tmp_path / "one", tmp_path / "two"]

    async def main() -> None:
        for folder in folders:
            folder.mkdir()
        async with (
            polling(folders[0], REFRESH, endpoint.handle) as one,
            polling(folders[1], REFRESH.replace("URL", one.provider.url), endpoint.handle) as two,
        ):
            await one.poll()
            await two.poll()
            assert one.blocked == ""
            assert "invalid_grant" in two.blocked
            assert "a worker that does not share this file may have spent it" in two.blocked

    asyncio.run(main())
    assert store_of(folders[1]).read() is None


WORKER = """
import asyncio, sys
from pathlib import Path
from ingest.pollers import Pollers
from schemas.definitions.load import load_folder
from schemas.failpoints import none
from schemas.settings import Settings

async def emit(emission):
    assert emission.state.blocked is None, emission.state.blocked

async def main():
    pollers = Pollers(load_folder(Path(sys.argv[1])).check(), Settings(partitions=1), none)
    [poller] = pollers.of(0).values()
    print("ready", flush=True)
    sys.stdin.readline()
    await poller.poll(emit)
    await pollers.close()

asyncio.run(main())
"""


def test_two_processes_spend_a_single_use_token_once(tmp_path: Path) -> None:
    endpoint = TokenEndpoint(refresh=SEED, delay_s=0.2)

    async def main() -> None:
        async with polling(tmp_path, REFRESH, endpoint.handle), asyncio.timeout(60):
            pipe = asyncio.subprocess.PIPE
            workers = [
                await asyncio.create_subprocess_exec(
                    sys.executable, "-c", WORKER, str(tmp_path), stdin=pipe, stdout=pipe
                )
                for _ in range(2)
            ]
            for worker in workers:
                assert worker.stdout is not None
                assert await worker.stdout.readline() == b"ready\n"
            await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
            assert [worker.returncode for worker in workers] == [0, 0]

    asyncio.run(main())
    assert endpoint.spent == {SEED: 1}


def test_a_renewal_is_finished_although_nobody_waits_any_more(tmp_path: Path) -> None:
    """A poll is cancelled between the provider's answer and the write: nothing is lost."""
    endpoint = TokenEndpoint(refresh=SEED, delay_s=0.3)
    asked = asyncio.Event()

    async def note(request: web.Request) -> None:
        asked.set()

    endpoint.before = note

    async def main() -> None:
        async with polling(tmp_path, REFRESH, endpoint.handle) as polled:
            poll = asyncio.create_task(polled.poll())
            await asked.wait()
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
        kept = store_of(tmp_path).read()  # written before everything was closed
        assert kept is not None and kept.refresh_token == endpoint.refresh

    asyncio.run(main())


def test_what_cannot_be_stored_is_found_before_the_token_is_spent(tmp_path: Path) -> None:
    (tmp_path / "tokens" / "shop.json.new").mkdir(parents=True)
    endpoint = TokenEndpoint(refresh=SEED)
    polled = run(tmp_path, REFRESH, endpoint.handle)
    assert "cannot be written" in polled.blocked
    assert endpoint.spent == {}


def test_a_token_that_could_not_be_stored_is_used_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = TokenEndpoint(refresh=SEED)
    full = [True]
    replace = TokenStore.write

    def write(self: TokenStore, kept: object) -> None:
        if full:
            from ingest.token_store import StoreUnusable

            raise StoreUnusable("no space left")
        replace(self, kept)  # type: ignore[arg-type]

    monkeypatch.setattr(TokenStore, "write", write)

    async def main() -> None:
        async with polling(tmp_path, REFRESH, endpoint.handle) as polled:
            await polled.poll()
            assert polled.blocked == "" and store_of(tmp_path).read() is None
            full.clear()
            endpoint.good.clear()
            polled.poller.restore(None)
            await polled.poll()
            assert polled.blocked == ""
            kept = store_of(tmp_path).read()
            assert kept is not None and kept.refresh_token == endpoint.refresh

    asyncio.run(main())
    assert endpoint.spent[SEED] == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, {"error": "invalid_grant", "error_description": "for jane@example.com"}), "invalid_grant"),
        ((401, {"error": "invalid_client"}), "invalid_client"),
        ((400, {"error": "invalid_scope"}), "invalid_scope"),
        ((403, {"error": "Nope <script>"}), "answered 403"),
        ((200, {"token": "x"}), "no `access_token`"),
        ((200, ["x"]), "no `access_token`"),
        ((200, {"access_token": "abcdefgh", "token_type": "mac"}), "another type than bearer"),
        ((302, {}), "answered 302"),
    ],
)  # fmt: skip
def test_a_refusal_is_terminal_and_says_which(
    tmp_path: Path, answer: tuple[int, object], said: str
) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        headers = {"Location": "http://evil.example/token"} if answer[0] == 302 else None
        return web.json_response(answer[1], status=answer[0], headers=headers)

    endpoint = TokenEndpoint(before=refuse)
    polled = run(tmp_path, CREDENTIALS, endpoint.handle)
    assert said in polled.blocked
    assert "jane" not in polled.blocked and "script" not in polled.blocked
    assert len(endpoint.forms) == 1, "it is not asked again and again"
    assert polled.state.blocked is not None and polled.state.blocked.unblocked_by


def test_credentials_never_follow_to_another_origin(tmp_path: Path) -> None:
    """307 keeps method and body: it must not lead the secret away."""

    async def lead_away(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "http://evil.example/token"})

    polled = run(tmp_path, CREDENTIALS, TokenEndpoint(before=lead_away).handle)
    assert "another origin" in polled.blocked


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_asked_again(tmp_path: Path, status: int) -> None:
    failed: list[int] = []

    async def once(request: web.Request) -> web.StreamResponse | None:
        failed.append(status)
        return web.Response(status=status) if len(failed) == 1 else None

    polled = run(tmp_path, CREDENTIALS, TokenEndpoint(before=once).handle)
    assert (polled.blocked, len(failed)) == ("", 2)


def test_a_long_wait_of_the_endpoint_is_durable(tmp_path: Path) -> None:
    async def busy(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "600"})

    polled: Polled = run(tmp_path, CREDENTIALS, TokenEndpoint(before=busy).handle)
    assert polled.blocked == "" and polled.state.not_before is not None


TENANTS = CREDENTIALS.replace(
    "    limits:",
    "    tenants: {list: [{id: ../up, key: {env: GAPLESS_TEST_REFRESH}}]}\n    limits:",
).replace(
    "params: {audience: here}",
    "refresh_token: '{tenant.key}', store: 'tokens/{tenant.id}.json'",
)


def test_the_store_of_a_tenant_stays_in_its_folder(tmp_path: Path) -> None:
    endpoint = TokenEndpoint(refresh=SEED)
    assert run(tmp_path, TENANTS, endpoint.handle).blocked == ""
    [kept] = (tmp_path / "tokens").glob("*.json")
    assert kept.name == "..%2Fup.json"
    assert json.loads(kept.read_bytes())["refresh_token"] == endpoint.refresh
