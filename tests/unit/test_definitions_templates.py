"""Templates and column types: what is rendered is what was meant, and nothing can break out."""

import json
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.definitions.column_types import parse_type
from schemas.definitions.paths import (
    MISSING,
)
from schemas.definitions.problems import NotationError
from schemas.definitions.secrets import Reference
from schemas.definitions.templates import (
    RenderError,
    Value,
    literal,
    parse_template,
    render,
    render_base_url,
    render_path,
    render_value,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS)
def test_a_literal_renders_as_itself(text: str) -> None:
    template = literal(text)
    assert parse_template(template.text) == template
    assert render(template, {}) == text


@given(TEXTS)
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        template = parse_template(text)
    except NotationError:
        return
    assert parse_template(template.text) == template


def test_a_lone_placeholder_keeps_its_type() -> None:
    assert render(parse_template("{size}"), {"size": 100}) == 100
    assert render(parse_template("n{size}"), {"size": 100}) == "n100"
    assert render(parse_template("{last.id:json}"), {"last.id": 'a"b'}) == '"a\\"b"'
    assert render(parse_template("k={last.id:json}"), {"last.id": 'a"b'}) == 'k="a\\"b"'
    assert render(parse_template("{token}"), {}) is MISSING
    assert render(parse_template("a{token}"), {"token": None}) is MISSING


@pytest.mark.parametrize("value", ["a'b", 'a"b', "a\nb", "a\\b", "a`b", "\x00"])
def test_quotes_never_stand_inside_longer_text(value: str) -> None:
    template = parse_template("id>'{last.id}'")
    with pytest.raises(RenderError, match=r"last\.id") as caught:
        render(template, {"last.id": value})
    assert value not in str(caught.value)
    assert render(parse_template("{last.id}"), {"last.id": value}) == value


def test_what_has_no_value_is_left_out() -> None:
    value: dict[str, Value] = {
        "a": parse_template("{token}"),
        "b": (parse_template("{token}"), 1, {"c": parse_template("{start}")}),
        "secret": Reference("env", "X"),
    }
    assert render_value(value, {"start": 5}, str) == {
        "b": [1, {"c": 5}],
        "secret": "{env: X}",
    }


@given(TEXTS.filter(lambda text: text not in ("", ".", "..")))
def test_a_value_in_a_path_is_one_segment(text: str) -> None:
    path = render_path(parse_template("/a/{tenant.x}/b"), {"tenant.x": text})
    assert path.count("/") == 3
    assert unquote(path.split("/")[2]) == text


def test_paths_never_climb() -> None:
    template = parse_template("/r/{tenant.x:path}/b")
    assert render_path(template, {"tenant.x": "o/r"}) == "/r/o/r/b"
    for wrong in ("..", "a/../..", ".", "", None):
        with pytest.raises(RenderError):
            render_path(template, {"tenant.x": wrong})


def test_a_tenant_never_names_another_origin() -> None:
    template = parse_template("https://{tenant.x}.example/v1")
    assert render_base_url(template, {"tenant.x": "north"}) == "https://north.example/v1"
    for wrong in ("evil.com/", "a@b", "a:1", "", "a#", "a?b", "-"):
        with pytest.raises(RenderError):
            render_base_url(template, {"tenant.x": wrong})


def test_braces_and_unknown_placeholders() -> None:
    assert render(parse_template("{{a: {size}}}"), {"size": 1}) == "{a: 1}"
    for wrong, message in [
        ("{", "lone brace"),
        ("{strat}", "no placeholder"),
        ("{run.name}", "no placeholder"),
        ("{size:xml}", "modifier"),
    ]:
        with pytest.raises(NotationError, match=message):
            parse_template(wrong)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("int", "integer"),
        ("NUMERIC(12, 2)", "numeric(12,2)"),
        ("numeric(5)", "numeric(5,0)"),
        ("float8", "double precision"),
        ("text[]", "text[]"),
        ("char", "char(1)"),
        ("timestamp with time zone", "timestamptz"),
    ],
)
def test_types(text: str, sql: str) -> None:
    assert parse_type(text).sql == sql


@pytest.mark.parametrize(
    "text",
    [
        "string",
        "timestamp",
        "json",
        "text(5)",
        "numeric(2,5)",
        "jsonb[]",
        "txt",
        "",
        "a;b",
        "char(0)",
    ],
)
def test_types_that_columns_cannot_have(text: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_type(text)
    assert "Write" in caught.value.advice or "Types are" in caught.value.advice


def test_rendered_values_are_plain_data() -> None:
    value: dict[str, Value] = {"a": (1, "x"), "b": {"c": True}}
    assert json.loads(json.dumps(render_value(value, {}, str))) == {"a": [1, "x"], "b": {"c": True}}
