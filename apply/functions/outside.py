"""What surrounds the mappings of one process: keys of hashes, and functions that can be called.

Everything is looked for when a mapping is compiled, so that what is missing is said at the start.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path

from apply.functions.runner import Runner
from apply.mapping.outside import Make
from schemas.definitions.mapping import FunctionSpec
from schemas.definitions.secrets import Reference, Secrets


class Surroundings:
    """`folder`: of the definitions, where files and modules are looked for."""

    def __init__(self, folder: Path, *, shown: bool = False) -> None:
        """`shown`: what functions print goes to standard error, for people who look at it."""
        self._folder, self._shown = folder, shown
        self._secrets = Secrets(folder=folder)
        self._runners: dict[FunctionSpec, Runner] = {}

    def hasher(self, key: Reference) -> Callable[[str], str]:
        """HMAC-SHA-256. Raises SecretUnavailable."""
        secret = self._secrets.get(key).encode()
        return lambda text: hmac.digest(secret, text.encode(), "sha256").hex()

    def function(self, spec: FunctionSpec) -> Make:
        """The function in a process of its own. Raises FunctionUnavailable."""
        runner = self._runners.get(spec)
        if runner is None:
            runner = self._runners[spec] = Runner(spec, self._folder, shown=self._shown)
            runner.start()
        return runner.make

    def close(self) -> None:
        """End the processes of all functions."""
        for runner in self._runners.values():
            runner.close()
