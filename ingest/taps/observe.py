"""Records of a tap as the log keeps them: observations in parts that fit. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ingest.observe import AS_OF_MARGIN_US
from ingest.plans.protocol import Ask
from ingest.split import Split, parts
from schemas.records import Observation

_FIXED_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class TapOrigin:
    """What every page of one tap carries; `program` is the tap's name, `stream` its stream's."""

    partition_id: str
    definition_hash: str
    record_max_bytes: int
    program: str
    stream: str


def observations(
    origin: TapOrigin, ask: Ask, records: Sequence[bytes], *, began: int, at: int, source_epoch: int
) -> tuple[Observation, ...]:
    """One observation per part. `began`: when the run began, `at`: now, microseconds, local clock.

    Nothing tells the provider's time: the content is certainly not older than the run, less a margin.
    """
    envelope = json.dumps({"type": "RECORD", "stream": origin.stream}, ensure_ascii=False).encode()
    limit = max(origin.record_max_bytes - _FIXED_BYTES, 1_024)
    found = list(parts(Split(envelope, list(records)), limit))
    return tuple(
        Observation(
            partition_id=origin.partition_id,
            plan=ask.plan,
            scope=ask.scope,
            pass_=ask.pass_,
            page=ask.page,
            part=number,
            parts=len(found),
            source_epoch=source_epoch,
            reason=ask.reason,
            method="RUN",
            url=f"singer:{origin.program}/{origin.stream}",
            definition_hash=origin.definition_hash,
            status=0,
            requested_at=began,
            received_at=at,
            as_of=began - AS_OF_MARGIN_US,
            envelope=envelope if number == 1 else b"",
            records=part.records,
            missing=part.missing,
            first_index=part.first_index,
        )
        for number, part in enumerate(found, 1)
    )
