"""What an audit keeps of a partition survives its file, and belongs to one deployment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.audit.findings import MEANING, Findings
from ops.audit.kept import Kept, PartitionResult
from ops.audit.pages import OUTCOMES, Totals
from ops.audit.progress import Progress
from ops.audit.report import PartitionRead
from ops.problems import Stop

COUNTS = st.integers(0, 1_000)


def _result(number: int, findings: Findings, totals: Totals) -> PartitionResult:
    read = PartitionRead(number, 0, 10, 12, 9)
    return PartitionResult(read, "2026-03-01T00:00:00+00:00", 3, totals, findings)


@given(
    kinds=st.lists(st.sampled_from(sorted(MEANING)), max_size=120),
    outcomes=st.dictionaries(st.sampled_from(OUTCOMES), COUNTS),
    owed=st.dictionaries(st.text(max_size=5), COUNTS),
    pages=COUNTS,
)
def test_results_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: list[str],
    outcomes: dict[str, int],
    owed: dict[str, int],
    pages: int,
) -> None:
    findings, totals = Findings(), Totals(pages=pages, records=pages * 2)
    for number, kind in enumerate(kinds):
        findings.add(kind, "what", partition=1, offset=number, partition_id="shop/orders")
    totals.outcomes.update(outcomes)
    totals.awaiting_replay.update(owed)
    file = tmp_path_factory.mktemp("kept") / "audit.json"
    Kept(file, "here").add(_result(1, findings, totals))
    [found] = Kept(file, "here").results.values()
    assert found.read == PartitionRead(1, 0, 10, 12, 9)
    assert (found.totals, found.marks, found.at) == (totals, 3, "2026-03-01T00:00:00+00:00")
    assert (found.findings.counts, found.findings.kept) == (findings.counts, findings.kept)
    together = Findings(keep_per_kind=50)
    for one in (findings, found.findings):
        together.take(one)
    assert together.counts.total() == 2 * len(kinds)
    assert all(sum(k.kind == kind for k in together.kept) <= 50 for kind in kinds)


def test_file_of_another_deployment_or_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    Kept(file, "here").add(_result(0, Findings(), Totals()))
    with pytest.raises(Stop, match="another deployment"):
        Kept(file, "there")
    for garbage in (b"", b"[]", b'{"format": 1}', b"\xff\x00", b'{"partitions": [{}]}'):
        file.write_bytes(garbage)
        with pytest.raises(Stop, match="no state of an audit"):
            Kept(file, "here")
        assert file.read_bytes() == garbage


def test_complete_audit_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    kept = Kept(file, "here")
    kept.add(_result(0, Findings(), Totals()))
    kept.done()
    assert list(tmp_path.iterdir()) == []
    assert Kept(file, "here").results == {}


@given(
    sizes=st.lists(st.integers(0, 10_000), min_size=1, max_size=6),
    spent_s=st.floats(0, 1e5),
    share=st.floats(0, 1),
)
def test_progress_names_a_share_between_nothing_and_all(
    sizes: list[int], spent_s: float, share: float
) -> None:
    progress = Progress({n: (5, 5 + size) for n, size in enumerate(sizes)}, 0.0)
    last = -1
    for number, size in enumerate(sizes):
        for offset in (5, 5 + int(size * share), 5 + size, 5 + 2 * size):
            text = progress.text(number, offset, spent_s)
            percent = int(text.split("% of")[0].split()[-1])
            assert last <= percent <= 100
            last = percent
        progress.finished(number)
    assert last == 100


def test_progress_says_the_rate_and_the_time_left() -> None:
    progress = Progress({0: (0, 1_000), 3: (500, 1_500)}, 100.0)
    assert progress.text(0, 0, 100.0) == "partition 0, offset 0 of 1,000: 0% of the log"
    progress.finished(0)
    text = progress.text(3, 1_000, 110.0)
    assert text == "partition 3, offset 1,000 of 1,500: 75% of the log, 150 offsets/s, 3 s left"
