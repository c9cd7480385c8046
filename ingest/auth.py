"""What proves who we are: headers or a parameter, from secrets by reference. Sent to the origin only.

A session signs in with a POST once for all waiting requests and again after its lifetime or a 401.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from ingest.responses import Answer
from schemas.definitions.paths import MISSING
from schemas.definitions.secrets import Reference, Secrets, SecretUnavailable
from schemas.definitions.source import (
    ApiKeyAuth,
    AuthSpec,
    BasicAuth,
    BearerAuth,
    Secret,
    SessionAuth,
)
from schemas.definitions.templates import render, render_path, render_value, text_of


class AuthFailed(Exception):
    """Signing in did not give a token; the text holds no secret."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a request carries beside its own headers and parameters."""

    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)


SignIn = Callable[[str, object], Awaitable[Answer]]
"""POST a JSON body to a path of the origin."""


class Credential:
    """The proof of one source, or of one of its tenants. `values` gives what templates may use."""

    def __init__(
        self,
        spec: AuthSpec | None,
        secrets: Secrets,
        values: Callable[[], Mapping[str, object]],
        sign_in: SignIn,
        clock: Callable[[], float],
    ) -> None:
        self._spec, self._secrets, self._values = spec, secrets, values
        self._sign_in, self._clock = sign_in, clock
        self._fixed: Proof | None = None
        self._latest: Proof | None = None
        self._session: str | None = None
        self._signed_in_at = 0.0
        self._lock = asyncio.Lock()

    async def proof(self) -> Proof:
        """Raises SecretUnavailable or AuthFailed."""
        self._latest = await self._proof()
        return self._latest

    async def _proof(self) -> Proof:
        spec = self._spec
        if spec is None:
            return Proof()
        if isinstance(spec, SessionAuth):
            return Proof({spec.header: await self._token(spec)})
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

    def _static(self, spec: BearerAuth | BasicAuth | ApiKeyAuth) -> Proof:
        if isinstance(spec, BearerAuth):
            return Proof({"Authorization": f"Bearer {self._secret(spec.token)}"})
        if isinstance(spec, BasicAuth):
            user = spec.user if isinstance(spec.user, str) else self._secret(spec.user)
            pair = f"{user}:{self._secret(spec.password)}".encode()
            encoded = base64.b64encode(pair).decode()
            self._secrets.scrubber.add(encoded, "{basic}")
            return Proof({"Authorization": f"Basic {encoded}"})
        value = self._secret(spec.value)
        return (
            Proof({spec.name: value}) if spec.place == "header" else Proof({}, {spec.name: value})
        )

    def _secret(self, secret: Secret) -> str:
        if isinstance(secret, Reference):
            return self._secrets.get(secret)
        found = render(secret, self._values())
        if found is MISSING:
            raise SecretUnavailable(f"{secret.text} has no value for this tenant")
        text = text_of(found)
        self._secrets.scrubber.add(text, secret.text)
        return text

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
        answer = await self._sign_in(path, body)
        if not 200 <= answer.status < 300:
            raise AuthFailed(f"signing in at {path} answered {answer.status}")
        token = answer.value(spec.token)
        if token is MISSING or not isinstance(token, str) or not token:
            raise AuthFailed(f"signing in at {path}: the answer has no text at the token's path")
        self._secrets.scrubber.add(token, "{session}")
        return token
