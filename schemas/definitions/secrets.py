"""References to secrets; a value that came by reference never appears in what Gapless writes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a secret is to be found: an environment variable, a file or a command's output."""

    kind: str  # env, file or command
    target: str | tuple[str, ...]  # a name, a path, or the command's arguments
