"""What all ways to prove who we are share: their faults, and how a secret gets its value."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.definitions.paths import MISSING
from schemas.definitions.scrubber import SHORTEST
from schemas.definitions.secrets import Reference, Secrets, SecretUnavailable
from schemas.definitions.source import Secret
from schemas.definitions.templates import Template, render, text_of


class AuthFailed(Exception):
    """Signing in did not give a token; the text holds no secret. `unblocked_by`: for people."""

    def __init__(self, text: str, unblocked_by: str = "") -> None:
        super().__init__(text)
        self.unblocked_by = unblocked_by or "correct `auth`, or the secrets that it refers to"


class SignInLater(Exception):
    """Signing in failed in a way that passes; `wait_s`: how long the provider asks to wait."""

    def __init__(self, text: str, wait_s: float | None = None) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class TooLateToSignIn(SignInLater):
    """So little is left of the budget that signing in was not begun."""


def secret_of(secret: Secret, secrets: Secrets, values: Mapping[str, object]) -> str:
    """The value of a secret, known to the scrubber from here on. May run a command, which blocks.

    Raises SecretUnavailable.
    """
    if isinstance(secret, Reference):
        value = secrets.get(secret)
        secrets.scrubber.add_credential(value, str(secret))
        return value
    text = _filled(secret, values)
    if len(text) < SHORTEST:
        raise SecretUnavailable(f"{secret.text}: shorter than {SHORTEST} characters")
    secrets.scrubber.add_credential(text, secret.text)
    return text


def name_of(name: Secret | str, secrets: Secrets, values: Mapping[str, object]) -> str:
    """The name of a user or a client: no secret, so records that hold it are kept as they are.

    Raises SecretUnavailable.
    """
    if isinstance(name, str):
        return name
    return secrets.get(name) if isinstance(name, Reference) else _filled(name, values)


def _filled(template: Template, values: Mapping[str, object]) -> str:
    found = render(template, values)
    if found is MISSING:
        raise SecretUnavailable(f"{template.text} has no value for this tenant")
    return text_of(found)
