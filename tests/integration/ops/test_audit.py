"""The audit on real Kafka and Postgres: clean on a consistent deployment, and unclean by one change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.audit import audit
from ops.audit.starts import declared_starts
from schemas.definitions.load import load_folder
from schemas.records import Named, PlanState, SourceCheckpoint
from tests.integration.ops.verbs import run
from tests.integration.ops.written import DAYS, OWNER, Deployment, page, record


def test_a_consistent_deployment_is_clean(deployment: Deployment) -> None:
    deployment.mirror(deployment.offsets[-1] + 1)
    starts = declared_starts(load_folder(deployment.settings.definitions).check().sources.values())
    assert starts == {("shop", "orders"): DAYS[0]}
    report = audit(deployment.settings, starts=starts)
    assert report.findings.kept == []
    assert report.clean
    found = report.to_json()["totals"]
    assert (found["pages"], found["records"], found["marks"]) == (3, 6, 2)
    assert (found["checkpoints"], found["partition_ids"]) == (1, 1)
    assert found["rows"] == {"orders": 3, "order_lines": 4}
    assert found["outcomes"] == {
        "applied": 3, "superseded": 2, "ignored": 0, "quarantined": 1, "retryable": 0, "erased": 0,
    }  # fmt: skip


def _sql(text: str) -> Callable[[Deployment], None]:
    def change(deployment: Deployment) -> None:
        first = deployment.offsets[0]
        with deployment.database() as db:
            db.execute(text.replace("FIRST", str(first)).encode())

    return change


def _checkpoint(sequence: int, before: str, offset: int = 0) -> Callable[[Deployment], None]:
    def change(deployment: Deployment) -> None:
        deployment.checkpoint(
            SourceCheckpoint(
                partition_id=OWNER, worker="w", sequence=sequence, written_at=1,
                named=Named(offset, "shop/orders/interval/x/y/1/1") if offset else None,
                plans={"interval": PlanState(definition_hash="h", complete_before=before)},
            )
        )  # fmt: skip

    return change


def _page_twice(deployment: Deployment) -> None:
    deployment.log(page(f"{DAYS[0]}~{DAYS[1]}", "a", 1, [record("o-1", 1), record("o-2", 1)]))


_WRONG_ROW = {"row_without_record", "child_of_another"}
PLANTED: dict[str, tuple[Callable[[Deployment], None], set[str]]] = {
    "a skipped page": (
        _sql('DELETE FROM gapless.page_ledger WHERE "offset" = FIRST'),
        {"unaccounted", "row_without_record"},
    ),
    "a lost outcome": (
        _sql("UPDATE gapless.page_ledger SET outcomes = '\\x02' WHERE \"offset\" = FIRST"),
        {"counts_differ", "row_without_record"},
    ),
    "evidence thrown away": (_sql("DELETE FROM gapless.exception"), {"exception_missing"}),
    "a row of nowhere": (_sql("UPDATE orders SET _offset = 99 WHERE id = 'o-4'"), _WRONG_ROW),
    "a row of a superseded record": (
        _sql("UPDATE orders SET _index = 0 WHERE id = 'o-4'"), _WRONG_ROW
    ),
    "a row of a record that the page lacks": (_sql("UPDATE orders SET _index = 7"), _WRONG_ROW),
    "a set that its row has left": (
        _sql("UPDATE order_lines SET _offset = FIRST WHERE parent_id = 'o-4'"), {"child_of_another"}
    ),
    "children of a row that is deleted": (
        _sql("UPDATE orders SET _deleted = true WHERE id = 'o-4'"), {"child_of_another"}
    ),
    "children of no row": (_sql("DELETE FROM orders WHERE id = 'o-4'"), {"child_of_another"}),
    "a set with a hole": (_sql("DELETE FROM order_lines WHERE position = 0"), {"child_missing"}),
    "an offset past the end": (
        _sql("UPDATE gapless.position SET next_offset_to_apply = 5000"), {"applied_past_end"}
    ),
    "an offset without effects": (
        _sql("DELETE FROM gapless.mark"), {"mark_not_applied", "coverage_differs"}
    ),
    "coverage of more than was searched": (
        _sql("UPDATE gapless.coverage SET end_at = '2024-02-01' WHERE start_at = '2024-01-02'"),
        {"coverage_differs"},
    ),
    "a mark held back": (
        _sql("UPDATE gapless.mark SET state = 'pending'"), {"mark_pending", "coverage_differs"}
    ),
    "outcomes from another place": (
        _sql('UPDATE gapless.page_ledger SET "offset" = 2000 WHERE "offset" = FIRST'),
        {"unaccounted", "outcome_without_page"},
    ),
    "a checkpoint ahead": (_checkpoint(2, DAYS[3]), {"checkpoint_ahead"}),
    "a checkpoint of nothing": (_checkpoint(2, DAYS[2], 1), {"checkpoint_names_nothing"}),
    "a checkpoint of the future": (_checkpoint(2, DAYS[2], 900), {"checkpoint_names_nothing"}),
    "a stale checkpoint": (_checkpoint(1, DAYS[2]), {"checkpoint_order"}),
    "a mirror ahead": (lambda d: d.mirror(d.offsets[-1] + 3), {"mirror_ahead"}),
    "a page key written twice": (_page_twice, {"key_twice"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_finds(deployment: Deployment, name: str) -> None:
    plant, kinds = PLANTED[name]
    plant(deployment)
    report = audit(deployment.settings)
    assert set(report.findings.counts) == kinds, [str(f) for f in report.findings.kept]
    assert not report.clean


class _Ended(Exception):
    """The run is ended from outside."""


def test_a_run_that_was_ended_goes_on_with_what_it_had_proven(
    deployment: Deployment, tmp_path: Path
) -> None:
    def end(what: str) -> None:
        if what == "rows and coverage":
            raise _Ended

    file = tmp_path / "audit.json"
    with pytest.raises(_Ended):
        audit(deployment.settings, keep=file, tell=end)
    # What the ended run has read is not read again: it would find this.
    _sql("DELETE FROM gapless.exception")(deployment)
    told: list[str] = []
    report = audit(deployment.settings, keep=file, tell=told.append)
    assert report.clean
    assert report.totals.records == 6
    assert len(report.earlier) == len(report.partitions)
    assert any("by a run that was ended" in note for note in report.notes())
    assert not [one for one in told if one.startswith("partition")]
    assert not file.exists()
    assert set(audit(deployment.settings, keep=file).findings.counts) == {"exception_missing"}


def test_the_verb_says_it_with_its_exit_code(deployment: Deployment) -> None:
    done = run(deployment.environment, "audit", "--json")
    assert (done.returncode, json.loads(done.stdout)["clean"]) == (0, True), done.stderr
    _sql("DELETE FROM gapless.exception")(deployment)
    done = run(deployment.environment, "audit", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["clean"]) == (1, False)
    assert found["finding_counts"] == {"exception_missing": 1}
    assert found["findings"][0]["meaning"]
    text = run(deployment.environment, "audit")
    assert text.returncode == 1
    assert "exception_missing (1): a record is quarantined" in text.stdout
