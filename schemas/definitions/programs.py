"""Plans that are programs, frozen: a Python class that decides what to ask, a Singer tap that asks.

Neither has a request of its own kind: what is asked is the program's to say, so what it is given
stands here. Nothing is imported or started by reading a definition.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.definitions.source import ErrorRule
from schemas.definitions.templates import Value


@dataclass(frozen=True, slots=True)
class PythonSpec:
    """A class that says what to ask and takes what comes; Gapless asks, stores and checkpoints.

    `settings`, `headers`: values with references and `{tenant.x}` only. `headers` go with every
    request; `errors` are tried before the class sees an answer.
    """

    module: str
    name: str  # of the class, within the module
    settings: Mapping[str, Value]
    headers: Mapping[str, Value]
    errors: tuple[ErrorRule, ...]
    hang_s: float  # the longest that one call of the class may take
    definition_hash: str
    plan: str = "python"

    @property
    def path(self) -> str:
        """The class as the definition names it."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class SingerSpec:
    """A Singer tap, run as a subprocess for one of its streams.

    `config`, `environment`: values with references and `{tenant.x}` only. `catalog` is JSON text
    with this stream selected, `discover` asks the tap for one before each run.
    """

    command: tuple[str, ...]
    config: Mapping[str, Value]
    environment: Mapping[str, Value]
    stream: str  # as the tap names it
    catalog: str | None
    discover: bool
    ignores_others: bool  # records of other streams are thrown away, not refused
    keeps_state: bool  # False: declared `state: none`, every run reads everything again
    hang_s: float  # the longest silence between two messages
    definition_hash: str
    plan: str = "singer"


ProgramSpec = PythonSpec | SingerSpec
