"""A page as the log keeps it: what was asked, what came, in parts that fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from urllib.parse import urlencode

from ingest.exchange import Got
from ingest.plans.protocol import Ask
from ingest.requests import Request
from ingest.split import Part, Split, parts
from schemas.definitions.scrubber import Scrubber
from schemas.records import Observation

AS_OF_MARGIN_US = 5_000_000
"""The content of a page is certainly not older than the server's clock when it was asked, less this."""
_FIXED_BYTES = 4_096
_HEADER_BYTES_MAX, _HEADERS_MAX = 1_024, 64


@dataclass(frozen=True, slots=True)
class Origin:
    """What every page of one plan carries."""

    partition_id: str
    definition_hash: str
    record_max_bytes: int
    scrubber: Scrubber


@dataclass(frozen=True, slots=True)
class Cut:
    """A page cut into parts, with the words that stand in each of them."""

    parts: list[Part]
    envelope: bytes
    url: str
    headers: Mapping[str, str]


def cut(origin: Origin, got: Got, request: Request, split: Split) -> Cut:
    """Everything that a record of the log must hold beside its records counts against its size."""
    url = origin.scrubber.text(_shown(got.url, request))
    headers = origin.scrubber.headers(
        {
            name: value[:_HEADER_BYTES_MAX]
            for name, value in islice(got.fetched.headers.items(), _HEADERS_MAX)
        }
    )
    used = _FIXED_BYTES + len(url) + sum(len(k) + len(v) for k, v in headers.items())
    limit = max(origin.record_max_bytes - used, 1_024)
    envelope = origin.scrubber.bytes(split.envelope)[: limit // 2]
    return Cut(list(parts(Split(envelope, split.records), limit)), envelope, url, headers)


def observations(
    origin: Origin,
    ask: Ask,
    got: Got,
    page: Cut,
    *,
    method: str,
    source_epoch: int,
    next_token: str | None,
    as_of: int,
) -> tuple[Observation, ...]:
    """One observation per part; the envelope stands in the first."""
    fetched = got.fetched
    return tuple(
        Observation(
            partition_id=origin.partition_id,
            plan=ask.plan,
            scope=ask.scope,
            pass_=ask.pass_,
            page=ask.page,
            part=number,
            parts=len(page.parts),
            source_epoch=source_epoch,
            reason=ask.reason,
            run=ask.run,
            method=method,
            url=page.url,
            definition_hash=origin.definition_hash,
            status=fetched.status,
            requested_at=fetched.requested_at,
            received_at=fetched.received_at,
            server_time=fetched.server_time,
            as_of=as_of - AS_OF_MARGIN_US,
            headers=dict(page.headers),
            request_token=ask.token,
            next_token=next_token,
            envelope=page.envelope if number == 1 else b"",
            records=part.records,
            missing=part.missing,
            first_index=part.first_index,
        )
        for number, part in enumerate(page.parts, 1)
    )


def _shown(url: str, request: Request) -> str:
    if not request.params:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(request.params)}"
