"""What one partition of the log holds, in a temporary database on disk: memory stays bounded.

Holds pages, marks and tombstones by their identity. Thrown away with the object; judges nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from ops.audit.facts import LedgerRow, Page
from schemas.keys import PageKey, mark_key, parse_key
from schemas.records import Mark, PassRange

_CACHE_KIB = 16_384
_NEVER = 1 << 62
_IDENTITY = "partition_id = ? AND plan = ? AND scope = ? AND pass = ? AND page = ? AND part = ?"
_SCHEMA = """
CREATE TABLE page (
  partition_id TEXT, plan TEXT, scope TEXT, pass TEXT, page INT, part INT,
  at INT, origin INT, records INT, cleared INT,
  PRIMARY KEY (partition_id, plan, scope, pass, page, part)
) WITHOUT ROWID;
CREATE TABLE mark (
  at INTEGER PRIMARY KEY, key TEXT, partition_id TEXT, plan TEXT, kind TEXT,
  start TEXT, "end" TEXT, body BLOB
);
CREATE INDEX mark_span ON mark (partition_id, plan, start);
CREATE INDEX mark_key ON mark (key);
CREATE TABLE later (key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE tombstone (key TEXT PRIMARY KEY, at INT) WITHOUT ROWID;
CREATE TABLE replaced (partition_id TEXT, plan TEXT, kind TEXT, start TEXT, "end" TEXT);
CREATE TABLE orphan (at INT, mapping INT, key TEXT, plan TEXT, partition_id TEXT, scope TEXT);
"""


@dataclass(frozen=True, slots=True)
class Held:
    """What the log holds of a range of pages. `last_origin`: offset of the newest first copy."""

    parts: int
    pages: int
    records: int
    last_origin: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """A ledger row whose page does not stand at its offset."""

    offset: int
    mapping_version: int
    key: str
    plan: str
    partition_id: str
    scope: str


class LogIndex:
    """The index of one partition. Use as a context, or call `close`."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # "": a file of its own, unnamed
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.executescript(_SCHEMA)
        self._snapshots: dict[str, str] = {}
        self._db.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def add_page(self, offset: int, page: Page) -> int | None:
        """Remember a page; the offset of the first copy if its key was there before, else None."""
        identity = (page.partition_id, page.plan, page.scope, page.pass_, page.page, page.part)
        origin = offset if page.original_offset is None else page.original_offset
        done = self._db.execute(
            "INSERT OR IGNORE INTO page VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (*identity, offset, origin, page.records),
        )
        if done.rowcount:
            return None
        row = self._db.execute(f"SELECT origin FROM page WHERE {_IDENTITY}", identity).fetchone()
        self._db.execute(
            f"UPDATE page SET at = ?, origin = coalesce(origin, ?), records = ?, cleared = NULL"
            f" WHERE {_IDENTITY}",
            (offset, origin, page.records, *identity),
        )
        return None if row[0] is None else int(row[0])

    def add_mark(self, offset: int, mark: Mark) -> None:
        self._db.execute(
            "INSERT INTO mark VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                offset,
                mark_key(mark),
                mark.partition_id,
                mark.plan,
                mark.kind,
                mark.start,
                mark.end,
                msgspec.msgpack.encode(mark),
            ),
        )

        if mark.kind == "snapshot_complete":
            self._snapshots[mark.partition_id] = mark.scope

    def add_later_mark(self, mark: Mark) -> None:
        """One behind the end that is judged: it may be why an older record was cleaned away."""
        self._db.execute("INSERT OR IGNORE INTO later VALUES (?)", (mark_key(mark),))
        if mark.kind == "snapshot_complete":
            self._snapshots[mark.partition_id] = mark.scope

    def knows_complete_snapshot(self, partition_id: str, scope: str) -> None:
        """What somebody else knows; a mark of the log goes before it."""
        self._snapshots.setdefault(partition_id, scope)

    def add_tombstone(self, offset: int, key: str) -> None:
        """Remember it, and that the page is cleared from here on; it may be cleaned away already."""
        self._db.execute("INSERT OR REPLACE INTO tombstone VALUES (?, ?)", (key, offset))
        page = _page_key(key)
        if page is not None:
            identity = (
                page.partition_id, page.plan, page.scope, page.pass_, page.page, page.part
            )  # fmt: skip
            self._db.execute(
                "INSERT INTO page VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL, ?)"
                " ON CONFLICT DO UPDATE SET cleared = excluded.cleared",
                (*identity, offset),
            )

    def add_orphan(self, row: LedgerRow) -> None:
        self._db.execute(
            "INSERT INTO orphan VALUES (?, ?, ?, ?, ?, ?)",
            (row.offset, row.mapping_version, row.key, row.plan, row.partition_id, row.scope),
        )

    def marks(self) -> Iterator[tuple[int, Mark, int | None]]:
        """Marks by offset, each with the offset of a later tombstone of its key, if there is one."""
        rows = self._db.execute(
            "SELECT m.at, m.body, t.at FROM mark m LEFT JOIN tombstone t"
            " ON t.key = m.key AND t.at > m.at ORDER BY m.at"
        )
        for at, body, cleared in rows:
            yield int(at), msgspec.msgpack.decode(body, type=Mark), cleared

    def mark_at(self, offset: int) -> Mark | None:
        row = self._db.execute("SELECT body FROM mark WHERE at = ?", (offset,)).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0], type=Mark)

    def later_mark(self, key: str, offset: int) -> bool:
        """Whether a mark with this key stands behind `offset` (a cumulative one replaces older)."""
        query = (
            "SELECT 1 FROM mark WHERE key = ?1 AND at > ?2 UNION ALL"
            " SELECT 1 FROM later WHERE key = ?1 LIMIT 1"
        )
        return self._db.execute(query, (key, offset)).fetchone() is not None

    def spans(self, partition_id: str, plan: str) -> Iterator[tuple[str, str, str]]:
        """(start, end, kind) of every mark of a plan that speaks of a stretch, by start."""
        rows = self._db.execute(
            'SELECT start, "end", kind FROM mark WHERE partition_id = ?1 AND plan = ?2'
            ' AND start IS NOT NULL AND "end" IS NOT NULL UNION ALL'
            ' SELECT start, "end", kind FROM replaced WHERE partition_id = ?1 AND plan = ?2'
            ' ORDER BY start, "end" DESC',
            (partition_id, plan),
        )
        for start, end, kind in rows:
            yield str(start), str(end), str(kind)

    def first_scope(self, partition_id: str, plan: str) -> str | None:
        """The smallest scope that has a page: for intervals, where the pages kept begin."""
        query = "SELECT min(scope) FROM page WHERE partition_id = ? AND plan = ?"
        row = self._db.execute(query, (partition_id, plan)).fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def add_replaced(
        self, partition_id: str, plan: str, kind: str, start: str | None, end: str | None
    ) -> None:
        """A mark that Postgres has seen, and that a later one with the same key has replaced."""
        if start is not None and end is not None:
            self._db.execute(
                "INSERT INTO replaced VALUES (?, ?, ?, ?, ?)",
                (partition_id, plan, kind, start, end),
            )

    def newest_complete_snapshot(self, partition_id: str) -> str | None:
        """The scope of the last complete snapshot that is known."""
        return self._snapshots.get(partition_id)

    def held(
        self, partition_id: str, plan: str, scope: str, named: PassRange, as_of: int | None = None
    ) -> Held | None:
        """What stands in the log of the pages that a mark or a walk names.

        `as_of`: an offset; what was cleared behind it counts as held. None: some of it was cleaned
        away since then, so nothing can be said.
        """
        row = self._db.execute(
            "SELECT count(*), count(DISTINCT page), coalesce(sum(records), 0),"
            " coalesce(max(origin), -1), count(*) FILTER (WHERE at IS NULL) FROM page"
            " WHERE partition_id = ? AND plan = ? AND scope = ? AND pass = ?"
            " AND page BETWEEN ? AND ? AND (cleared IS NULL OR cleared > ?)",
            (
                partition_id, plan, scope, named.pass_, named.first, named.last,
                _NEVER if as_of is None else as_of,
            ),
        ).fetchone()  # fmt: skip
        *counts, cleaned = (int(value) for value in row)
        return None if cleaned else Held(*counts)

    def tombstone(self, key: str, after: int) -> bool:
        """Whether this key was cleared behind `after`."""
        query = "SELECT 1 FROM tombstone WHERE key = ? AND at > ?"
        return self._db.execute(query, (key, after)).fetchone() is not None

    def rewrite_of(self, key: str, offset: int) -> bool:
        """Whether the page with this key was rewritten, and its first copy stood at `offset`."""
        page = _page_key(key)
        if page is None:
            return False
        found = self._db.execute(
            f"SELECT 1 FROM page WHERE {_IDENTITY} AND origin = ? AND at > origin",
            (page.partition_id, page.plan, page.scope, page.pass_, page.page, page.part, offset),
        )
        return found.fetchone() is not None

    def orphans(self) -> Iterator[tuple[Orphan, bool]]:
        """Ledger rows without a page at their offset, each with whether a rewrite of it stands."""
        rows = self._db.execute("SELECT * FROM orphan ORDER BY at").fetchall()
        for row in rows:
            orphan = Orphan(*row)
            yield orphan, self.rewrite_of(orphan.key, orphan.offset)


def _page_key(key: str) -> PageKey | None:
    try:
        found = parse_key(key)
    except ValueError:
        return None
    return found if isinstance(found, PageKey) else None
