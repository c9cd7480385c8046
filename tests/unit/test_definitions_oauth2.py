"""`auth: oauth2`: what is read, and what a user is told about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.definitions.secrets import Reference
from schemas.definitions.source import OAuth2Auth
from schemas.definitions.templates import Template
from tests.unit.definition_files import SHOP, changed, load, messages

OLD = "auth:\n  bearer: {env: SHOP_TOKEN}\n"
TENANTS = "tenants: {list: [{id: a, key: {env: A_KEY}}]}\n"
CREDENTIALS = "token_url: https://login.example/token, client_id: shop"


def auth(folder: Path, oauth2: str, before: str = "") -> object:
    text = changed(SHOP, (OLD, f"{before}auth: {{oauth2: {{{oauth2}}}}}\n"))
    return load(folder, text, None).check().sources["shop"].auth


def told(folder: Path, oauth2: str, before: str = "") -> str:
    text = changed(SHOP, (OLD, f"{before}auth: {{oauth2: {{{oauth2}}}}}\n"))
    return "\n".join(messages(load(folder, text, None)))


def test_client_credentials(tmp_path: Path) -> None:
    found = auth(
        tmp_path,
        f"{CREDENTIALS}, client_secret: {{env: S}}, scopes: [read, list],"
        " params: {audience: https://api.shop.example}, client_auth: body",
    )
    assert isinstance(found, OAuth2Auth)
    assert (found.client_id, found.client_secret) == ("shop", Reference("env", "S"))
    assert (found.scopes, found.client_auth) == (("read", "list"), "body")
    assert found.params == {"audience": "https://api.shop.example"}
    assert (found.refresh_token, found.store) == (None, None)


def test_a_refresh_token_per_tenant(tmp_path: Path) -> None:
    found = auth(
        tmp_path,
        "token_url: /oauth/token, client_id: shop, scopes: read list, refresh_token:"
        " '{tenant.key}', store: 'tokens/{tenant.id}.json'",
        TENANTS,
    )
    assert isinstance(found, OAuth2Auth)
    assert isinstance(found.token_url, Template) and found.token_url.text == "/oauth/token"
    assert found.scopes == ("read", "list")
    assert found.client_secret is None and found.client_auth == "basic"


@pytest.mark.parametrize(
    ("oauth2", "message"),
    [
        ("client_id: a, client_secret: {env: S}", "oauth2 needs `token_url:`"),
        ("token_url: /t, client_secret: {env: S}", "oauth2 needs `client_id:`"),
        (CREDENTIALS, "these are client credentials, and they need a secret"),
        (f"{CREDENTIALS}, refresh_token: {{env: R}}", "which must be kept"),
        (f"{CREDENTIALS}, client_secret: {{env: S}}, store: x", "nothing is kept for client"),
        (f"{CREDENTIALS}, client_secret: hunter2-hunter2", "this looks like a secret"),
        (f"{CREDENTIALS}, refresh_token: hunter2-hunter2, store: x", "this looks like a secret"),
        (f"{CREDENTIALS}, client_secret: {{env: S}}, client_auth: jwt", '"jwt" is none of'),
        ("token_url: login, client_id: a, client_secret: {env: S}", "this is no URL"),
        ("token_url: //x/y, client_id: a, client_secret: {env: S}", "this is no URL"),
        ("token_url: 'ftp://x/y', client_id: a, client_secret: {env: S}", "this is no URL"),
        ("token_url: 'https://u@x/y', client_id: a, client_secret: {env: S}", "neither a user"),
        (
            f"{CREDENTIALS}, client_secret: {{env: S}}, params: {{scope: a}}",
            "`scope` is sent by itself",
        ),
        (
            f"{CREDENTIALS}, client_secret: {{env: S}}, params: {{x: '{{token}}'}}",
            "{token} has no value here",
        ),
        (f"{CREDENTIALS}, client_secret: {{env: S}}, scope: a", "Write `scopes: [a, b]`"),
        (
            f"{CREDENTIALS}, refresh_token: {{env: R}}, store: {{file: x}}",
            "`store` is the path of a file that is written",
        ),
    ],
)
def test_a_mistake(tmp_path: Path, oauth2: str, message: str) -> None:
    found = told(tmp_path, oauth2)
    assert message in found.replace("\n  ", " ")
    assert "hunter2" not in found


def test_tenants_with_tokens_of_their_own_have_files_of_their_own(tmp_path: Path) -> None:
    one_file = f"{CREDENTIALS}, refresh_token: '{{tenant.key}}', store: tokens.json"
    assert "the tenants have tokens of their own, but one file" in told(tmp_path, one_file, TENANTS)


def test_a_field_of_tenants_that_is_not_there(tmp_path: Path) -> None:
    text = f"{CREDENTIALS}, client_secret: '{{tenant.nope}}'"
    assert "{tenant.nope} has no value for the tenant a" in told(tmp_path, text, TENANTS)


def test_a_session_with_a_word_before_its_token(tmp_path: Path) -> None:
    session = "auth: {session: {post: /login, token: body.t, scheme: Bearer}}\n"
    found = load(tmp_path, changed(SHOP, (OLD, session)), None).check().sources["shop"].auth
    assert getattr(found, "scheme", None) == "Bearer"
    wrong = session.replace("Bearer", "'Bearer '")
    [message] = messages(load(tmp_path, changed(SHOP, (OLD, wrong)), None))
    assert "this is more than one word" in message
