"""`gapless check` against a real provider: the first question, one page, and what it would become."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ops.verbs import REPOSITORY, read, run
from tests.integration.ops.written import Deployment
from tests.unit.definition_files import changed
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
    done = run({**environment, "DEMO_URL": "http://127.0.0.1:9"}, "check", "demo_crm", "--json")
    (told,) = json.loads(done.stdout)
    assert "127.0.0.1:9 refuses connections" in told["streams"][0]["trouble"]
    assert "blocked" not in done.stderr, "the result says it"


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
    assert "sources known: demo_crm, demo_pipeline" in done.stderr
    assert "mappings known: " in done.stderr


def _mapping(deployment: Deployment, *changes: tuple[str, str]) -> Path:
    file = deployment.settings.definitions / "mappings/orders.yaml"
    file.write_text(changed(file.read_text(), *changes))
    return file


def test_a_mapping_is_tried_on_the_newest_records_of_the_log(deployment: Deployment) -> None:
    _mapping(
        deployment,
        ("personal: false}", "personal: false, values: [open]}\n  mail: emial::text"),
    )
    told = read(deployment.environment, "check", "orders")
    assert (told["origin"], told["records"], told["pages"]) == ("the log", 6, 3)
    assert told["outcomes"] == {"applied": 5, "quarantined": 1}
    assert told["columns"] == ["id", "status", "mail", "email", "outcome"]
    assert told["rows"][0] == ["o-1", "open", "·", "(pers.)", "applied, 0 lines"]
    assert told["children"] == {"order_lines": 0}
    detail = 'status "refunded" is none of open'
    assert told["refused"] == [
        {"key": "o-3", "reason": "unknown_value", "detail": detail, "line": 10}
    ]
    done = run(deployment.environment, "check", "mappings/orders.yaml")
    assert done.returncode == 0, done.stderr
    assert (
        "Sampled                    6 records on 3 pages of shop/orders, from the log"
        in done.stdout
    )
    assert f"      {detail}    line 10" in done.stdout
    assert "Would become               5 applied, 1 quarantined; 0 order_lines" in done.stdout
    assert "mappings/orders.yaml:11:9  warning: none of 6 sampled records has emial" in done.stdout
    assert "Did you mean `email` (in 6 of 6)?" in done.stdout
    assert "warning: none of 6 sampled records has lines" in done.stdout
    assert done.stdout.count("outcome") == 1
    assert "mail.example" not in done.stdout, "personal data is not shown"
    offline = run(deployment.environment, "check", "orders", "--offline")
    assert offline.returncode == 0
    assert "Sampled" not in offline.stdout


def test_a_function_is_tried_and_what_it_prints_is_shown(deployment: Deployment) -> None:
    (deployment.settings.definitions / "shop_rows.py").write_text(
        "def order(record, seen):\n"
        "    print('looks at', record['id'])\n"
        "    if record['id'] == 'o-4':\n"
        "        raise KeyError(record['email'])\n"
        "    return {'id': record['id'], 'status': seen.plan, 'email': '', 'version': 1}\n"
    )
    _mapping(deployment, ("key: id", "key: id\npython: shop_rows:order"))
    done = run(deployment.environment, "check", "orders")
    assert done.returncode == 0, done.stderr
    assert "Rows are made by           shop_rows:order" in done.stdout
    assert "mapper_failed" in done.stdout
    assert "shop_rows:order raised KeyError at shop_rows.py:4" in done.stdout
    assert "Would become               5 applied, 1 quarantined; 0 order_lines" in done.stdout
    assert "looks at o-1" in done.stderr
    (deployment.settings.definitions / "shop_rows.py").unlink()
    away = run(deployment.environment, "check", "orders")
    assert away.returncode == 2
    assert "there is no module shop_rows" in away.stderr
    assert "Traceback" not in away.stderr


def test_a_mapping_is_tried_on_a_page_of_the_provider(environment: dict[str, str]) -> None:
    told = read(environment, "check", "normalized_accounts", "--from", "provider")
    assert told["origin"] == "the provider"
    assert told["outcomes"] == {"applied": 30}
    del environment["DEMO_URL"]
    done = run(environment, "check", "normalized_accounts", "--from", "provider")
    assert done.returncode == 3
    assert "No records                 the provider: " in done.stdout
    assert "DEMO_URL" in done.stdout
