"""The newest observations of a stream that the log holds, for whoever wants to see real records.

Reads backwards in growing steps, as compaction leaves holes; commits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.facts import log
from schemas import codec
from schemas.definitions.source import StreamSpec, Tenant
from schemas.log.reader import OffsetGone, PartitionReader
from schemas.records import Observation
from schemas.routing import route
from schemas.settings import Settings

_FIRST_STEP, _STEPS, _FACTOR = 500, 4, 5
_PARTITIONS_MAX = 4
_ENOUGH_PAGES = 50


def newest_pages(
    settings: Settings, stream: StreamSpec, tenants: Sequence[Tenant | None], records: int
) -> list[Observation]:
    """Pages of the stream with so many records, oldest first; fewer if the log has no more.

    Of a stream with tenants, those of the first few partitions. Raises KafkaUnreachable,
    TopicsMissing or LogUnavailable.
    """
    topic = settings.observations
    many = log.partition_counts(log.connect(settings), [topic])[topic]
    owners = {stream.partition_id(tenant.id if tenant else None) for tenant in tenants}
    numbers = sorted({route(owner, many) for owner in owners})[:_PARTITIONS_MAX]
    found: list[Observation] = []
    for number in numbers:
        with PartitionReader(settings, topic, number, "check") as reader:
            found += _newest(reader, owners, -(-records // len(numbers)))
    return found


def _newest(reader: PartitionReader, owners: set[str], records: int) -> list[Observation]:
    low, end, span = reader.low(), reader.stable_end(), _FIRST_STEP
    found: list[Observation] = []
    for _ in range(_STEPS):
        start = max(low, end - span)
        try:
            found = [*_pages(reader, owners, start, end), *found]
        except OffsetGone:
            low = reader.low()
        kept: list[Observation] = []
        count = 0
        for page in reversed(found):
            if count >= records or len(kept) >= _ENOUGH_PAGES:
                break
            kept.append(page)
            count += len(page.records)
        if count >= records or start <= low or len(kept) >= _ENOUGH_PAGES:
            return kept[::-1]
        end, span = start, span * _FACTOR
    return found


def _pages(reader: PartitionReader, owners: set[str], start: int, end: int) -> list[Observation]:
    found = []
    for record in reader.read(start, end, idle_timeout_s=10.0):
        if record.value is None:
            continue
        try:
            value = codec.decode(record.value)
        except codec.UnreadableValue:
            continue
        if isinstance(value, Observation) and value.partition_id in owners and value.records:
            found.append(value)
    return found
