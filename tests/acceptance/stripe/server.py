"""A running localstripe with some customers, invoices and the events that tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.asking import ask
from tests.acceptance.foreign import ForeignServer, environment_of, free_port, installed

HERE = Path(__file__).parent
KEY = "sk_test_of_this_test"


def installed_localstripe() -> Path:
    """The folder with localstripe in an environment of its own; skips the test if it cannot be had."""
    return installed("localstripe", [HERE / "requirements.lock"], environment_of)


class Stripe(ForeignServer):
    """Answers at `url`."""

    def __init__(self, installation: Path, folder: Path) -> None:
        port = free_port()
        command: list[str | Path] = [installation / "environment/bin/localstripe"]
        options: list[str | Path] = ["--from-scratch", "--port", str(port)]
        super().__init__([*command, *options], folder, f"http://127.0.0.1:{port}/v1", "/customers")

    def create(self, collection: str, **fields: Any) -> str:
        """Another object; returns its id."""
        return str(self._ask("POST", f"/{collection}", fields)["id"])

    def change(self, collection: str, name: str, **fields: Any) -> None:
        self._ask("POST", f"/{collection}/{name}", fields)

    def delete(self, collection: str, name: str) -> None:
        self._ask("DELETE", f"/{collection}/{name}")

    def listed(self, collection: str) -> dict[str, dict[str, Any]]:
        """What it lists now, by id."""
        found = self._ask("GET", f"/{collection}?limit=100")
        assert not found["has_more"]
        return {one["id"]: one for one in found["data"]}

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return ask(method, self.url + path, {"Authorization": f"Bearer {KEY}"}, body).body
