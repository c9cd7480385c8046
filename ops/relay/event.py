"""One event of the outbox, and how CloudEvents writes it in Kafka and in HTTP (binary mode). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

# What CloudEvents lets stand in an HTTP header as it is: printable ASCII but space, quote and percent.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the outbox. `topic` None: it is posted. `body` None: a copy without its bytes."""

    id: int
    mapping: str
    key: str
    sequence: int
    type: str
    topic: str | None
    idempotency_key: str
    body: bytes | None
    attempts: int
    created_at: datetime
    headers: Mapping[str, str] = field(default_factory=dict)

    def attributes(self) -> dict[str, str]:
        """CloudEvents' context: what a receiver needs to drop repetitions and late copies."""
        return {
            "specversion": "1.0",
            "id": self.idempotency_key,
            "source": f"gapless/{self.mapping}",
            "type": self.type,
            "subject": self.key,
            "time": self.created_at.astimezone(UTC).isoformat(),
            "sequence": str(self.sequence),
        }

    def kafka_headers(self) -> list[tuple[str, str | bytes | None]]:
        """`ce_` headers; the row's own come last, and win over a default of the same name."""
        found = {f"ce_{name}": value for name, value in self.attributes().items()}
        found["content-type"] = "application/json"
        return list((found | dict(self.headers)).items())

    def http_headers(self) -> dict[str, str]:
        """`ce-` headers, escaped as the binding says, and the key that makes a repetition harmless."""
        found = {
            f"ce-{name}": quote(value, safe=_PLAIN) for name, value in self.attributes().items()
        }
        found["Content-Type"] = "application/json"
        found["Idempotency-Key"] = quote(self.idempotency_key, safe=_PLAIN)
        return found
