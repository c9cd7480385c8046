"""References to secrets, and what they resolve to.

A value that came by reference never appears in logs, topics and errors; its reference does.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.definitions.commands import PrintedTooMuch, TookTooLong, output_of
from schemas.definitions.scrubber import SHORTEST, Scrubber

KINDS: Final = ("env", "file", "command")
COMMAND_TIMEOUT_S: Final = 30.0
_OUTPUT_BYTES_MAX: Final = 1024 * 1024


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
        code, printed = output_of(
            command, timeout_s=COMMAND_TIMEOUT_S, most_bytes=_OUTPUT_BYTES_MAX
        )
        text = printed.decode("utf-8")
    except TookTooLong:
        raise SecretUnavailable(
            f"{reference}: no answer within {COMMAND_TIMEOUT_S:.0f} s"
        ) from None
    except PrintedTooMuch:
        raise SecretUnavailable(f"{reference}: more than {_OUTPUT_BYTES_MAX:,} bytes") from None
    except OSError as error:
        raise SecretUnavailable(f"{reference}: {error.strerror or 'not started'}") from None
    except UnicodeDecodeError:
        raise SecretUnavailable(f"{reference}: not a text in UTF-8") from None
    if code != 0:
        raise SecretUnavailable(f"{reference}: exit code {code}")
    return text.rstrip("\r\n")


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
