"""The public paths, which are all that the product may ask: every way of reading over one way in.

The way in does authentication, holds, faults and the request log, in this order.
"""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from . import full
from .answers import Given, Refused
from .collection import Collection
from .delivery import around_hold, cut, instead
from .faults import Faults
from .holds import Holds
from .listings import Listings
from .requestlog import Request, RequestLog
from .store import Store, Unknown
from .times import rfc3339

Read = Callable[[Collection, web.Request, bytes], Given]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that the public paths and the admin paths share."""

    store: Store
    faults: Faults
    holds: Holds
    log: RequestLog


class Public:
    """Handlers of `/t/{tenant}/{collection}` and what stands below it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._listings = Listings(parts.store)

    def routes(self) -> list[web.RouteDef]:
        base, store, listings = "/t/{tenant}/{collection}", self._store, self._listings
        return [
            web.get(base, self._handler(lambda c, r, _: listings.window(c, r.query))),
            web.post(
                f"{base}/search", self._handler(lambda c, _, body: listings.search(c, _json(body)))
            ),
            web.get(f"{base}/linked", self._handler(self._linked)),
            web.get(f"{base}/after", self._handler(lambda c, r, _: listings.keyset(c, r.query))),
            web.get(
                f"{base}/below/{{account}}",
                self._handler(
                    lambda c, r, _: full.below(store, c, r.match_info["account"], r.query)
                ),
            ),
            web.get(
                f"{base}/changes", self._handler(lambda c, r, _: full.changes(store, c, r.query))
            ),
            web.get(f"{base}/info", self._handler(lambda c, r, _: full.info(store, c, r.query))),
            web.get(
                f"{base}/all", self._handler(lambda c, r, _: full.by_position(store, c, r.query))
            ),
            web.get(
                f"{base}/by-id", self._handler(lambda c, r, _: full.by_keyset(store, c, r.query))
            ),
        ]

    def _linked(self, collection: Collection, request: web.Request, _: bytes) -> Given:
        return self._listings.linked(
            collection, request.query, str(request.url.origin()), request.path
        )

    def _handler(self, read: Read) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._way_in(request, read)

        return handle

    async def _way_in(self, request: web.Request, read: Read) -> web.StreamResponse:
        asked = await request.read()
        entry = Request(
            number=self._parts.log.next_number(),
            at=rfc3339(self._store.clock.now_us()),
            real_time_s=time.time(),
            method=request.method,
            target=request.path_qs,
            body=asked.decode(errors="replace") or None,
            authorized="Authorization" in request.headers,
            status=0,
            count=0,
            first_id=None,
            last_id=None,
            fault=None,
        )
        try:
            return await self._answer(request, asked, read, entry)
        finally:
            self._parts.log.add(entry)

    async def _answer(
        self, request: web.Request, asked: bytes, read: Read, entry: Request
    ) -> web.StreamResponse:
        hold = self._parts.holds.match(request.path_qs)
        if hold is not None and hold.stage == "request":
            await self._parts.holds.wait(hold, request.path_qs)
        fault = self._parts.faults.decide(request.method, request.path_qs)
        if fault is not None:
            entry.fault = fault.kind
            replaced = await instead(request, fault)
            if replaced is not None:
                entry.status = 0 if fault.kind in ("close", "reset") else replaced.status
                return replaced
        answer = self._right(request, asked, read, entry)
        if fault is not None:
            answer.headers.update(fault.headers if fault.kind == "headers" else {})
            if fault.kind == "bom" and isinstance(answer.body, bytes):
                answer.body = codecs.BOM_UTF8 + answer.body
            if fault.kind == "cut":
                return await cut(request, answer, fault)
        sent: web.StreamResponse = answer
        if hold is not None and hold.stage == "body":
            sent = await around_hold(request, answer, self._parts.holds, hold)
        elif self._store.settings.compress:
            answer.enable_compression()
        entry.status = answer.status
        return sent

    def _right(
        self, request: web.Request, asked: bytes, read: Read, entry: Request
    ) -> web.Response:
        """The answer that the provider means to give."""
        try:
            self._authenticate(request)
            collection = self._store.collection(
                request.match_info["tenant"], request.match_info["collection"]
            )
            given = read(collection, request, asked)
        except Refused as refusal:
            return _refusal(refusal)
        except Unknown as error:
            return _refusal(Refused(404, "not_found", str(error)))
        entry.count, entry.first_id, entry.last_id = given.count, given.first_id, given.last_id
        return web.Response(body=given.body, content_type="application/json", headers=given.headers)

    def _authenticate(self, request: web.Request) -> None:
        token = self._store.settings.auth_token
        if token is not None and request.headers.get("Authorization") != f"Bearer {token}":
            raise Refused(401, "unauthorized", "a valid bearer token is needed")


def _refusal(refusal: Refused) -> web.Response:
    body = json.dumps({"code": refusal.code, "message": refusal.message}).encode()
    return web.Response(status=refusal.status, body=body, content_type="application/json")


def _json(body: bytes) -> dict[str, object]:
    try:
        asked = json.loads(body or b"{}")
    except ValueError:
        asked = None
    if not isinstance(asked, dict):
        raise Refused(400, "bad_body", "the body is a JSON object")
    return asked
