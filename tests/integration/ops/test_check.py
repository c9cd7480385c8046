"""`gapless check` against a real provider: the first question, one page, and what it would become."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ops.verbs import REPOSITORY, read, run
from tests.upstream import Provider

DEMO = REPOSITORY / "ops/demo/definitions"
NOWHERE = {"GAPLESS_KAFKA": "127.0.0.1:9", "GAPLESS_POSTGRES": "postgresql://127.0.0.1:9/none"}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider.start(tenants=2, accounts=30, events=20) as found:
        yield found


@pytest.fixture
def environment(tmp_path: Path, provider: Provider) -> dict[str, str]:
    folder = tmp_path / "definitions"
    shutil.copytree(DEMO, folder)
    return {**NOWHERE, "GAPLESS_DEFINITIONS": str(folder), "DEMO_URL": provider.url}


def test_one_page_is_asked_and_mapped(environment: dict[str, str]) -> None:
    (told,) = read(environment, "check", "demo_crm")
    (stream,) = told["streams"]
    assert stream["partition_id"] == "demo_crm/accounts/north"
    assert stream["question"].startswith("GET /t/north/accounts?changed_from=2026-01-01T00:00:00")
    assert stream["answer"]["status"] == 200
    assert stream["answer"]["records"] == 30
    (sample,) = stream["samples"]
    assert sample["outcomes"] == {"applied": 30}
    text = run(environment, "check", "demo_crm").stdout
    assert "Answer                     200 in" in text
    assert "normalized_accounts would be 30 applied" in text.replace("  ", " ")
    assert "Risks you take" in text
    assert "`gapless probe demo_crm` asks the provider" in text
    assert "Nothing was written." in text


def test_personal_columns_are_not_shown(environment: dict[str, str]) -> None:
    (told,) = read(environment, "check", "demo_pipeline")
    (stream,) = told["streams"]
    assert stream["answer"]["records"] > 0
    assert "@" not in json.dumps(stream["samples"])


def test_without_a_source_nothing_is_asked(environment: dict[str, str]) -> None:
    told = read({**environment, "DEMO_URL": "http://127.0.0.1:9"}, "check")
    assert {one["source"] for one in told} == {"demo_crm", "demo_pipeline"}
    assert all("answer" not in stream for one in told for stream in one["streams"])
    assert all("question" in stream for one in told for stream in one["streams"])


def test_a_provider_that_is_away(environment: dict[str, str]) -> None:
    done = run({**environment, "DEMO_URL": "http://127.0.0.1:9"}, "check", "demo_crm")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "No answer" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_secret_that_is_missing(environment: dict[str, str]) -> None:
    del environment["DEMO_URL"]
    done = run(environment, "check", "demo_crm")
    assert done.returncode == 3
    assert "DEMO_URL" in done.stdout


def test_a_definition_that_is_wrong_says_where(environment: dict[str, str]) -> None:
    file = Path(environment["GAPLESS_DEFINITIONS"]) / "sources/demo_crm.yaml"
    file.write_text(file.read_text().replace("    pages:", "    paginator:"))
    done = run(environment, "check", "demo_crm")
    assert done.returncode == 2
    assert "sources/demo_crm.yaml:" in done.stderr
    assert "paginator" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("version: 1", "version: one", "mappings/normalized_accounts.yaml:4:10"),
        ("demo_crm/accounts", "demo_crm/account", "mappings/normalized_accounts.yaml:5:7"),
        ("key: [", "key: [[", "mappings/normalized_accounts.yaml:"),
    ],
)
def test_a_mapping_of_the_source_that_is_wrong(
    environment: dict[str, str], written: str, instead: str, said: str
) -> None:
    file = Path(environment["GAPLESS_DEFINITIONS"]) / "mappings/normalized_accounts.yaml"
    file.write_text(file.read_text().replace(written, instead, 1))
    done = run(environment, "check", "demo_crm")
    assert done.returncode == 2
    assert said in done.stderr


def test_a_mapping_of_another_source_that_is_wrong(environment: dict[str, str]) -> None:
    file = Path(environment["GAPLESS_DEFINITIONS"]) / "mappings/normalized_accounts.yaml"
    file.write_text(file.read_text().replace("version: 1", "version: one"))
    done = run(environment, "check", "demo_pipeline", "--offline")
    assert done.returncode == 0, done.stderr


def test_a_source_that_is_not_there(environment: dict[str, str]) -> None:
    done = run(environment, "check", "demo")
    assert done.returncode == 2
    assert "known: demo_crm, demo_pipeline" in done.stderr
