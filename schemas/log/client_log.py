"""What librdkafka says by itself, through the log of the process instead of raw lines on stderr.

One line per minute and kind for the whole process: thirty clients that lose one broker say the same
thing, again and again. A client hands its lines over when it is polled, flushed or closed.
"""

from __future__ import annotations

import re
import sys
import threading
import time

from schemas.log.seldom import Seldom

_THREAD = re.compile(r"^\[thrd:[^\]]*\]: ")
_NUMBER = re.compile(r"\d+")


class ClientLog:
    """The `logger` of every client; safe from any thread."""

    def __init__(self, every_s: float = 60.0) -> None:
        self._seldom = Seldom(every_s)
        self._lock = threading.Lock()

    def log(self, level: int, form: str, *parts: object) -> None:
        """One line of librdkafka; `level` as in `logging`, `parts`: facility, client, what it says."""
        facility, client, said = _parts(form, parts)
        with self._lock:
            held_back = self._seldom.told(_kind(facility, said), time.monotonic())
        if held_back is not None:
            _write(level, facility, client, said, held_back)


def _parts(form: str, parts: tuple[object, ...]) -> tuple[str, str, str]:
    if len(parts) == 3:
        facility, client, said = (str(part) for part in parts)
        return facility, client, _THREAD.sub("", said)
    return "", "", form % parts if parts else form


def _kind(facility: str, said: str) -> str:
    """Ports tell brokers apart; durations, counts and offsets do not tell events apart."""
    address, separator, rest = said.partition(": ")
    return f"{facility} {address}{separator}{_NUMBER.sub('#', rest)}"


def _write(level: int, facility: str, client: str, said: str, held_back: int) -> None:
    import structlog  # only here: reading verbs that meet no trouble need not wait for it

    repeated = {"held_back": held_back} if held_back else {}
    if structlog.is_configured():
        log = structlog.get_logger(__name__)
        log.log(level, "kafka client", said=said, kind=facility, client=client, **repeated)
    else:  # a short verb: its standard output belongs to its result
        sys.stderr.write(f"Kafka client: {said}\n")


CLIENT_LOG = ClientLog()
"""Of this process."""
