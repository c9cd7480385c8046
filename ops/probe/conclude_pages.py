"""From evidence to findings about pages: cap, repeated walks, tokens, cursors, deletes. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ops.probe.conclude_time import needs_of, why_not
from ops.probe.evidence import Evidence, page_like
from ops.probe.model import NOTHING, Finding, Refused, Sight, unknown
from ops.probe.walking import Scope, Walked
from schemas.definitions.source import CursorSpec, End, StreamSpec

_SHIFT = "rows that shift from one page to another"
_MORE = "more records, so that there are several pages"


def cap_finding(scope: Scope, evidence: Evidence) -> Finding | None:
    """The most records that a page holds, whatever is asked."""
    pages, found = scope.spec.request.pages, evidence.cap
    if pages is None:
        return None
    name = "page cap"
    asked = "size not sent" if not scope.by_size else f"asked {pages.size}"
    declared = asked if pages.cap is None else f"{asked}, cap {pages.cap}"
    if found is None:
        return unknown(name, declared, needs_of(evidence, "cap"))
    if not found.sizes:
        wanted = f"more than {found.largest} records, or a smaller `pages.size`"
        wanted = why_not(evidence, "cap") or wanted
        return Finding(name, declared, f"at least {found.largest}", needs=wanted)
    if found.skips:
        lost = f"rows between pages: page numbers count {found.asked}, {found.sizes[0]} are given"
        return Finding(name, declared, str(found.sizes[0]), lost)
    if len(set(found.sizes)) > 1:
        return Finding(name, declared, f"pages of different sizes, up to {max(found.sizes)}")
    given = found.sizes[0]
    if scope.by_size and found.asked is not None and given < found.asked:
        return _capped(name, declared, given, pages.cap, len(found.sizes) > 1)
    if found.more_given is not None and found.more_asked is not None:
        if found.more_full and found.more_given < found.more_asked:
            return _capped(name, declared, found.more_given, pages.cap, len(found.sizes) > 1)
        return Finding(name, declared, f"at least {max(given, found.more_given)}")
    if found.refused is not None:
        return Finding(name, declared, f"at least {given}, {found.more_asked} are refused")
    return Finding(name, declared, f"at least {given}" if scope.by_size else str(given))


def _capped(name: str, declared: str, given: int, known: int | None, proven: bool) -> Finding:
    if not proven:
        wanted = "more records, so that there is a second full page"
        return Finding(name, declared, f"{given}, seen once", needs=wanted)
    write: dict[tuple[str, ...], str | int] = {} if known == given else {("pages", "cap"): given}
    return Finding(name, declared, str(given), write=write)


def walks_finding(scope: Scope, evidence: Evidence) -> Finding | None:
    """Whether the same walk shows the same, walk after walk."""
    if scope.spec.request.pages is None:
        return None
    name, declared = "same walk again", "stable" if scope.stable else "not stable"
    walks = [one for one in evidence.walks if one.done and one.pages and one.refused is None]
    if len(walks) < 2 or max(len(walked.pages) for walked in walks) < 2:
        return unknown(name, declared, why_not(evidence, "walks") or _MORE)
    shown = [_shown(scope, walked) for walked in walks]
    same = sum(one == shown[0] for one in shown)
    if same == len(shown):
        return Finding(name, declared, f"same, {same} of {same}")
    fault = shifted(shown)
    if fault is None:
        return Finding(name, declared, "same but for what changed")
    return Finding(name, declared, fault, _SHIFT if scope.stable else NOTHING)


def _shown(scope: Scope, walked: Walked) -> list[tuple[str, int]]:
    """The rows of a walk, without the last of a page that the next one repeats as declared."""
    pages = scope.spec.request.pages
    repeats = pages is not None and pages.end is End.NOTHING_NEW
    shown: list[tuple[str, int]] = []
    for _, sight in walked.pages:
        rows = [(row.id, row.content) for row in sight.rows]
        shown += rows[1:] if repeats and shown and rows[:1] == shown[-1:] else rows
    return shown


def shifted(walks: Sequence[Sequence[tuple[str, int]]]) -> str | None:
    """What shows that rows shift, and not just change, come and go; None: nothing does."""
    if any(len(set(one)) < len(one) for one in walks):
        return "a row twice in one walk"
    for one, other in itertools.combinations(walks, 2):
        shared = set(one) & set(other)
        if [row for row in one if row in shared] != [row for row in other if row in shared]:
            return "in another order"
    for before, one, after in itertools.combinations(walks, 3):
        held, seen = set(before) & set(after), set(one)
        places = [at for at, row in enumerate(before) if row in seen]
        inside = before[places[0] : places[-1]] if places else []
        missed = sum(row in held and row not in seen for row in inside)
        if missed:
            return f"misses {missed} rows"
    return None


def listing_finding(evidence: Evidence) -> Finding:
    """Whether what is absent from the listing is really gone."""
    name, declared, found = "lists all", "everything", evidence.listing
    if found is None:
        wanted = "a listing of few pages, whose ids are those of the changes"
        return unknown(name, declared, why_not(evidence, "listing") or wanted)
    if not found.lacking:
        return Finding(name, declared, f"all {found.known}")
    lost = "live rows: absence would delete them"
    return Finding(name, declared, f"lacks {found.lacking} of {found.known}", lost)


def deletes_finding(stream: StreamSpec, evidence: Evidence) -> Finding:
    """Whether the changes show what was deleted."""
    name, declared = "deletes", stream.deletes
    if not evidence.rows():
        return unknown(name, declared, needs_of(evidence, "sample"))
    gone = len({row.id for row in evidence.rows() if row.gone})
    vanished = _vanished(evidence)
    if gone:
        return Finding(name, declared, f"shown, {gone} seen")
    if stream.deletes == "not_shown":
        loses = "found by snapshot" if stream.snapshot else "deletes: they are never noticed"
        return Finding(name, declared, f"{vanished} vanished" if vanished else "none seen", loses)
    if vanished:
        loses = "found by snapshot" if stream.snapshot else "deletes: they are never noticed"
        return Finding(name, declared, f"not shown, {vanished} vanished", loses)
    wanted = "a record that is deleted while it is probed, or was before"
    return Finding(name, declared, "none seen", "unknown", wanted)


def _vanished(evidence: Evidence) -> int:
    """Records of one look that the next one, which saw everything, lacks under any time."""
    gone: set[str] = set()
    for before, after in itertools.pairwise(evidence.looks):
        if before.whole and after.whole:
            gone |= {row.id for row in before.rows} - {row.id for row in after.rows}
    return len(gone)


def token_findings(scope: Scope, evidence: Evidence) -> list[Finding]:
    """What a token of the pages really promises."""
    pages, found = scope.spec.request.pages, evidence.token
    if pages is None or scope.turn not in ("token", "link"):
        return []
    lifetime = pages.token_lifetime_s
    declared = "lifetime unknown" if lifetime is None else f"lifetime {lifetime:g} s"
    if found is None or found.first is None:
        refused = next((w.refused for w in evidence.walks if w.refused and w.pages), None)
        if refused is not None:
            loses = "nothing, but a walk of several pages never ends"
            return [Finding("token", declared, "refused at once", loses, refused.why)]
        return [unknown("token", declared, why_not(evidence, "token") or _MORE)]
    findings = [
        _used("token, used twice", found.first, found.again),
        _used("token, elsewhere", found.first, found.apart),
    ]
    if found.other is not None:
        findings.append(_other(found.first, found.other))
    return [*findings, _lasts(declared, evidence), _collection(evidence)]


_USED = {"same": "same page", "changed": "page with changes", "other": "another page"}


def _used(name: str, first: Sight, answer: Sight | Refused | None) -> Finding:
    """A page whose answer was lost is asked again, perhaps by another worker."""
    like = page_like(first, answer)
    if like is None:
        return unknown(name, "works", "a larger --requests")
    if like in ("other", "nothing"):
        lost = "the page whose answer was lost in a crash"
        return Finding(name, "works", _USED.get(like, "nothing"), lost)
    if isinstance(answer, Refused):
        costs = "nothing: the walk begins again" if answer.known else "nothing, but it stalls"
        wanted = None if answer.known else "a rule in `errors`: do: token_expired"
        return Finding(name, "works", "refused", costs, wanted)
    return Finding(name, "works", _USED[like])


def _other(first: Sight, answer: Sight | Refused) -> Finding:
    """What a changed definition would get if it sent an old token."""
    like = page_like(first, answer)
    said = {"refused": "refused", "same": "keeps its own query", "changed": "keeps its own query"}
    return Finding(
        "token, other window", "never sent", said.get(like or "", "takes the new window")
    )


def _lasts(declared: str, evidence: Evidence) -> Finding:
    found = evidence.token
    assert found is not None
    name = "token, lifetime"
    if found.last is None:
        return unknown(name, declared, evidence.why_not.get("token") or "a larger --requests")
    if isinstance(found.last, Refused):
        if isinstance(found.again, Refused):
            return Finding(name, declared, "one use")
        loses = NOTHING if found.last.known else "nothing, but it stalls"
        return Finding(name, declared, "ended while it was probed", loses)
    age_s = found.age_us / 1_000_000
    return Finding(name, declared, f"{age_s:.0f} s at least")


def _collection(evidence: Evidence) -> Finding:
    """Whether an old token shows the collection as it was, or as it is."""
    found = evidence.token
    assert found is not None
    assert found.first is not None
    name = "token, shows"
    newest: dict[str, int] = {}
    for row in evidence.rows():
        newest[row.id] = max(newest.get(row.id, 0), row.time or 0)
    changed = {r.id: r.time for r in found.first.rows if newest.get(r.id, 0) > (r.time or 0)}
    if not changed or not isinstance(found.last, Sight):
        return unknown(name, "unknown", "a record of its page that changes meanwhile")
    now = {row.id: row.time for row in found.last.rows}
    if all(now.get(name_) == time for name_, time in changed.items()):
        return Finding(name, "unknown", "a snapshot")
    return Finding(name, "unknown", "the live collection")


def cursor_findings(scope: Scope, evidence: Evidence) -> list[Finding]:
    """Whether a feed goes on where its cursor says."""
    found, name = evidence.cursor, "cursor"
    assert isinstance(scope.spec, CursorSpec)
    if found is None:
        return [unknown(name, "goes on", needs_of(evidence, "cursor"))]
    if found.refused is not None:
        return [Finding(name, "goes on", "refused", "nothing, but it stalls", found.refused)]
    if found.all_again:
        return [Finding(name, "goes on", "begins again", "nothing: all is read at every poll")]
    observed = "goes on"
    if found.known_again:
        observed = f"goes on, {found.known_again} again"
    findings = [Finding(name, "goes on", observed)]
    if found.first is not None:
        findings += [
            _used("cursor, used twice", found.first, found.again),
            _used("cursor, elsewhere", found.first, found.apart),
        ]
    return findings
