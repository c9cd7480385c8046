"""The simulated provider as the demo uses it: a process of its own, ordered about over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode


class Upstream:
    """A running provider with seeded records and a writer that inserts, updates and deletes."""

    def __init__(self, *, seed: int, tenants: int, accounts: int, events: int) -> None:
        options = {"seed": seed, "tenants": tenants, "accounts": accounts, "events": events}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ops.demo.provider", "--exit-with-stdin"]
            + [f"--{name}={value}" for name, value in options.items()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the provider ended with exit code {self._process.wait()}")
        self.url = str(json.loads(line)["url"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def traffic(self, rate: float) -> None:
        """Writes per second from now on."""
        self._order("traffic", {"rate": rate})

    def hold(self, path_regex: str) -> int:
        """Stop half-way through the next answer whose path matches; the hold's number."""
        order = {"path_regex": path_regex, "nth": 1, "count": 1, "stage": "body"}
        return int(self._order("hold", order)["hold"])

    def held(self, hold: int, timeout_s: float) -> bool:
        """Whether an answer came to be held within the time."""
        found = self._ask("GET", f"/admin/held?{urlencode({'timeout_s': timeout_s, 'hold': hold})}")
        return bool(json.loads(found)["held"])

    def release(self, hold: int) -> None:
        self._order("release", {"hold": hold})

    def live(self, tenant: str, collection: str) -> dict[str, Any]:
        """id → version of everything that exists now, by the provider's own books."""
        query = urlencode({"tenant": tenant, "collection": collection, "bodies": 0})
        lines = self._ask("GET", f"/admin/state?{query}").splitlines()
        return {fact["id"]: fact["version"] for fact in map(json.loads, lines)}

    def _order(self, command: str, order: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self._ask("POST", f"/admin/{command}", json.dumps(order).encode())
        )
        return found

    def _ask(self, method: str, target: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.url + target, body, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
        return found
