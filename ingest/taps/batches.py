"""Messages of a tap become batches of records with the state that may be claimed behind each. Pure.

Invariant: records leave in their order, none is left out, and a batch's state is the last STATE
that stands behind nothing but records of this or an earlier batch. So a state never covers a record
that is not stored with it or before it, wherever the batches are cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingest.taps.messages import (
    Message,
    RecordMessage,
    SchemaMessage,
    StateMessage,
    TapFault,
)

RECORDS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in order, perhaps none, and the state to store with them."""

    records: tuple[bytes, ...]
    state: bytes | None


class Batches:
    """One run of a tap for one of its streams.

    `state` is what the run was begun with. `bytes_max`: a batch ends once it is that large.
    """

    def __init__(
        self,
        stream: str,
        state: bytes | None,
        *,
        bytes_max: int,
        records_max: int = RECORDS_MAX,
        ignores_others: bool = False,
        keeps_state: bool = True,
    ) -> None:
        self._stream, self._state = stream, state
        self._bytes_max, self._records_max = bytes_max, records_max
        self._ignores_others, self._keeps_state = ignores_others, keeps_state
        self._records: list[bytes] = []
        self._size = 0
        self._given = state
        self.uncovered = 0
        """Records behind the last STATE: every run reads them again until one covers them."""
        self.schema: SchemaMessage | None = None
        """The newest schema of the stream."""

    @property
    def held(self) -> bool:
        """Whether there is something to store."""
        return bool(self._records) or self._state != self._given

    def take(self, message: Message) -> Batch | None:
        """A batch, if this message fills one. Raises TapFault for a record that nobody reads."""
        if isinstance(message, RecordMessage):
            return self._record(message)
        if isinstance(message, StateMessage):
            if self._keeps_state:
                self._state = message.value
                self.uncovered = 0
        elif isinstance(message, SchemaMessage) and message.stream == self._stream:
            self.schema = message
        return None

    def cut(self) -> Batch:
        """What is held, now."""
        batch = Batch(tuple(self._records), self._state)
        self._records, self._size, self._given = [], 0, self._state
        return batch

    def _record(self, message: RecordMessage) -> Batch | None:
        if message.stream != self._stream:
            if self._ignores_others:
                return None
            raise TapFault(
                f"the tap sends records of the stream {message.stream[:80]}, and this partition id "
                f"reads {self._stream}: a STATE behind them would claim them",
                "`catalog: discover` or a catalog that selects one stream; or `others: ignore`",
                lasting=True,
            )
        self._records.append(message.record)
        self._size += len(message.record)
        self.uncovered += self._keeps_state
        full = self._size >= self._bytes_max or len(self._records) >= self._records_max
        return self.cut() if full else None
