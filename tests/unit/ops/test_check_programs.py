"""`gapless check` of streams that a program reads: a class must be there and answer, a tap is named."""

from __future__ import annotations

import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ingest.python_plan import Answer, Complete, Page
from ops.cli.main import build_app
from ops.problems import USAGE, Stop

CODE = """
from ingest.python_plan import Complete, Page, Request

class Export:
    def __init__(self, settings, tenant):
        self.key = settings["key"]
    def restore(self, state, now):
        pass
    def ask(self, now):
        return Request("/jobs", params={"since": now.year, "key": self.key})
    def take(self, request, answer):
        return Page()
    def state(self):
        return b""
"""


def check(folder: Path, plan: str, code: str = CODE) -> Result:
    module = f"jobs_{secrets.token_hex(6)}"
    (folder / f"{module}.py").write_text(code)
    text = f"""\
        gapless: 1
        source: shop
        base_url: https://api.shop.example/v2
        streams:
          rows:
            deletes: shown
            plan: {plan.replace("MODULE", module)}
        """
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "sources" / "shop.yaml").write_text(dedent(text))
    return CliRunner().invoke(build_app(), ["check", "-d", str(folder)])


PLAN = "{python: {class: MODULE:Export, settings: {key: {env: GAPLESS_TEST_KEY}}}}"


def test_the_first_question_of_a_class_is_shown_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAPLESS_TEST_KEY", "open sesame")
    done = check(tmp_path, PLAN)
    assert done.exit_code == 0, done.output
    assert "shop/rows  python" in done.output
    assert "GET /jobs?since=20" in done.output
    assert "{env: GAPLESS_TEST_KEY}" in done.output
    assert "sesame" not in done.output
    assert "is its own word" in done.output


def test_without_its_secret_a_class_is_only_looked_at(tmp_path: Path) -> None:
    done = check(tmp_path, PLAN)
    assert done.exit_code == 0, done.output
    assert "(not asked)" in done.output and "GAPLESS_TEST_KEY" in done.output


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", "the module has no class Export"),
        (CODE.replace("def take", "def taken"), "the class has no take"),
        (CODE.replace("import Complete", "import Nothing"), "importing it raised ImportError"),
        (CODE.replace('return b""', "return 5"), "state returned int"),
        (CODE.replace('"/jobs"', '"jobs"'), "does not begin with /"),
        (CODE.replace("pass", "raise KeyError"), "restore raised KeyError"),
    ],
)
def test_a_class_that_cannot_be_used_is_an_error_of_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setenv("GAPLESS_TEST_KEY", "open sesame")
    stop = check(tmp_path, PLAN, code).exception
    assert isinstance(stop, Stop)
    assert stop.problem.exit_code == USAGE
    assert message in stop.problem.message
    assert stop.problem.message.startswith("sources/shop.yaml: stream rows: ")


def test_a_tap_is_named_and_not_started(tmp_path: Path) -> None:
    done = check(tmp_path, "{singer: {command: [no-such-tap], catalog: discover}}")
    assert done.exit_code == 0, done.output
    assert "no-such-tap --config (config) --catalog (catalog)" in done.output
    assert "There is no program no-such-tap on this machine." in done.output
    there = check(tmp_path, f"{{singer: {{command: [{sys.executable}]}}}}")
    assert "There is no program" not in there.output


def test_the_class_of_the_documents_does_what_they_say() -> None:
    text = (Path(__file__).parents[3] / "ops/docs/definitions.md").read_text("utf-8")
    block = text.split("```python\n")[1].split("```")[0]
    space: dict[str, Any] = {}
    exec(block, space)
    plan = space["Export"]({}, {})
    noon, later = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
    plan.restore(None, noon)
    asked = plan.ask(noon)
    assert asked.params == {"from": "", "to": noon.isoformat()}
    missing = Answer(404, {}, b"", "", noon)
    assert plan.take(asked, missing).action == "retry"
    assert plan.take(asked, Answer(200, {}, b'{"a": 1}\n\n{"a": 2}\n', "", noon)) == Page(
        [b'{"a": 1}', b'{"a": 2}']
    )
    assert plan.ask(later) == Complete()
    again = space["Export"]({}, {})
    again.restore(plan.state(), later)
    assert again.ask(later).params == {"from": noon.isoformat(), "to": later.isoformat()}
