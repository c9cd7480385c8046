"""The risks that definitions take in words, and what they assume for want of a word."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from schemas.definitions.mapping import MappingSpec, Personal, RevisionKind, Unknown
from schemas.definitions.programs import ProgramSpec, SingerSpec
from schemas.definitions.source import (
    HOLD_STILL,
    Action,
    Bounds,
    CursorSpec,
    IntervalSpec,
    KeysetSpec,
    OAuth2Auth,
    Order,
    PlanSpec,
    SourceSpec,
    StreamSpec,
)


def risks_of_source(source: SourceSpec) -> tuple[str, ...]:
    """One sentence for every risk, with the place first."""
    of_streams = (risk for stream in source.streams.values() for risk in _of_stream(stream))
    return (*_of_auth(source), *of_streams)


def risks_of_mapping(spec: MappingSpec) -> tuple[str, ...]:
    """One sentence for every risk, with the place first."""
    out = []
    if spec.revision.kind is RevisionKind.EXACT:
        out.append(f"{spec.name}: kind: exact; two states of one revision would be taken for one")
    if spec.revision.kind is RevisionKind.NONE:
        out.append(f"{spec.name}: revision: none; what was observed last counts as newest")
    out += [
        f"{spec.name}.{column.name}: unknown: {column.unknown.value}; new values pass without a word"
        for column in spec.columns.values()
        if column.unknown is not Unknown.QUARANTINE
    ]
    out += [
        f"{spec.name}.{child.name}.{column.name}: unknown: {column.unknown.value};"
        " new values pass without a word"
        for child in spec.children.values()
        for column in child.columns.values()
        if column.unknown is not Unknown.QUARANTINE
    ]
    own = [(spec.name, column) for column in spec.columns.values()]
    own += [
        (f"{spec.name}.{child.name}", column)
        for child in spec.children.values()
        for column in child.columns.values()
    ]
    out += [
        f"{where}.{column.name}: personal: hash without a key; whoever can guess a value can find it"
        for where, column in own
        if column.personal is Personal.HASH and column.hash_key is None
    ]
    post = spec.events.post if spec.events is not None else None
    if post is not None and isinstance(post.url, str) and _travels_open(post.url):
        out.append(f"{spec.name}: post: http; whoever stands in between reads events and secrets")
    return tuple(out)


def _travels_open(url: str) -> bool:
    """Whether what is sent there leaves this machine unencrypted."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1")


def assumptions_of_stream(stream: StreamSpec) -> tuple[str, ...]:
    """What is assumed, not proven: it costs requests, never rows."""
    out: list[str] = []
    interval = stream.changes
    if isinstance(interval, IntervalSpec):
        if interval.bounds is Bounds.UNKNOWN:
            out.append("bounds: asked one step wider at both ends")
        if interval.order is Order.NONE:
            out.append("order: none")
        if interval.result_cap is None and not isinstance(interval, KeysetSpec):
            out.append("result cap: none known")
    for plan in stream.plans:
        pages = plan.request.pages
        if pages is not None and pages.cap is None:
            out.append(f"{plan.plan}: page cap unknown")
        if pages is not None and not pages.stable and pages.turn not in HOLD_STILL:
            out.append(f"{plan.plan}: pages may shift, so walks of several pages are repeated")
    return tuple(out)


def _of_auth(source: SourceSpec) -> Iterator[str]:
    auth = source.auth
    if isinstance(auth, OAuth2Auth) and auth.store is not None:
        yield (
            f"{source.name}: refresh_token; workers that do not share {auth.store.text} spend each"
            " other's token, and the provider may revoke all of them"
        )


def _of_stream(stream: StreamSpec) -> Iterator[str]:
    place = f"{stream.source}/{stream.name}"
    changes = stream.changes
    if isinstance(changes, IntervalSpec):
        if changes.settle_us is None:
            yield f"{place}: settle: none; what commits later than stamped is lost"
        if changes.lookback_us is None:
            yield f"{place}: lookback: none; late arrivals are found by a snapshot only"
    if isinstance(changes, CursorSpec) and changes.identity is None:
        yield f"{place}: no identity; a re-created collection answers nothing for ever"
    if stream.program is not None:
        yield from _of_program(place, stream.program)
    if stream.parent is not None and stream.snapshot is None and changes is not None:
        yield f"{place}: no snapshot; what is below a parent before it is listed is not read"
    if stream.parent is not None and stream.parent.changed is not None:
        yield f"{place}: on: changed; what changes below a parent that does not is found by a snapshot"
    if stream.deletes == "not_shown" and stream.snapshot is None:
        yield f"{place}: deletes are never noticed"
    for plan in stream.plans:
        yield from _of_request(f"{place} {plan.plan}", plan)


def _of_program(place: str, program: ProgramSpec) -> Iterator[str]:
    if not isinstance(program, SingerSpec):
        yield f"{place}: python; that {program.path} skips nothing is its own word"
        return
    yield f"{place}: singer; that {program.command[0]} skips nothing is its own word"
    if program.ignores_others:
        yield f"{place}: others: ignore; records of the tap's other streams are thrown away"
    if not program.keeps_state:
        yield f"{place}: state: none; a run that ends early without an error would not be noticed"


def _of_request(place: str, plan: PlanSpec) -> Iterator[str]:
    request = plan.request
    pages = request.pages
    if pages is not None and pages.stable and pages.turn not in HOLD_STILL:
        yield f"{place}: stable: true; a listing that shifts after all loses records"
    for rule in request.errors:
        if rule.do is Action.TREAT_AS_EMPTY:
            yield f"{place}: treat_as_empty, because {rule.because}"
        if rule.do is Action.SUCCESS:
            yield f"{place}: an error rule calls some answers a success"
