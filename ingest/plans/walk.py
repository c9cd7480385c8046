"""Turning pages: what alone ends a walk, when it has to be repeated, and what is a loop.

A walk of several pages that may shift proves nothing alone: it is repeated until one finds no id
that the earlier ones lacked. The comparison lives in memory and begins anew after a restore.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec.structs import replace

from ingest.plans.idset import IdSet
from ingest.plans.positions import position_fault
from ingest.plans.protocol import (
    IDLE_PAGES_MAX,
    PASS_RANGES_MAX,
    TOKEN_MAX_BYTES,
    WALKS_MAX,
    Nonce,
    Now,
    Page,
    Stall,
    Value,
    too_long,
)
from schemas.definitions.source import COUNTED, HOLD_STILL, End, PagesSpec, Turn
from schemas.records import PassRange, Walk

_BY_TOKEN = (Turn.TOKEN, Turn.LINK)


class Outcome(Enum):
    """What a page means for its walk."""

    MORE = auto()  # ask for the next page
    AGAIN = auto()  # over, but it proves nothing yet: walk once more
    END = auto()  # over and proven
    BEGIN = auto()  # too many passes: begin the scope again, forget what it named
    STALL = auto()  # this page cannot be got past; it is asked for again
    INCOMPLETE = auto()  # walked as often as is sensible, and still nothing is proven


@dataclass(frozen=True, slots=True)
class Turned:
    """Where the walk stands behind a page; `log`: the page becomes an observation; `save`: the
    state is worth a checkpoint although nothing is logged.
    """

    outcome: Outcome
    walk: Walk
    log: bool = False
    stall: Stall | None = None
    save: bool = False


@dataclass(slots=True)
class Memory:
    """What may be lost: the current pass and what the walks of this scope have shown so far."""

    scope: str
    pass_: str
    used: set[str] = field(default_factory=set)
    known: IdSet = field(default_factory=IdSet)
    found_new: bool = False
    walks: int = 0
    idle: int = 0
    content: int | None = None
    page_ids: frozenset[int] = frozenset()
    last_time: int | None = None


class Walker:
    """Walks through the pages of one plan, one scope at a time.

    `divided`: it asks several questions, so what is cut off one of them the others do not show.
    """

    divided = False

    def __init__(self, pages: PagesSpec | None, nonce: Nonce) -> None:
        self._pages = pages
        self._nonce = nonce
        self._memory: Memory | None = None

    @property
    def shifts(self) -> bool:
        """Whether a record may move from page to page between two questions."""
        pages = self._pages
        return not (pages is None or pages.stable or pages.turn in HOLD_STILL)

    def forget(self) -> None:
        """After a restore, or when a scope begins again: a fresh pass and no comparison."""
        self._memory = None

    def resume(self) -> None:
        """A poll begins: what an earlier one saw of the provider may have changed since."""

    def enter(self, walk: Walk) -> Memory:
        """The memory of this walk's scope, empty if it is not the one walked last."""
        if self._memory is None or self._memory.scope != walk.scope:
            self._memory = Memory(walk.scope, self._nonce())
        if walk.token is not None:
            self._memory.used.add(walk.token)
        return self._memory

    def expired(self, walk: Walk, now: Now) -> bool:
        """Whether the token is older than the provider keeps it."""
        lifetime_s = self._pages.token_lifetime_s if self._pages else None
        if lifetime_s is None or walk.token_at is None or walk.token is None:
            return False
        return now.local - walk.token_at >= lifetime_s * 1_000_000

    def values(self, walk: Walk) -> dict[str, Value]:
        """The placeholders of the next page; those without a value yet are absent."""
        pages = self._pages
        if pages is None:
            return {}
        values: dict[str, Value] = {}
        if pages.size is not None:
            values["size"] = pages.size
        if pages.turn is Turn.PAGE:
            first = 1 if pages.first is None else pages.first
            values["page"] = first + walk.page - 1
        elif pages.turn is Turn.OFFSET:
            values["offset"] = (pages.first or 0) + walked(walk)
        elif pages.turn is Turn.TOKEN and walk.token is not None:
            values["token"] = walk.token
        elif pages.turn is Turn.LAST_ID and walk.last_id is not None:
            values["last.id"] = walk.last_id
        elif pages.turn is Turn.KEYSET and walk.token is not None:
            values["after.time"], values["after.id"] = walk.token, walk.last_id
        return values

    def link(self, walk: Walk) -> str | None:
        """The absolute link to ask as it is, from the second page of a walk by links."""
        by_link = self._pages is not None and self._pages.turn is Turn.LINK
        return walk.token if by_link else None

    def renewed(self, walk: Walk) -> Walk | None:
        """The walk without a token that expired, where not all of it has to begin again."""
        return None

    def wants_listing(self, walk: Walk) -> bool:
        """Whether the next question lists parents, and is none of the walk's own pages."""
        return False

    def leaf(self, walk: Walk) -> tuple[Memory, Walk]:
        """The walk whose pages follow each other in the provider's order, and its memory."""
        return self.enter(walk), walk

    def depth(self, walk: Walk) -> int:
        """How many pages one question of this walk had to be divided into."""
        return walk.page

    def turn(self, walk: Walk, page: Page, *, beyond: bool = False) -> Turned:
        """Where the walk stands behind `page`; `beyond`: all that follows is outside the window."""
        memory = self.enter(walk)
        total = walked(walk) + page.records
        ended = beyond or page.closed or self._ended(walk, page, total, memory)
        log = page.records > 0 or not ended
        after = extended(walk, memory.pass_, page) if log else walk
        if len(after.passes) > PASS_RANGES_MAX:
            self.forget()
            return Turned(Outcome.BEGIN, begun_again(walk))
        if self._compares(walk, ended):
            memory.found_new |= memory.known.add(page.read_compared())
        if ended:
            short = self._short(page, total) and not beyond and not page.closed
            return self._close(after, log, short, walk.page > 1)
        return self._onward(after, page, memory)

    def _ended(self, walk: Walk, page: Page, total: int, memory: Memory) -> bool:
        pages = self._pages
        if pages is None:
            return True
        if not isinstance(pages.end, End):
            return page.ended
        if pages.end is End.NO_NEXT:
            position = page.cursor if pages.turn is Turn.CURSOR else page.next
            return position is None
        if pages.turn is Turn.KEYSET and pages.end is End.NOTHING_NEW and page.records:
            return page.positions[-1] == (walk.token, walk.last_id)
        if pages.end is End.NOTHING_NEW:
            before, memory.page_ids = memory.page_ids, frozenset(page.read_ids())
            return memory.page_ids <= before
        if pages.end is End.TOTAL and pages.turn in COUNTED:
            if page.total is not None and total >= page.total:
                return True
        return page.records == 0

    def _short(self, page: Page, total: int) -> bool:
        """Fewer records than the answer says there are: rows went missing between pages."""
        declared = self._pages is not None and self._pages.total is not None
        return declared and page.total is not None and total < page.total

    def _compares(self, walk: Walk, ended: bool) -> bool:
        return self.shifts and (walk.page > 1 or not ended)

    def _close(self, after: Walk, log: bool, short: bool, several: bool) -> Turned:
        memory = self.enter(after)
        proven = not (self.shifts and several) or (memory.walks > 0 and not memory.found_new)
        if proven and not short:
            self.forget()  # the same scope may be walked again one day, in a pass of its own
            return Turned(Outcome.END, after, log)
        walks = memory.walks + 1
        if walks >= WALKS_MAX:
            self.forget()
            return Turned(Outcome.INCOMPLETE, after, log, _incomplete(walks, short))
        self._memory = Memory(after.scope, self._nonce(), known=memory.known)
        self._memory.walks = walks
        again = replace(after, page=1, token=None, token_at=None, last_id=None)
        return Turned(Outcome.AGAIN, again, log)

    def _onward(self, after: Walk, page: Page, memory: Memory) -> Turned:
        pages = self._pages
        assert pages is not None
        stall = self._endless(page, memory)
        token, last_id = None, after.last_id
        if pages.turn is Turn.KEYSET:
            token, last_id = page.positions[-1] if page.records else (after.token, after.last_id)
        if stall is None and pages.turn in _BY_TOKEN:
            token = page.next
            stall = _token_fault(token, memory)
        elif stall is None and pages.turn is Turn.CURSOR:
            stall = _cursor_fault(page, memory)
        elif stall is None and pages.turn is Turn.LAST_ID and page.records:
            last_id = page.last_id
            stall = _id_fault(last_id)
        elif stall is None and pages.turn is Turn.KEYSET and page.records:
            stall = position_fault((token, last_id), (after.token, after.last_id))
        if stall is not None:
            # The page will be asked again; it must not be compared with itself.
            memory.page_ids = frozenset()
            return Turned(Outcome.STALL, after, False, stall)
        if token is not None:
            memory.used.add(token)
        walk = replace(
            after,
            page=after.page + 1,
            token=token,
            token_at=page.at.local if token is not None and pages.turn in _BY_TOKEN else None,
            last_id=last_id,
        )
        return Turned(Outcome.MORE, walk, True)

    def _endless(self, page: Page, memory: Memory) -> Stall | None:
        same = page.records == 0 or page.content == memory.content
        memory.idle = memory.idle + 1 if same else 0
        memory.content = page.content
        if memory.idle < IDLE_PAGES_MAX:
            return None
        return Stall(
            f"{memory.idle} pages in a row were empty or the same, and the declared end never came",
            "correct `pages` (its `end`, or the parameter that turns the page)",
        )


def walked(walk: Walk) -> int:
    """Records of the current walk so far, over all passes since its first page."""
    if walk.page == 1:
        return 0
    records = 0
    for part in reversed(walk.passes):
        records += part.records
        if part.first == 1:
            break
    return records


def begun_again(walk: Walk, restarts: int = 0) -> Walk:
    """The same scope from its first page; what was logged stays as surplus."""
    return Walk(scope=walk.scope, restarts=restarts, started_at=walk.started_at)


def extended(walk: Walk, pass_: str, page: Page) -> Walk:
    """The walk with its page named."""
    passes = list(walk.passes)
    last = passes[-1] if passes else None
    if last is not None and last.pass_ == pass_ and last.last + 1 == walk.page:
        passes[-1] = PassRange(
            pass_=pass_,
            first=last.first,
            last=walk.page,
            parts=last.parts + page.parts,
            records=last.records + page.records,
            parts_max=max(last.parts_max, page.parts),
        )
    else:
        passes.append(
            PassRange(
                pass_=pass_,
                first=walk.page,
                last=walk.page,
                parts=page.parts,
                records=page.records,
                parts_max=page.parts,
            )
        )
    return replace(walk, passes=passes)


def _token_fault(token: str | None, memory: Memory) -> Stall | None:
    if token is None:
        return Stall(
            "the answer has no next token, but the declared end of the pages was not reached",
            "correct `pages.next` or `pages.end`",
        )
    if too_long(token):
        return Stall(
            f"the next token is longer than {TOKEN_MAX_BYTES} bytes",
            "correct `pages.next`: a checkpoint cannot hold such a token",
        )
    if token in memory.used:
        return Stall(
            "the provider gave a token that this pass has used already: its pages go in a circle",
            "the provider answering rightly; or `pages.end`, if it ends its pages so (`total`, or a"
            " predicate on what else the last answer says); or a reset of this partition id",
        )
    return None


def _cursor_fault(page: Page, memory: Memory) -> Stall | None:
    if page.cursor is None:
        return Stall("the answer has records but no cursor", "correct `plan.cursor.next`")
    if page.records and page.cursor in memory.used:
        return Stall(
            "the cursor did not move although the answer has records",
            "the provider answering rightly; or correct `plan.cursor.next` or `pages.end`",
        )
    memory.used.add(page.cursor)
    return None


def _id_fault(last_id: str | None) -> Stall | None:
    if last_id is None:
        return Stall(
            "the page's last record has no id, so the next page cannot be asked for",
            "correct `id`",
        )
    if too_long(last_id):
        return Stall(
            f"the page's last record has an id longer than {TOKEN_MAX_BYTES} bytes",
            "correct `id`: a checkpoint cannot hold such an id",
        )
    return None


def _incomplete(walks: int, short: bool) -> Stall:
    why = "found fewer records than `total` says" if short else "found new ids"
    return Stall(
        f"incomplete: the last of {walks} walks through the pages still {why}",
        "a listing that holds still: declare `pages.stable` if it cannot shift, or page by {last.id}",
    )
