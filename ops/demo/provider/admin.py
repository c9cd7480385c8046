"""The admin paths: everything that a test does to the provider or asks of its ledger.

They are never held, never spoilt, need no token, and stand in no request log.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiohttp import web

from .collection import Absent, Collection
from .ledger import ledger_lines, state_lines
from .public import Handler, Parts
from .records import put, written
from .settings import BadSetting
from .store import Store, Unknown
from .times import SECOND_US, BadTime, parse, rfc3339
from .traffic import Traffic

_CHUNK_LINES = 500
_SEED_S = 86_400.0
Command = Callable[[dict[str, Any]], dict[str, Any]]


class Admin:
    """Handlers of `/admin/…`: commands are POSTs of a JSON object, questions are GETs."""

    def __init__(self, parts: Parts, traffic: Traffic) -> None:
        self._parts, self._traffic = parts, traffic
        self._store: Store = parts.store

    def routes(self) -> list[web.RouteDef]:
        commands: dict[str, Command] = {
            "clock": self._clock,
            "traffic": self._set_traffic,
            "settings": self._settings,
            "faults": self._set_faults,
            "seed": self._seed,
            "put": self._put,
            "delete": self._delete,
            "recreate": self._recreate,
            "hold": self._hold,
            "release": self._release,
        }
        questions: dict[str, Handler] = {
            "clock": _question(lambda _: self._clock({})),
            "traffic": _question(lambda _: self._traffic.state()),
            "settings": _question(lambda _: self._settings({})),
            "faults": _question(lambda _: {"rules": self._parts.faults.counts()}),
            "counts": _question(lambda _: self._counts()),
            "requests": _question(self._requests),
            "held": self._held,
            "ledger": self._lines(ledger_lines),
            "state": self._lines(state_lines),
        }
        return [
            *(web.post(f"/admin/{name}", _command(command)) for name, command in commands.items()),
            *(web.get(f"/admin/{name}", question) for name, question in questions.items()),
        ]

    def _clock(self, order: dict[str, Any]) -> dict[str, Any]:
        """`jump_s` moves, `set` (a time) sets, `speed` changes the speed (0 stops)."""
        clock = self._store.clock
        if "speed" in order:
            clock.run_at(float(order["speed"]))
        if "set" in order:
            clock.set(parse(str(order["set"])))
        clock.jump(float(order.get("jump_s", 0)))
        return {"now": rfc3339(clock.now_us()), "ahead_s": clock.ahead_s(), "speed": clock.speed}

    def _set_traffic(self, order: dict[str, Any]) -> dict[str, Any]:
        self._traffic.change(order)
        return self._traffic.state()

    def _settings(self, order: dict[str, Any]) -> dict[str, Any]:
        self._store.change_settings(order)
        return self._store.settings.values()

    def _set_faults(self, order: dict[str, Any]) -> dict[str, Any]:
        """`rules`: all that are in force from now on."""
        self._parts.faults.replace(order["rules"])
        return {"rules": self._parts.faults.counts()}

    def _seed(self, order: dict[str, Any]) -> dict[str, Any]:
        """`count` records with stamps from `from` to `to` (times; else the last day); `render`: bodies too."""
        now_us = self._store.clock.now_us()
        to_us = parse(str(order["to"])) if "to" in order else now_us
        from_us = parse(str(order["from"])) if "from" in order else to_us - int(_SEED_S * SECOND_US)
        name = order.get("collection", "accounts")
        self._store.seed_records(order["tenant"], name, int(order["count"]), from_us, to_us)
        if order.get("render", False):
            self._collection(order).render()
        return self._counts()

    def _put(self, order: dict[str, Any]) -> dict[str, Any]:
        """One record, or `records`: several that no request can see apart."""
        if "records" in order:
            return {"written": [written(put(self._store, each)) for each in order["records"]]}
        return written(put(self._store, order))

    def _delete(self, order: dict[str, Any]) -> dict[str, Any]:
        return written(self._collection(order).delete(str(order["id"])))

    def _recreate(self, order: dict[str, Any]) -> dict[str, Any]:
        collection = self._collection(order)
        collection.recreate(bool(order.get("keep", True)))
        return {"instance": collection.instance, "live": len(collection.live)}

    def _hold(self, order: dict[str, Any]) -> dict[str, Any]:
        nth, count = int(order.get("nth", 1)), int(order.get("count", 1))
        return {
            "hold": self._parts.holds.add(
                order["path_regex"], nth, count, order.get("stage", "request")
            )
        }

    def _release(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"released": self._parts.holds.release(order.get("hold"))}

    async def _held(self, request: web.Request) -> web.StreamResponse:
        """Waits up to `timeout_s` until a request is held (by `hold`, else by any)."""
        number = request.query.get("hold")
        timeout_s = min(float(request.query.get("timeout_s", 30)), 600.0)
        held = await self._parts.holds.held(None if number is None else int(number), timeout_s)
        return web.json_response(
            {"held": [{"hold": hold, "target": target} for hold, target in held]}
        )

    def _requests(self, query: Mapping[str, str]) -> dict[str, Any]:
        pattern = re.compile(query["path_regex"]) if "path_regex" in query else None
        return {"requests": self._parts.log.after(int(query.get("after", 0)), pattern)}

    def _counts(self) -> dict[str, Any]:
        return {
            f"{each.tenant}/{each.name}": {"live": len(each.live), "facts": len(each.facts)}
            for each in self._store.select(None, None)
        }

    def _collection(self, order: dict[str, Any]) -> Collection:
        return self._store.collection(order["tenant"], order.get("collection", "accounts"))

    def _lines(self, lines: Callable[[Collection, bool], Iterator[bytes]]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            query = request.query
            chosen = list(self._store.select(query.get("tenant"), query.get("collection")))
            if not chosen:
                return web.json_response({"code": "not_found"}, status=404)
            # All sources are fixed before the first byte leaves: writes that follow do not show.
            sources = [lines(each, query.get("bodies", "1") != "0") for each in chosen]
            return await _stream(request, sources)

        return handle


async def _stream(request: web.Request, sources: list[Iterator[bytes]]) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await answer.prepare(request)
    block: list[bytes] = []
    for source in sources:
        for line in source:
            block.append(line)
            if len(block) == _CHUNK_LINES:
                await answer.write(b"".join(block))
                block = []
                # A write that does not wait gives nobody else a turn.
                await asyncio.sleep(0)
    await answer.write(b"".join(block))
    await answer.write_eof()
    return answer


def _command(command: Command) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            order = json.loads(await request.read() or b"{}")
            if not isinstance(order, dict):
                raise TypeError("the body is a JSON object")
            return web.json_response(command(order))
        except (Unknown, Absent) as error:
            return web.json_response({"code": "not_found", "message": str(error)}, status=404)
        except KeyError as error:
            return web.json_response(
                {"code": "bad_order", "message": f"{error} is missing"}, status=400
            )
        except (ValueError, TypeError, BadTime, BadSetting) as error:
            return web.json_response({"code": "bad_order", "message": str(error)}, status=400)

    return handle


def _question(ask: Callable[[Mapping[str, str]], dict[str, Any]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.json_response(ask(request.query))

    return handle
