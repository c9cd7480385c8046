"""References to secrets, what they resolve to, and the scrubber that takes the values out again.

A value that came by reference never appears in logs, topics and errors; its reference does.
"""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

KINDS: Final = ("env", "file", "command")
COMMAND_TIMEOUT_S: Final = 30.0
SHORTEST: Final = 4
"""Characters; a shorter value could not be taken out of a text without destroying the text."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a secret is to be found: an environment variable, a file or a command's output."""

    kind: str  # env, file or command
    target: str | tuple[str, ...]  # a name, a path, or the command's arguments

    def __str__(self) -> str:
        shown = self.target if isinstance(self.target, str) else f"[{', '.join(self.target)}]"
        return f"{{{self.kind}: {shown}}}"


class SecretUnavailable(Exception):
    """A reference leads to no value; the text says which and why, never a value."""


def resolve(reference: Reference, environ: Mapping[str, str], folder: Path | None = None) -> str:
    """The secret. Relative files start at `folder`. Trailing line ends of files and outputs are cut.

    Raises SecretUnavailable also for a value shorter than SHORTEST, which could not be scrubbed.
    """
    if isinstance(reference.target, tuple):
        value = _output_of(reference, reference.target)
    elif reference.kind == "env":
        if reference.target not in environ:
            raise SecretUnavailable(
                f"{reference}: the environment has no variable {reference.target}"
            )
        value = environ[reference.target]
    else:
        value = _content_of(reference, (folder or Path()) / reference.target)
    if len(value) < SHORTEST:
        raise SecretUnavailable(f"{reference}: empty or shorter than {SHORTEST} characters")
    return value


def _content_of(reference: Reference, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise SecretUnavailable(f"{reference}: {error.strerror or 'not readable'}") from None
    except UnicodeDecodeError:
        raise SecretUnavailable(f"{reference}: not a text in UTF-8") from None


def _output_of(reference: Reference, command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        text = done.stdout.decode("utf-8")
    except subprocess.TimeoutExpired:
        raise SecretUnavailable(
            f"{reference}: no answer within {COMMAND_TIMEOUT_S:.0f} s"
        ) from None
    except OSError as error:
        raise SecretUnavailable(f"{reference}: {error.strerror or 'not started'}") from None
    except UnicodeDecodeError:
        raise SecretUnavailable(f"{reference}: not a text in UTF-8") from None
    if done.returncode != 0:
        raise SecretUnavailable(f"{reference}: exit code {done.returncode}")
    return text.rstrip("\r\n")


class Scrubber:
    """Replaces secrets by their references, also where they were URL-encoded, JSON-escaped or base64."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._longest_first: tuple[str, ...] = ()

    def add(self, value: str, shown: str) -> None:
        """From now on `value` is shown as `shown`. An empty value is ignored."""
        if not value:
            return
        escaped = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
        encoded = base64.b64encode(value.encode()).decode()
        for form in (
            value,
            quote(value, safe=""),
            quote(value),
            quote_plus(value),
            *escaped,
            encoded,
        ):
            self._shown.setdefault(form, shown)
        self._longest_first = tuple(sorted(self._shown, key=len, reverse=True))

    def text(self, text: str) -> str:
        """The text without secrets."""
        for form in self._longest_first:
            if form in text:
                text = text.replace(form, self._shown[form])
        return text

    def bytes(self, content: bytes) -> bytes:
        """The bytes without secrets; everything else is kept exactly."""
        for form in self._longest_first:
            found = form.encode()
            if found in content:
                content = content.replace(found, self._shown[form].encode())
        return content

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers without secrets, in names and values."""
        return {self.text(name): self.text(value) for name, value in headers.items()}


class Secrets:
    """Resolves references once, remembers the values, and teaches them to its scrubber."""

    def __init__(
        self, environ: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self.scrubber = Scrubber()
        self._environ = os.environ if environ is None else environ
        self._folder = folder
        self._values: dict[Reference, str] = {}

    def get(self, reference: Reference) -> str:
        """The secret. Blocks while a command runs. Raises SecretUnavailable."""
        if reference not in self._values:
            value = resolve(reference, self._environ, self._folder)
            self.scrubber.add(value, str(reference))
            self._values[reference] = value
        return self._values[reference]

    def forget(self) -> None:
        """Resolve again when asked next (a token was refused); old values stay scrubbed."""
        self._values.clear()
