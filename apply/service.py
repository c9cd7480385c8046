"""The service loop of apply: starts the threads, ends them in order, says why it could not begin.

Kafka or Postgres that cannot be reached are waited for, visibly. Exit codes: 0 stopped as asked,
4 refused (needs migrate, or another version has taken over), 70 internal.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict

from apply import metrics
from apply.careful import Careful
from apply.chores import Chores
from apply.claim import LIVE
from apply.consumer import Reader
from apply.copies import Copies
from apply.decode import Decoder
from apply.faults import NotPrepared, sink_fault
from apply.functions.outside import Surroundings
from apply.horizon import Horizons
from apply.identities import Identities
from apply.inbox import Assigned, Inbox, Revoked
from apply.interpreter import tune
from apply.link import Link, awaits
from apply.mapping.outside import Outside
from apply.mapping.types import CompiledMapping
from apply.opening import Checks
from apply.ownership import Ownership
from apply.sink import connect
from apply.store import Store
from apply.versions import by_stream, registered
from apply.writer import Writer
from schemas import failpoints
from schemas.definitions import DefinitionError
from schemas.definitions.load import Definitions, load_folder
from schemas.failpoints import Hit
from schemas.log.group import Membership
from schemas.log.pause import Pause
from schemas.routing import route
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_WAIT_S = 2.0
_STOP_S = 20.0
_SILENT_S = 30.0
_ASK_S = 5.0
REFUSED = 4
INTERNAL = 70


def run(settings: Settings, definitions: Definitions, *, hit: Hit = failpoints.none) -> int:
    """Apply the log to Postgres until SIGTERM or SIGINT. Returns an exit code.

    Raises OSError if the metrics' port is taken, psycopg.ProgrammingError for settings that name no
    database: waiting cures neither.
    """
    conninfo_to_dict(settings.postgres)
    stop = threading.Event()
    _on_signals(stop)
    metrics.expose(settings.metrics_port)
    return serve(settings, definitions, stop, hit=hit)


def serve(
    settings: Settings,
    definitions: Definitions,
    stop: threading.Event,
    *,
    hit: Hit = failpoints.none,
) -> int:
    """The same until `stop` is set, without signals and metrics' port."""
    while True:
        outside = Surroundings(definitions.folder)
        try:
            mappings = _mappings(settings, definitions, outside, stop)
            if mappings is None:
                return 0
            tune()
            service = Service(settings, mappings, stop, hit=hit)
            code = service.run()
            if not service.swapped:
                return code
            # a replay was for another version: its definition may stand in the files by now
            before = _meaning(definitions)
            definitions = load_folder(definitions.folder).check()
            if _meaning(definitions) == before:
                raise NotPrepared(
                    f"{service.why}. The definitions in {definitions.folder} are still those that this "
                    "worker has run: put that version there, or name the folder that has it "
                    "(--definitions), and start it again"
                )
            _log.info("going on with the definitions as they are now")
        except (NotPrepared, DefinitionError) as error:
            _log.error("refused", why=str(error))
            return REFUSED
        finally:
            outside.close()


def _meaning(definitions: Definitions) -> dict[str, tuple[int, str]]:
    """Version and hash of each mapping."""
    return {name: (one.version, one.hash) for name, one in definitions.mappings.items()}


def _on_signals(stop: threading.Event) -> None:
    def handler(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
        signal.signal(signal.SIGINT, handler)


def _mappings(
    settings: Settings, definitions: Definitions, outside: Outside, stop: threading.Event
) -> list[CompiledMapping] | None:
    """What to run; waits for Postgres. None if stopped meanwhile. Raises NotPrepared."""
    while not stop.is_set():
        try:
            with connect(settings.postgres, "start") as connection:
                return registered(connection, definitions.mappings.values(), outside)
        except psycopg.Error as error:
            fault = sink_fault(error)
            metrics.paused(fault.reason)
            _log.warning("waiting for Postgres", reason=fault.reason, detail=fault.detail)
            stop.wait(_WAIT_S)
    return None


class Service:
    """All threads of one worker."""

    def __init__(
        self,
        settings: Settings,
        mappings: list[CompiledMapping],
        stop: threading.Event,
        *,
        hit: Hit,
    ) -> None:
        self._settings, self._stop = settings, stop
        self._silent = False
        self._link = Link(settings.postgres)
        self._ask_at = 0.0
        self.swapped = False
        """Whether it ended since a replay was for another version: its table, or all behind its end."""
        self._routes: dict[str, int] = {}
        streams = by_stream(mappings)
        self._inbox = Inbox()
        self._identities = Identities(settings.postgres, stop)
        copies = Copies(settings.quarantine, settings.observations, f"{settings.prefix}apply")
        self._store = Store(
            settings.postgres, LIVE, settings.worker, mappings, hit=hit,
            copies=copies if settings.quarantine_copies else None,
        )  # fmt: skip
        decoder = Decoder(
            streams, self._identities.number, unmapped=True, beaten=self._store.expects_beaten
        )
        self._reader = Reader(settings, decoder, self._inbox, hit=hit)
        self._checks = Checks(settings, self._inbox)
        careful = Careful(
            self._store,
            Decoder(streams, self._identities.number, unmapped=True),  # of the writer's thread
            settings.batch_records,
            self._inbox.put_event,
        )
        patience_s = settings.session_timeout_ms / 1000
        ownership = Ownership(self._store, self._reader, self._checks, careful, LIVE, patience_s)
        self._members = Membership(
            settings,
            settings.apply_group,
            settings.observations,
            "apply",
            lambda numbers: self._inbox.put_event(Assigned(numbers)),
            lambda numbers: self._inbox.put_event(Revoked(numbers)),
        )
        self._horizons = Horizons(settings, lambda: list(self._store.positions))
        chores = Chores(mappings, settings.mark_deadline_s)
        self._writer = Writer(
            self._store, ownership, self._inbox, self._mirror, chores.do, careful, hit=hit
        )

    def stop(self) -> None:
        """Ask for a graceful end; `run` returns. Safe from any thread."""
        self._stop.set()

    def run(self) -> int:
        """Until stopped, or until a thread ended by itself."""
        metrics.LAGS.watch(self._standing)
        self._reader.start()
        self._writer.start()
        self._members.start()
        self._horizons.start()
        _log.info("applying", topic=self._settings.observations, worker=self._settings.worker)
        while not self._stop.wait(0.5) and self._writer.alive:
            self._watch()
        self.swapped = isinstance(self._writer.failed, NotPrepared)
        if not self.swapped:
            self._stop.set()
        ended = self._writer.stop(_STOP_S)
        self._reader.stop()
        self._members.stop()
        self._checks.stop()
        self._horizons.stop()
        metrics.LAGS.watch(None)
        if self.swapped:
            _log.warning("another version has taken over", why=self.why)
            return REFUSED
        if self._writer.failed is not None:
            return INTERNAL
        if not ended:
            _log.warning("the sink did not answer in time; its transaction is rolled back")
        return 0

    def _watch(self) -> None:
        """Say so when the sink keeps the writer waiting: a frozen server raises no error."""
        now = time.monotonic()
        silent_s = now - self._writer.turned_at
        if silent_s < _SILENT_S or not awaits(self._store.open_connection):
            self._link.answered()
            if self._silent and self._writer.waits_for is None:
                metrics.paused(self._writer.lacks)
                self._mirror(self._next_offsets(), self._writer.lacks)
            self._silent = False
        elif not self._silent:
            self._silent = True
            _log.warning("the sink has not answered", for_s=round(silent_s))
            metrics.paused("no_answer")
            self._mirror(self._next_offsets(), "no_answer")
        elif now >= self._ask_at:
            self._ask_at = now + _ASK_S
            if self._link.cut_if_dead(self._store.open_connection):
                _log.warning("the link to the sink is dead at both living ends: connecting anew")

    @property
    def why(self) -> str:
        """What the writer's thread ended of."""
        return str(self._writer.failed or "")

    def _next_offsets(self) -> dict[int, int]:
        return {p: held.next_offset for p, held in dict(self._store.positions).items()}

    def _mirror(self, next_offsets: dict[int, int], waits_for: str | None) -> None:
        """Kafka hears of both: while the sink cannot be asked, it is who still can."""
        pause = None
        if waits_for is not None:
            pause = Pause(waits_for, time.time_ns() // 1_000, self._settings.worker)
        self._members.commit(next_offsets, pause)

    def _standing(self) -> metrics.Standing:
        positions = dict(self._store.positions)
        first_ms = {**self._inbox.first_ms(), **self._writer.in_hand()}
        by_partition: dict[int, list[str]] = {}
        for text in self._identities.known():
            where = self._routes.get(text)
            if where is None:
                where = self._routes[text] = route(text, self._settings.partitions)
            by_partition.setdefault(where, []).append(text)
        return metrics.Standing(
            next_offsets={p: held.next_offset for p, held in positions.items()},
            first_ms=first_ms,
            ends=self._reader.watermarks(positions),
            partition_ids={p: tuple(texts) for p, texts in by_partition.items()},
            horizon=self._horizons.found,
        )
