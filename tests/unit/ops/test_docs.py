"""The documents name what is there: every failpoint, every finding, every verb they speak of."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from ingest.process import BLOCKED, BUSY, MORE_TO_DO, OK, REFUSED, UNREACHABLE, USAGE
from ops.audit.findings import MEANING
from ops.cli.ingest import ingest
from ops.cli.main import build_app
from schemas.failpoints import APPLY, INGEST, REPLAY

OPS = Path(__file__).parents[3] / "ops"
REPOSITORY = OPS.parent


def test_every_failpoint_has_its_window() -> None:
    text = (OPS / "docs/crash-windows.md").read_text("utf-8")
    assert set(re.findall(r"`((?:ingest|apply|replay)\.\w+)`", text)) == {*INGEST, *APPLY, *REPLAY}


def test_the_hard_cases_name_tests_that_exist() -> None:
    """Every case has its row, and every test that a row names is there."""
    text = (OPS / "docs/hard-cases.md").read_text("utf-8")
    short = {
        "World": "tests/property/apply/test_absence.py",
        "Order": "tests/integration/apply/test_order.py",
    }
    rows = [row for row in text.splitlines() if row.startswith("| ")][1:]
    assert len(rows) >= 12
    for row in rows:
        case, _, *proofs = row.strip("| ").split(" | ")
        assert len(proofs) == 2 and "`" in proofs[1], case
        for proof in "; ".join(proofs).split("; "):
            owner, _, rest = proof.partition(": ")
            for named in re.findall(r"`([^`]+)`", rest if owner in short else proof):
                file, _, name = named.rpartition("::")
                source = (REPOSITORY / (file or short[owner])).read_text("utf-8")
                assert re.search(rf"^ *(def|class) {name}\b", source, re.M), f"{case}: {named}"


def test_every_finding_is_listed() -> None:
    text = (OPS / "docs/audit.md").read_text("utf-8")
    listed = {name for row in text.splitlines() if row.startswith("|")
              for name in re.findall(r"`(\w+)`", row.rsplit("|", 2)[1])}  # fmt: skip
    assert listed == set(MEANING)


def test_exit_codes_of_ingest_stand_in_its_help_and_in_the_document() -> None:
    document = (OPS / "docs/exit-codes.md").read_text("utf-8")
    listed = {int(code): row for code, row in re.findall(r"^\| (\d+) \|(.*)$", document, re.M)}
    told = " ".join((ingest.__doc__ or "").split()).split("Exit codes of --once: ")[1]
    names = dict(re.findall(r"(\d) (\w[^;.]*)", told))
    codes = (OK, BLOCKED, USAGE, UNREACHABLE, REFUSED, MORE_TO_DO, BUSY)
    assert {int(code) for code in names} == set(codes) <= set(listed)
    assert "blocked" in names[str(BLOCKED)] and "blocked" in listed[BLOCKED]
    assert "reserve" in names[str(USAGE)] and "reserve" in listed[USAGE]
    assert "more to do" in names[str(MORE_TO_DO)] and "more to do" in listed[MORE_TO_DO]


def _verbs(app: typer.Typer) -> set[str]:
    """All verbs, those of groups as `group verb`."""
    found = {
        info.name or info.callback.__name__ for info in app.registered_commands if info.callback
    }
    for group in app.registered_groups:
        assert group.typer_instance is not None
        found |= {f"{group.name} {name}" for name in _verbs(group.typer_instance)}
    return found


def test_documents_speak_of_verbs_that_exist() -> None:
    verbs = _verbs(build_app())
    groups = {verb.split()[0] for verb in verbs if " " in verb}
    readme = OPS.parent / "README.md"
    for file in (readme, *OPS.glob("runbooks/*.md"), *OPS.glob("docs/*.md")):
        for words in re.findall(r"(?:`|^    )gapless ([a-z- ]+)", file.read_text("utf-8"), re.M):
            named = words.split()
            wanted = " ".join(named[: 2 if named[0] in groups else 1])
            assert wanted in verbs, f"{file.name}: gapless {wanted}"
