"""A token endpoint and an API that wants its tokens, with single-use refresh tokens that rotate."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from aiohttp import web

from tests.unit.ingest.polling import page, stamp

CLIENT, CLIENT_SECRET = "shop client", "cl1ent/s3cret+value="
Reply = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass
class TokenEndpoint:
    """`good`: access tokens that the API takes now. `refresh`: the one refresh token that is good.

    `spent` counts uses of every refresh token, good or not; `before` may answer in its place.
    """

    expires_in: object = 3600
    rotate: bool = True
    refresh: str | None = None
    before: Reply | None = None
    delay_s: float = 0.0
    issued: int = 0
    good: set[str] = field(default_factory=set)
    spent: dict[str, int] = field(default_factory=dict)
    forms: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/token"):
            return await self._token(request)
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.good:
            return web.Response(status=401)
        return page([{"id": 1, "t": stamp(60)}])

    async def _token(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append({**form, "Authorization": request.headers.get("Authorization", "")})
        given = form.get("refresh_token")
        if given is not None:
            self.spent[given] = self.spent.get(given, 0) + 1
        if self.before is not None and (answer := await self.before(request)) is not None:
            return answer
        if not _is_client(request, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        if given != self.refresh:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.issued += 1
        token = f"access-{self.issued}-0123456789"
        told: dict[str, object] = {"access_token": token, "token_type": "Bearer"}
        if self.expires_in is not None:
            told["expires_in"] = self.expires_in
        if self.refresh is not None and self.rotate:
            self.refresh = f"refresh-{self.issued}-0123456789"
            told["refresh_token"] = self.refresh
        self.good = {token}
        await asyncio.sleep(self.delay_s)
        return web.json_response(told)


def _is_client(request: web.Request, form: dict[str, str]) -> bool:
    header = request.headers.get("Authorization", "")
    if header.startswith("Basic "):
        user, _, password = base64.b64decode(header[6:]).decode().partition(":")
        return (unquote_plus(user), unquote_plus(password)) == (CLIENT, CLIENT_SECRET)
    return form.get("client_id") == CLIENT and form.get("client_secret") in (CLIENT_SECRET, None)
