"""Bearer tokens of an OAuth 2 token endpoint: client credentials, or a refresh token that may rotate.

A refresh token is spent at most once by all workers of a store: under its lock, and what came back
is stored before it is used. A renewal that has begun is finished, whoever stops waiting for it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import structlog

from ingest import metrics
from ingest.decode import parsed
from ingest.http import Fetched, FetchFailed
from ingest.responses import Answer, judge
from ingest.signing import AuthFailed, SignInLater, name_of, secret_of
from ingest.token_store import Kept, StoreUnusable, TokenStore
from schemas.definitions.paths import MISSING
from schemas.definitions.secrets import Secrets
from schemas.definitions.source import Action, OAuth2Auth
from schemas.definitions.templates import Template, render_value, text_of

_log = structlog.get_logger(__name__)
US = 1_000_000
EARLY_S, EARLY_SHARE = 60.0, 0.1
"""A token is renewed so long before its end, or this share of its life if that is shorter."""
LOCK_S = 15.0
"""Beyond the time-out of a request: whoever holds the lock for longer does not renew, it hangs."""
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")

_UNSHARED = "`store` holds nothing of it yet: a worker that does not share this file may have spent it before"

Post = Callable[[Mapping[str, str], Mapping[str, str]], Awaitable[Fetched]]
"""POST a form with these headers to the token endpoint. Raises FetchFailed or FetchRefused."""


class TokenRefused(AuthFailed):
    """The provider takes this refresh token no more (`invalid_grant`)."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an endpoint answered. `use_until`: microseconds, local clock; None: until it is refused."""

    access_token: str
    use_until: int | None
    expires_at: int | None
    refresh_token: str | None


@dataclass(frozen=True, slots=True)
class _Client:
    """Every value of a request, resolved. `chain`: see `Kept`."""

    headers: Mapping[str, str]
    form: Mapping[str, str]
    seed: str | None
    store: TokenStore | None
    chain: str


class TokenGrant:
    """The access token of one credential. `folder` is where a relative `store` begins."""

    def __init__(
        self,
        source: str,
        spec: OAuth2Auth,
        secrets: Secrets,
        values: Callable[[], Mapping[str, object]],
        post: Post,
        *,
        now_us: Callable[[], int],
        timeout_s: float,
        folder: Path,
    ) -> None:
        self._source, self._spec, self._secrets, self._values = source, spec, secrets, values
        self._post, self._now_us, self._timeout_s = post, now_us, timeout_s
        self._folder = folder
        self._held: Tokens | None = None
        self._refused: str | None = None
        self._unsaved: Kept | None = None
        self._renewal: asyncio.Task[str] | None = None

    async def token(self) -> str:
        """A token that is believed to be good. Raises AuthFailed, SignInLater, SecretUnavailable."""
        held = self._held
        if held is not None and (held.use_until is None or self._now_us() < held.use_until):
            return held.access_token
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew(), name="renew a token")
            self._renewal.add_done_callback(self._renewed)
        return await asyncio.shield(self._renewal)

    def refuse(self, token: str) -> None:
        """The provider refused `token`: another one is needed."""
        self._refused = token
        if self._held is not None and self._held.access_token == token:
            self._held = None

    async def close(self) -> None:
        """Waits for a renewal that has begun: its answer may hold the only good refresh token."""
        if self._renewal is not None:
            await asyncio.wait({self._renewal}, timeout=self._timeout_s)

    def _renewed(self, task: asyncio.Task[str]) -> None:
        self._renewal = None
        if not task.cancelled():
            task.exception()  # seen here: everybody who waited may be gone

    async def _renew(self) -> str:
        # resolving may run a command, which blocks
        client = await asyncio.to_thread(self._client)
        if client.store is None:
            tokens = await self._ask(client, {"grant_type": "client_credentials"})
        else:
            try:
                async with client.store.locked(self._timeout_s + LOCK_S):
                    tokens = await self._refreshed(client, client.store)
            except StoreUnusable as error:
                raise AuthFailed(str(error), "make `store` a file that may be written") from None
        self._held = tokens
        return tokens.access_token

    async def _refreshed(self, client: _Client, store: TokenStore) -> Tokens:
        """The token that another worker stored meanwhile, or a new one; the lock is held."""
        stored = store.read()
        kept = self._unsaved or stored
        if kept is not None and kept.chain != client.chain:
            kept = None
        if kept is not None:
            self._learn(kept.access_token, kept.refresh_token)
            until = self._use_until(kept.written_at, kept.expires_at)
            good = until is None or self._now_us() < until
            if good and kept.access_token != self._refused and self._unsaved is None:
                return Tokens(kept.access_token, until, kept.expires_at, kept.refresh_token)
        store.prepare(stored)
        spent = client.seed if kept is None else kept.refresh_token
        assert spent is not None
        try:
            tokens = await self._ask(
                client, {"grant_type": "refresh_token", "refresh_token": spent}
            )
        except TokenRefused as error:
            if kept is None:
                raise AuthFailed(f"{error}; and {_UNSHARED}", error.unblocked_by) from None
            raise
        # Nothing is awaited between the answer and the write: no cancellation comes between them.
        after = Kept(
            chain=client.chain,
            refresh_token=tokens.refresh_token or spent,
            access_token=tokens.access_token,
            expires_at=tokens.expires_at,
            written_at=self._now_us(),
        )
        try:
            store.write(after)
        except StoreUnusable as error:
            self._unsaved = after
            _log.error(
                "a refresh token is in memory only; it is lost if this process ends",
                source=self._source,
                error=str(error),
                hint="make room for `store`, or make it writable, before this process ends",
            )
        else:
            self._unsaved = None
        return tokens

    async def _ask(self, client: _Client, grant: Mapping[str, str]) -> Tokens:
        asked_at = self._now_us()
        try:
            fetched = await self._post({**client.form, **grant}, client.headers)
        except FetchFailed as error:
            metrics.TOKENS.labels(self._source, "failed").inc()
            raise SignInLater(f"the token endpoint: {error}") from None
        answer = Answer(fetched.status, fetched.headers, lambda: parsed(fetched.body))
        verdict = judge(answer, (), fetched.server_time or fetched.received_at)
        metrics.TOKENS.labels(self._source, verdict.action.value).inc()
        if verdict.action in (Action.RETRY, Action.RATE_LIMITED):
            raise SignInLater(f"the token endpoint answered {answer.status}", verdict.wait_s)
        if verdict.action is not Action.SUCCESS:
            raise _refusal(answer)
        return self._read(answer, asked_at)

    def _read(self, answer: Answer, asked_at: int) -> Tokens:
        body = answer.body
        token = body.get("access_token") if isinstance(body, dict) else None
        if not isinstance(token, str) or not token:
            raise AuthFailed(
                "the token endpoint's answer has no `access_token`", "correct `token_url`"
            )
        assert isinstance(body, dict)
        kind = body.get("token_type", "bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise AuthFailed(
                "the token endpoint gives tokens of another type than bearer",
                "use another way of `auth`",
            )
        following = body.get("refresh_token")
        if not isinstance(following, str) or not following:
            following = None
        self._learn(token, following)
        life_s = _life_s(body.get("expires_in"))
        expires_at = None if life_s is None else asked_at + int(life_s * US)
        return Tokens(token, self._use_until(asked_at, expires_at), expires_at, following)

    def _use_until(self, begun_at: int, expires_at: int | None) -> int | None:
        if expires_at is None:
            return None
        life_us = max(0, expires_at - begun_at)
        return expires_at - int(min(EARLY_S * US, EARLY_SHARE * life_us))

    def _learn(self, access_token: str, refresh_token: str | None) -> None:
        self._secrets.scrubber.add_passing(access_token, "{oauth2: access token}")
        if refresh_token is not None:
            self._secrets.scrubber.add_passing(refresh_token, "{oauth2: refresh token}")

    def _client(self) -> _Client:
        """Resolves everything. Blocking. Raises SecretUnavailable or RenderError."""
        spec, secrets = self._spec, self._secrets
        values = self._values()
        client_id = name_of(spec.client_id, secrets, values)
        form: dict[str, str] = {}
        headers: dict[str, str] = {}
        if spec.client_secret is not None and spec.client_auth == "basic":
            password = secret_of(spec.client_secret, secrets, values)
            pair = f"{quote_plus(client_id)}:{quote_plus(password)}".encode()
            encoded = base64.b64encode(pair).decode()
            secrets.scrubber.add_credential(encoded, "{basic}")
            headers["Authorization"] = f"Basic {encoded}"
        else:
            form["client_id"] = client_id
            if spec.client_secret is not None:
                form["client_secret"] = secret_of(spec.client_secret, secrets, values)
        if spec.scopes:
            form["scope"] = " ".join(spec.scopes)
        for name, value in spec.params.items():
            rendered = render_value(value, values, secrets.get)
            if rendered is not MISSING and rendered is not None:
                form[name] = text_of(rendered)
        if spec.refresh_token is None or spec.store is None:
            return _Client(headers, form, None, None, "")
        seed = secret_of(spec.refresh_token, secrets, values)
        told = f"{self._source}\0{client_id}\0{seed}".encode()
        store = TokenStore(self._folder / _file_name(spec.store, values))
        return _Client(headers, form, seed, store, hashlib.sha256(told).hexdigest())


def _refusal(answer: Answer) -> AuthFailed:
    """Only the error's code is shown: its description is the provider's text, and may hold anything."""
    body = answer.body
    code = body.get("error") if isinstance(body, dict) else None
    known = code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else None
    said = f"the token endpoint answered {answer.status}" + (f", {known}" if known else "")
    if known == "invalid_grant":
        return TokenRefused(
            said,
            "authorise again, and put the new refresh token where `refresh_token` refers to",
        )
    if known in ("invalid_client", "unauthorized_client"):
        return AuthFailed(
            said, "correct `client_id` and `client_secret`, or try `client_auth: body`"
        )
    if known == "invalid_scope":
        return AuthFailed(said, "correct `scopes`")
    return AuthFailed(said, "correct `auth: oauth2`, or the secrets that it refers to")


def _life_s(value: object) -> float | None:
    """`expires_in` in seconds, also where it came as text; None where it says nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if 0 < found < 1e9 else None


def _file_name(template: Template, values: Mapping[str, object]) -> str:
    """A path of files; what a tenant puts in can name a file, never another folder."""
    out = []
    for part in template.parts:
        if isinstance(part, str):
            out.append(part)
            continue
        value = values.get(part.name)
        text = "" if value is None else quote(text_of(value), safe="")
        if text in ("", ".", ".."):
            raise AuthFailed(
                f"{{{part.name}}} cannot be part of the name of `store`",
                "use another field of the tenant in `store`",
            )
        out.append(text)
    return "".join(out)
