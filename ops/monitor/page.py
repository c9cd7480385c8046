"""The page: what is blocked and what unblocks it first, then every partition id. Pure.

Plain HTML that works without scripts. Everything that comes from outside is escaped; personal data
never reaches it, since the status holds none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape

from ops.status.model import PartitionStatus, PlanStatus, RunStatus, Status, Trouble
from ops.status.parts import micros
from ops.status.text import progress_text
from ops.status.words import copies, duration, iso, moment, number

ROWS_MAX = 500
_ORDER = {"blocked": 0, "halted": 1, "paused": 2, "behind": 3, "waiting": 4, "not started": 5}


def page(status: Status | None, refresh_s: int) -> str:
    """The whole document; it asks to be loaded again after `refresh_s` seconds."""
    body = "".join(_body(status)) if status else "<p>Nothing was read yet.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{refresh_s}">'
        '<title>Gapless</title><link rel="stylesheet" href="style.css"></head>'
        f"<body><main>{body}</main></body></html>"
    )


def _body(status: Status) -> Iterator[str]:
    counts = Counter(one.state for one in status.partition_ids)
    said = ", ".join(f"{count} {state}" for state, count in counts.most_common()) or "none yet"
    yield "<header><h1>Gapless</h1>"
    yield f"<p>{len(status.partition_ids)} partition ids: {escape(said)}</p>"
    yield f'<p class="quiet">read at <time>{iso(status.read_at)}</time></p></header>'
    for name, why, missing in (
        ("Kafka", status.kafka, status.topics_missing),
        ("Postgres", status.postgres, status.tables_missing),
    ):
        if why is not None:
            said = "" if missing else f"<b>{name} cannot be asked.</b> "
            yield f'<p class="away" role="alert">{said}{escape(why)}</p>'
    yield from _blocked(status)
    yield from _table(status)
    yield '<footer class="quiet"><a href="status.json">JSON</a> <a href="metrics">metrics</a>'
    if status.unsent_events:
        yield f" · {number(status.unsent_events)} events to publish"
    if status.unsent_copies:
        yield f" · {copies(status.unsent_copies)} to publish"
    yield "</footer>"


def _blocked(status: Status) -> Iterator[str]:
    yield '<section aria-labelledby="blocked"><h2 id="blocked">Blocked</h2>'
    if not status.troubles:
        yield '<p class="good">Nothing waits for anybody.</p></section>'
        return
    yield "<ul>"
    for trouble in status.troubles[:ROWS_MAX]:
        yield _trouble(trouble, status.read_at)
    yield "</ul>"
    more = len(status.troubles) - ROWS_MAX
    if more > 0:
        yield f"<p>… and {more} more: <code>gapless status</code></p>"
    yield "</section>"


def _trouble(trouble: Trouble, now: int) -> str:
    owner = f"<b>{escape(trouble.partition_id)}</b> " if trouble.partition_id else ""
    since = ""
    if trouble.since is not None:
        ago = duration(max(0.0, (now - trouble.since) / 1e6))
        since = (
            f' <span class="quiet">since <time title="{iso(trouble.since) or ""}">'
            f"{moment(trouble.since, now)}</time> ({ago})</span>"
        )
    look = ""
    if trouble.look is not None:
        look = f"<dt>look</dt><dd>{_commands(trouble.look)}</dd>"
    return (
        f'<li><p>{owner}<span class="kind">{escape(trouble.kind)}</span> '
        f"{escape(trouble.what)}{since}</p>"
        f"<dl><dt>unblocks</dt><dd>{_commands(trouble.unblocks)}</dd>{look}</dl></li>"
    )


def _commands(text: str) -> str:
    return f"<code>{escape(text)}</code>" if text.startswith("gapless ") else escape(text)


def _table(status: Status) -> Iterator[str]:
    shown = sorted(
        status.partition_ids,
        key=lambda one: (_ORDER.get(one.state, 9), -(one.lag_s or 0.0), one.partition_id),
    )
    yield '<section aria-labelledby="all"><h2 id="all">Partition ids</h2><div class="scroll"><table>'
    yield "<thead><tr>"
    for name in (
        "partition id", "state", "lag", "source checkpoint", "applied offset", "coverage",
        "quarantined", "horizon used",
    ):  # fmt: skip
        yield f'<th scope="col">{name}</th>'
    yield "</tr></thead><tbody>"
    for one in shown[:ROWS_MAX]:
        yield _row(one, status.read_at)
    yield "</tbody></table></div>"
    more = len(shown) - ROWS_MAX
    if more > 0:
        yield f"<p>… and {more} more: <code>gapless status</code></p>"
    yield "</section>"


def _row(one: PartitionStatus, now: int) -> str:
    plans = one.source.plans if one.source else ()
    said = [*(_plan(plan, now) for plan in plans), *(_run(run, now) for run in one.runs[:-1])]
    claimed = "<br>".join(said) or "none yet"
    applied = one.applied
    behind = ""
    if applied.records_behind:
        behind = (
            f'<br><span class="quiet">{number(applied.records_behind)} behind, '
            f"{duration(applied.lag_s)}</span>"
        )
    where = f"{number(applied.next_offset_to_apply)} of {number(applied.end)}"
    if applied.next_offset_to_apply is None and applied.mirrored is not None:
        where = f"unknown, at least {number(applied.mirrored)} of {number(applied.end)}"
    covered = "<br>".join(
        f"{moment(c.start_at, now)} .. {moment(c.end_at, now)}"
        + (f' <b class="bad">{c.gaps} gaps</b>' if c.gaps else "")
        + (f' <b class="bad">{c.failed} failed</b>' if c.failed else "")
        for c in one.coverage
    )
    state = one.state.replace(" ", "-")
    return (
        f'<tr><th scope="row">{escape(one.partition_id)}</th>'
        f'<td><span class="state {escape(state)}">{escape(one.state)}</span></td>'
        f"<td>{duration(one.lag_s)}</td><td>{claimed}</td>"
        f"<td>{where}"
        f' <span class="quiet">in {one.partition}</span>{behind}</td>'
        f"<td>{covered or ('unknown' if one.outcomes is None else 'none yet')}</td><td>{one.quarantined or ''}</td>"
        f"<td>{_share(one)}</td></tr>"
    )


def _plan(plan: PlanStatus, now: int) -> str:
    under_way = plan.progress
    if under_way is None or not under_way.long:
        return _claim(plan, now)
    return f'{_claim(plan, now)}<br><span class="quiet">{progress_text(under_way)}</span>'


def _claim(plan: PlanStatus, now: int) -> str:
    if plan.plan == "snapshot":
        if plan.walk_pages:
            return f"snapshot: {number(plan.walk_pages)} pages so far"
        return f"snapshot of {moment(plan.polled_at, now)}" if plan.polled_at else "snapshot due"
    opened = f' <span class="quiet">{len(plan.open)} open</span>' if plan.open else ""
    if plan.complete_before is not None:
        return f"complete through {moment(micros(plan.complete_before), now)}{opened}"
    if plan.polled_at is not None:
        return f"cursor of {moment(plan.polled_at, now)}{opened}"
    return f"begun{opened}"


def _run(run: RunStatus, now: int) -> str:
    state = escape(run.state)
    shown = f'<b class="bad">{state}</b>' if run.state in ("failed", "overdue") else state
    return f'run to <span title="{escape(run.run_id)}">{moment(run.end_at, now)}</span> {shown}'


def _share(one: PartitionStatus) -> str:
    share = one.horizons.share_used
    if share is None:
        return '<span class="quiet">no horizon</span>'
    percent = min(100, round(share * 100))
    left = duration(one.horizons.time_left_s) if (one.horizons.time_left_s or 0) > 0 else "nothing"
    return (
        f'<meter min="0" max="1" low="0.5" high="0.7" optimum="0" value="{min(1.0, share):.3f}">'
        f'{percent}%</meter> {percent}% <span class="quiet">{left} left</span>'
    )
