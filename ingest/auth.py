"""What proves who we are: headers or a parameter, from secrets by reference. Sent to the origin only.

A session signs in with a POST once for all waiting requests and again after its lifetime or a 401;
tokens of OAuth 2 are `oauth`'s to get.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from ingest.http import FetchFailed
from ingest.oauth import TokenGrant
from ingest.responses import Answer, judge
from ingest.signing import AuthFailed, SignInLater, name_of, secret_of
from schemas.definitions.paths import MISSING
from schemas.definitions.secrets import Secrets
from schemas.definitions.source import (
    Action,
    ApiKeyAuth,
    AuthSpec,
    BasicAuth,
    BearerAuth,
    OAuth2Auth,
    Secret,
    SessionAuth,
)
from schemas.definitions.templates import render_path, render_value


@dataclass(frozen=True, slots=True)
class Proof:
    """What a request carries beside its own headers and parameters."""

    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


SignIn = Callable[[str, object], Awaitable[Answer]]
"""POST a JSON body to a path of the origin."""


class Credential:
    """The proof of one source, or of one of its tenants. `values` gives what templates may use.

    `grant`: where the tokens of `oauth2` come from. `now_us`: the wall clock, to read how long a
    provider asks to wait; `clock` gives seconds, rising.
    """

    def __init__(
        self,
        spec: AuthSpec | None,
        secrets: Secrets,
        values: Callable[[], Mapping[str, object]],
        sign_in: SignIn,
        clock: Callable[[], float],
        now_us: Callable[[], int],
        grant: TokenGrant | None = None,
    ) -> None:
        self._now_us, self._grant = now_us, grant
        self._spec, self._secrets, self._values = spec, secrets, values
        self._sign_in, self._clock = sign_in, clock
        self._fixed: Proof | None = None
        self._latest: Proof | None = None
        self._session: str | None = None
        self._signed_in_at = 0.0
        self._lock = asyncio.Lock()

    async def proof(self) -> Proof:
        """Raises SecretUnavailable, RenderError, AuthFailed or SignInLater."""
        self._latest = await self._proof()
        return self._latest

    async def _proof(self) -> Proof:
        spec = self._spec
        if spec is None:
            return Proof()
        if isinstance(spec, SessionAuth):
            token = await self._token(spec)
            return Proof({spec.header: f"{spec.scheme} {token}" if spec.scheme else token})
        if isinstance(spec, OAuth2Auth):
            assert self._grant is not None
            return Proof({"Authorization": f"Bearer {await self._grant.token()}"})
        if self._fixed is None:
            # resolving may run a command, which blocks
            self._fixed = await asyncio.to_thread(self._static, spec)
        return self._fixed

    def refresh(self, refused: Proof) -> None:
        """`refused` was refused: resolve references anew, sign in again; once for all who had it."""
        if refused != self._latest:
            return
        self._secrets.forget()
        self._latest = self._fixed = None
        self._session = None
        if self._grant is not None:
            self._grant.refuse(refused.headers["Authorization"].removeprefix("Bearer "))

    async def close(self) -> None:
        """Waits for a token that is being renewed."""
        if self._grant is not None:
            await self._grant.close()

    def _static(self, spec: BearerAuth | BasicAuth | ApiKeyAuth) -> Proof:
        if isinstance(spec, BearerAuth):
            return Proof({"Authorization": f"Bearer {self._secret(spec.token)}"})
        if isinstance(spec, BasicAuth):
            user = name_of(spec.user, self._secrets, self._values())
            pair = f"{user}:{self._secret(spec.password)}".encode()
            encoded = base64.b64encode(pair).decode()
            self._secrets.scrubber.add_credential(encoded, "{basic}")
            return Proof({"Authorization": f"Basic {encoded}"})
        value = self._secret(spec.value)
        return (
            Proof({spec.name: value}) if spec.place == "header" else Proof({}, {spec.name: value})
        )

    def _secret(self, secret: Secret) -> str:
        return secret_of(secret, self._secrets, self._values())

    async def _token(self, spec: SessionAuth) -> str:
        async with self._lock:
            age = self._clock() - self._signed_in_at
            if self._session is None or (spec.lifetime_s is not None and age >= spec.lifetime_s):
                self._session = await self._signed_in(spec)
                self._signed_in_at = self._clock()
            return self._session

    async def _signed_in(self, spec: SessionAuth) -> str:
        values = await asyncio.to_thread(self._values)
        path = render_path(spec.post, values)
        body = await asyncio.to_thread(render_value, dict(spec.body), values, self._secrets.get)
        try:
            answer = await self._sign_in(path, body)
        except FetchFailed as error:
            raise SignInLater(f"signing in at {path}: {error}") from None
        verdict = judge(answer, (), self._now_us())
        if verdict.action in (Action.RETRY, Action.RATE_LIMITED):
            raise SignInLater(f"signing in at {path} answered {answer.status}", verdict.wait_s)
        if verdict.action is not Action.SUCCESS:
            raise AuthFailed(f"signing in at {path} answered {answer.status}")
        token = answer.value(spec.token)
        if token is MISSING or not isinstance(token, str) or not token:
            raise AuthFailed(f"signing in at {path}: the answer has no text at the token's path")
        self._secrets.scrubber.add_passing(token, "{session}")
        return token
