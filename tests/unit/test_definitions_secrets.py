"""References, the scrubber, and tenants that are read again while running."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.definitions import DefinitionError, tenants
from schemas.definitions.scrubber import Scrubber
from schemas.definitions.secrets import Reference, Secrets, SecretUnavailable
from schemas.definitions.tenants import current_tenants
from tests.unit.definition_files import SHOP, changed, load


def test_references_resolve(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    secrets = Secrets({"TOKEN": "from-env"}, tmp_path)
    assert secrets.get(Reference("env", "TOKEN")) == "from-env"
    assert secrets.get(Reference("file", "token")) == "from-a-file"
    command = (sys.executable, "-c", "print('from-a-command')")
    assert secrets.get(Reference("command", command)) == "from-a-command"
    assert secrets.scrubber.text("from-env from-a-file") == "{env: TOKEN} {file: token}"


def test_a_secret_that_changed_is_read_again_and_the_old_one_stays_scrubbed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old-token")
    secrets, reference = Secrets({}, tmp_path), Reference("file", "token")
    assert secrets.get(reference) == "old-token"
    (tmp_path / "token").write_text("new-token")
    assert secrets.get(reference) == "old-token"
    secrets.forget()
    assert secrets.get(reference) == "new-token"
    assert secrets.scrubber.text("old-token new-token") == "{file: token} {file: token}"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (Reference("env", "NOPE"), "no variable NOPE"),
        (Reference("file", "nowhere"), "No such file"),
        (Reference("command", ("false",)), "exit code 1"),
        (Reference("command", ("yes",)), "more than 1,048,576 bytes"),
        (Reference("command", ("no-such-command-here",)), "No such file"),
        (Reference("env", "SHORT"), "shorter than 4"),
    ],
)
def test_what_cannot_be_resolved_says_why(tmp_path: Path, reference: Reference, why: str) -> None:
    with pytest.raises(SecretUnavailable, match=why) as caught:
        Secrets({"SHORT": "abc"}, tmp_path).get(reference)
    assert str(reference) in str(caught.value)
    assert "abc" not in str(caught.value)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=40), st.text(max_size=20)
)
def test_no_encoding_of_a_secret_survives(secret: str, around: str) -> None:
    scrubber = Scrubber()
    scrubber.add(secret, "{env: X}")
    forms = [
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        base64.b64encode(secret.encode()).decode(),
    ]
    for form in forms:
        shown = scrubber.text(f"{around}{form}{around}")
        assert shown.count("{env: X}") >= 1
        assert scrubber.bytes(form.encode()) == b"{env: X}" or secret in "{env: X}"
    assert (
        scrubber.headers({"Authorization": f"Bearer {secret}"})["Authorization"].startswith(
            "Bearer {env: X}"
        )
        or secret in "Bearer {env: X}"
    )


def test_a_secret_within_another_is_scrubbed_whole() -> None:
    scrubber = Scrubber()
    scrubber.add("abcd", "{env: SHORT}")
    scrubber.add("xabcdx", "{env: LONG}")
    assert scrubber.text("xabcdx abcd") == "{env: LONG} {env: SHORT}"


def test_tenants_of_a_file_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "tenants.yaml").write_text("- {id: north, city: Lund}\n- id: 007\n")
    text = changed(SHOP, ("source: shop", "source: shop\ntenants: {file: tenants.yaml}"))
    source = load(tmp_path, text, None).sources["shop"]
    assert [one and one.id for one in current_tenants(source)] == ["north", "007"]
    (tmp_path / "tenants.yaml").write_text("list: [{id: south}]\n")
    assert [one and one.id for one in current_tenants(source)] == ["south"]
    (tmp_path / "tenants.yaml").write_text("- {id: ''}\n")
    with pytest.raises(DefinitionError, match=r"tenants\.yaml:1"):
        current_tenants(source)
    (tmp_path / "tenants.yaml").unlink()
    with pytest.raises(OSError, match=r"tenants\.yaml"):
        current_tenants(source)


def test_tenants_of_a_list_are_read_again_where_it_stands(tmp_path: Path) -> None:
    text = changed(
        SHOP, ("source: shop", "source: shop\ntenants: {list: [{id: north}], every: 1m}")
    )
    source = load(tmp_path, text, None).check().sources["shop"]
    assert source.tenants is not None and source.tenants.every_s == 60
    assert [one and one.id for one in current_tenants(source)] == ["north"]
    own = tmp_path / "sources" / "shop.yaml"
    own.write_text(text.replace("[{id: north}]", "[{id: north, city: Lund}, {id: south}]"))
    assert [one and dict(one.fields) for one in current_tenants(source)] == [
        {"id": "north", "city": "Lund"}, {"id": "south"},
    ]  # fmt: skip
    for broken in (text.replace("[{id: north}]", "[{id: "), SHOP):
        own.write_text(broken)
        with pytest.raises(DefinitionError, match=r"shop\.yaml:"):
            current_tenants(source)


def test_a_file_that_stayed_the_same_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("- {id: north}\n")
    text = changed(SHOP, ("source: shop", "source: shop\ntenants: {file: tenants.yaml}"))
    source = load(tmp_path, text, None).sources["shop"]
    os.utime(path, (1_700_000_000, 1_700_000_000))
    parsed: list[str] = []
    real = tenants.tenants_in_file

    def counted(*asked: Any) -> Any:
        parsed.append(asked[1])
        return real(*asked)

    monkeypatch.setattr(tenants, "tenants_in_file", counted)
    for _ in range(3):
        assert [one and one.id for one in current_tenants(source)] == ["north"]
    assert len(parsed) == 1
    path.write_text("- {id: south}\n")  # just now: it may be written again within the same moment
    for _ in range(2):
        assert [one and one.id for one in current_tenants(source)] == ["south"]
    assert len(parsed) == 3


def test_a_source_without_tenants_has_one_without_a_name(tmp_path: Path) -> None:
    source = load(tmp_path, SHOP, None).sources["shop"]
    assert current_tenants(source) == (None,)
    assert source.streams["orders"].partition_id(None) == "shop/orders"


def test_every_listed_tenant_has_the_fields_that_are_asked_for(tmp_path: Path) -> None:
    text = changed(
        SHOP,
        ("source: shop", "source: shop\ntenants: {list: [{id: a, repo: x}, {id: b}]}"),
        ("get: /orders", "get: /{tenant.repo:path}/orders"),
    )
    [error] = load(tmp_path, text, None).errors
    assert error.message == "{tenant.repo} has no value for the tenant b"
