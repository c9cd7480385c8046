"""The simulated provider as tests use it: a process of its own, moved and questioned over HTTP.

Imports no product code, so that what it says can be held against the product.
"""

from __future__ import annotations

import base64
import json
import select
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

_ROOT = Path(__file__).resolve().parent.parent
# A provider that is seeded with a million records at its start needs some of this.
_READY_S = 60.0
_CALL_S = 120.0


class ProviderError(AssertionError):
    """The provider did not do what the test ordered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a path answered; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Fact:
    """One state that one entity had. Times are RFC 3339 text with microseconds, of the provider's clock.

    `body` is the record as it was shown, `raw` its bytes where it was given raw; both None for a tombstone.
    `replaced_at` is None for the last state of an entity (and in `state()`).
    """

    tenant: str
    collection: str
    instance: str
    seq: int
    id: str
    version: Any
    updated_at: str
    committed_at: str
    visible_at: str
    replaced_at: str | None
    deleted: bool
    hash: str | None
    body: Any
    raw: bytes | None


class Provider:
    """A running provider; make it with `start`, end it with `stop` or as a context manager."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    def start(
        cls,
        *,
        seed: int = 1,
        tenants: int = 1,
        rate: float = 0.0,
        accounts: int = 0,
        events: int = 0,
        history_s: float = 86_400.0,
        record_bytes: int = 600,
        speed: float = 1.0,
        clock_offset_s: float = 0.0,
        port: int = 0,
        settings: Mapping[str, Any] | None = None,
        render: bool = False,
    ) -> Self:
        """Starts the process and returns when it answers; `accounts` and `events` are per tenant.

        `render` has all bodies made before that, so that a benchmark does not measure their making.
        """
        options = {
            "port": port,
            "seed": seed,
            "tenants": tenants,
            "rate": rate,
            "accounts": accounts,
            "events": events,
            "history-s": history_s,
            "record-bytes": record_bytes,
            "speed": speed,
            "clock-offset-s": clock_offset_s,
            "settings": json.dumps(dict(settings or {})),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "ops.demo.provider", "--exit-with-stdin"]
            + ["--render"] * render
            + [f"--{name}={value}" for name, value in options.items()],
            cwd=_ROOT,
            # The provider ends with this pipe, also when the test is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            return cls(process, _ready(process))
        except BaseException:
            _end(process)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Ends the process; safe to call twice."""
        _end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # What the product may ask.

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        """Asks a public path as it is; any status is an answer."""
        target = path + ("?" + urlencode(query) if query else "")
        return self._ask("GET", target, None, headers)

    def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Answer:
        return self._ask("POST", path, body, headers)

    # What tests may do.

    def seed(
        self, tenant: str = "north", collection: str = "accounts", count: int = 100, **span: str
    ) -> None:
        """Inserts `count` records whose stamps are spread from `from_` to `to` (RFC 3339; else the last day)."""
        order = {name.rstrip("_"): value for name, value in span.items()}
        self._order("seed", {"tenant": tenant, "collection": collection, "count": count, **order})

    def put(
        self, tenant: str = "north", collection: str = "accounts", **record: Any
    ) -> dict[str, Any]:
        """Inserts or updates one record: `id`, `fields`, `remove`, `pad_bytes`, `raw` (bytes or text),
        `updated_at`, `version`, `visible_after_ms`; answers id, version, updated_at, seq."""
        return self._order("put", _record(tenant, collection, record))

    def put_together(
        self, records: Sequence[Mapping[str, Any]], tenant: str = "north"
    ) -> list[dict[str, Any]]:
        """Several puts that no request can see apart; each may name its `collection`."""
        orders = [_record(tenant, "accounts", record) for record in records]
        written: list[dict[str, Any]] = self._order("put", {"records": orders})["written"]
        return written

    def delete(
        self, record_id: str, tenant: str = "north", collection: str = "accounts"
    ) -> dict[str, Any]:
        """A hard delete; answers the tombstone's version."""
        return self._order("delete", {"tenant": tenant, "collection": collection, "id": record_id})

    def recreate(
        self, tenant: str = "north", collection: str = "accounts", keep: bool = True
    ) -> str:
        """Begins the collection anew and answers its new instance."""
        order = {"tenant": tenant, "collection": collection, "keep": keep}
        return str(self._order("recreate", order)["instance"])

    def settings(self, **wanted: Any) -> dict[str, Any]:
        return self._order("settings", wanted)

    def traffic(self, rate: float, **wanted: Any) -> dict[str, Any]:
        """Sets the rate in writes per second (0 stops); also `limit`, `weights`, `late_share`, `late_s`."""
        return self._order("traffic", {"rate": rate, **wanted})

    def wait_written(self, count: int, timeout_s: float = 60.0) -> None:
        """Returns once the traffic has made this many writes since the start of the process."""
        deadline = time.monotonic() + timeout_s
        while self._question("traffic")["written"] < count:
            if time.monotonic() > deadline:
                raise ProviderError(
                    f"not {count} writes after {timeout_s} s: {self._question('traffic')}"
                )
            time.sleep(0.02)

    def clock(self, **order: Any) -> str:
        """Moves the clock (`jump_s`, `set`, `speed`) if asked, and answers its time."""
        return str(self._order("clock", order)["now"])

    def faults(self, *rules: Mapping[str, Any]) -> None:
        """The rules in force from now on; none ends all faults."""
        self._order("faults", {"rules": list(rules)})

    def fault_counts(self) -> list[dict[str, Any]]:
        """For each rule: path, kind, matched, fired."""
        counts: list[dict[str, Any]] = self._question("faults")["rules"]
        return counts

    def hold(self, path_regex: str, nth: int = 1, count: int = 1, stage: str = "request") -> int:
        """Holds requests from the nth match on; `stage` request or body (half of it sent). Answers its number."""
        order = {"path_regex": path_regex, "nth": nth, "count": count, "stage": stage}
        return int(self._order("hold", order)["hold"])

    def wait_held(self, hold: int | None = None, timeout_s: float = 30.0) -> list[str]:
        """Returns the held targets as soon as there are some; fails after the timeout."""
        query = {"timeout_s": timeout_s} if hold is None else {"timeout_s": timeout_s, "hold": hold}
        held = self._question("held", **query)["held"]
        if not held:
            raise ProviderError(
                f"no request was held within {timeout_s} s; asked so far: {self._last_targets()}"
            )
        return [each["target"] for each in held]

    def release(self, hold: int | None = None) -> int:
        """Ends one hold or all and answers how many requests were let go."""
        return int(self._order("release", {} if hold is None else {"hold": hold})["released"])

    # What is true.

    def counts(self) -> dict[str, dict[str, int]]:
        """`tenant/collection` → live, facts."""
        return self._question("counts")

    def requests(self, path_regex: str | None = None, after: int = 0) -> list[dict[str, Any]]:
        """The log of public requests that have ended, by number."""
        query = (
            {"after": after} if path_regex is None else {"after": after, "path_regex": path_regex}
        )
        entries: list[dict[str, Any]] = self._question("requests", **query)["requests"]
        return entries

    def ledger(
        self, tenant: str | None = None, collection: str | None = None, bodies: bool = True
    ) -> list[Fact]:
        """Every state ever, in the order of commits of each collection."""
        return list(self._facts("ledger", tenant, collection, bodies))

    def state(
        self, tenant: str = "north", collection: str = "accounts", bodies: bool = True
    ) -> dict[str, Fact]:
        """What is live now, by id."""
        return {fact.id: fact for fact in self._facts("state", tenant, collection, bodies)}

    def _facts(
        self, what: str, tenant: str | None, collection: str | None, bodies: bool
    ) -> Iterator[Fact]:
        query = {"tenant": tenant, "collection": collection, "bodies": int(bodies)}
        target = f"/admin/{what}?" + urlencode(
            {name: value for name, value in query.items() if value is not None}
        )
        with urllib.request.urlopen(self.url + target, timeout=_CALL_S) as lines:
            for line in lines:
                yield _fact(json.loads(line))

    def _last_targets(self) -> list[str]:
        return [f"{each['target']} {each['status']}" for each in self.requests()[-5:]]

    def _order(self, command: str, order: Mapping[str, Any]) -> dict[str, Any]:
        return self._checked("POST", f"/admin/{command}", order)

    def _question(self, name: str, **query: Any) -> dict[str, Any]:
        return self._checked("GET", f"/admin/{name}?{urlencode(query)}", None)

    def _checked(self, method: str, target: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        answer = self._ask(method, target, body, None)
        if answer.status != 200:
            raise ProviderError(
                f"{method} {target}: {answer.status} {answer.body.decode(errors='replace')}"
            )
        parsed: dict[str, Any] = answer.json()
        return parsed

    def _ask(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + target, data, dict(headers or {}), method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_CALL_S) as answer:
                return Answer(answer.status, _lower(answer.headers.items()), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _lower(error.headers.items()), error.read())


def _ready(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], _READY_S)[0]:
        raise ProviderError(f"the provider said nothing for {_READY_S} s")
    line = process.stdout.readline()
    if not line:
        raise ProviderError(f"the provider ended with {process.wait()} before it answered")
    return str(json.loads(line)["url"])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _record(tenant: str, collection: str, record: Mapping[str, Any]) -> dict[str, Any]:
    order = {"tenant": tenant, "collection": collection, **record}
    if isinstance(order.get("raw"), bytes):
        order["raw_base64"] = base64.b64encode(order.pop("raw")).decode()
    return order


def _fact(line: dict[str, Any]) -> Fact:
    encoded = line.get("body_base64")
    return Fact(
        tenant=line["tenant"],
        collection=line["collection"],
        instance=line["instance"],
        seq=line["seq"],
        id=line["id"],
        version=line["version"],
        updated_at=line["updated_at"],
        committed_at=line["committed_at"],
        visible_at=line["visible_at"],
        replaced_at=line.get("replaced_at"),
        deleted=line["deleted"],
        hash=line["hash"],
        body=line.get("body"),
        raw=None if encoded is None else base64.b64decode(encoded),
    )


def _lower(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}
