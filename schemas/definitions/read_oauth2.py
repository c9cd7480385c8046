"""Reads `auth: oauth2`: where tokens come from, with which grant, and where a rotated one is kept."""

from typing import Final
from urllib.parse import urlsplit

from schemas.definitions import known_keys
from schemas.definitions.fields import Fields
from schemas.definitions.read_values import (
    is_reference,
    read_flat_map,
    read_reference,
    read_secret,
    read_tenant_template,
)
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.secrets import Reference
from schemas.definitions.source import OAuth2Auth, Secret
from schemas.definitions.templates import Template, Value, names_in, parse_template
from schemas.definitions.tree import ListNode, MapNode, Node, ScalarNode

_NO_URL: Final = parse_template("https://unread.invalid/token")
_SENT_ITSELF: Final = ("grant_type", "client_id", "client_secret", "refresh_token", "scope")


def read_oauth2(reader: Reader, node: Node) -> OAuth2Auth:
    """Client credentials, or with `refresh_token` that grant, whose tokens are kept in `store`."""
    fields = Fields(reader, reader.map(node, "oauth2"), "oauth2", known_keys.OAUTH2)
    spec = OAuth2Auth(
        token_url=fields.need("token_url", lambda one: _token_url(reader, one), _NO_URL),
        client_id=fields.need("client_id", lambda one: read_identity(reader, one), ""),
        client_secret=fields.get("client_secret", lambda one: read_secret(reader, one), None),
        client_auth=fields.get("client_auth", reader.choice("basic", "body"), "basic"),
        scopes=fields.get("scopes", lambda one: _scopes(reader, one), ()),
        params=fields.get("params", lambda one: _params(reader, one), {}),
        refresh_token=fields.get("refresh_token", lambda one: read_secret(reader, one), None),
        store=fields.get("store", lambda one: _store(reader, one), None),
    )
    _check(fields, spec)
    return spec


def read_identity(reader: Reader, node: Node) -> Secret | str:
    """A user or a client: a reference, a tenant's field, or the name itself."""
    if is_reference(node):
        return read_reference(reader, node)
    template = read_tenant_template(reader, node)
    return template if template.placeholders else "".join(map(str, template.parts))


def _token_url(reader: Reader, node: Node) -> Template | Reference:
    if isinstance(node, MapNode):
        return read_reference(reader, node)
    if isinstance(node, ScalarNode) and node.raw in reader.secrets:
        raise Refused  # find_secrets noted it
    template = read_tenant_template(reader, node)
    try:
        url = urlsplit("".join(part if isinstance(part, str) else "x" for part in template.parts))
        port = url.port
    except ValueError:
        raise _no_url(reader, node) from None
    if url.username is not None or url.fragment:
        raise reader.refuse(
            node,
            "a token URL has neither a user nor a fragment",
            "Write `client_id:` and `client_secret:`.",
        )
    absolute = url.scheme in ("http", "https") and bool(url.hostname) and port != 0
    if not absolute and (not template.text.startswith("/") or template.text.startswith("//")):
        raise _no_url(reader, node)
    return template


def _no_url(reader: Reader, node: Node) -> Refused:
    return reader.refuse(
        node,
        "this is no URL",
        "Write `https://login.example/oauth/token`, or a path such as `/oauth/token` behind "
        "`base_url`.",
    )


def _scopes(reader: Reader, node: Node) -> tuple[str, ...]:
    """A list, or one text with spaces as providers print it."""
    if isinstance(node, ListNode):
        return reader.list_of(reader.text)(node)
    return tuple(reader.text(node).split())


def _params(reader: Reader, node: Node) -> dict[str, Value]:
    params = dict(read_flat_map(reader, node))
    at = reader.map(node, "params").entries
    for name in params:
        if name in _SENT_ITSELF:
            reader.note(at[name], f"`{name}` is sent by itself", "Remove it from `params`.")
        alien = sorted(one for one in names_in(params[name]) if not one.startswith("tenant."))
        if alien:
            reader.note(
                at[name],
                f"{{{alien[0]}}} has no value here",
                "Only `{tenant.FIELD}` may stand here.",
            )
    return params


def _store(reader: Reader, node: Node) -> Template:
    if isinstance(node, MapNode):
        raise reader.refuse(
            node,
            "`store` is the path of a file that is written",
            "Write for example `store: tokens/shop.json`.",
        )
    return read_tenant_template(reader, node)


def _check(fields: Fields, spec: OAuth2Auth) -> None:
    note = fields.reader.note
    if not fields.has("client_secret") and not fields.has("refresh_token"):
        note(
            fields.node,
            "without a `refresh_token` these are client credentials, and they need a secret",
            "Write `client_secret: {env: NAME}`.",
        )
    if fields.has("refresh_token") and not fields.has("store"):
        note(
            fields.entry("refresh_token"),
            "many providers take a refresh token once and answer with the next one, which must be "
            "kept",
            "Add `store: tokens/shop.json`, a file that this worker may write (it starts at the "
            "definitions' folder).",
        )
    if fields.has("store") and not fields.has("refresh_token"):
        note(
            fields.entry("store"),
            "nothing is kept for client credentials",
            "Remove `store:`, or add `refresh_token: {env: NAME}`.",
        )
    asked = (spec.token_url, spec.client_id, spec.client_secret, spec.refresh_token)
    own = any(isinstance(one, Template) and one.placeholders for one in asked)
    if own and spec.store is not None and not spec.store.placeholders:
        note(
            fields.entry("store"),
            "the tenants have tokens of their own, but one file",
            "Write for example `store: tokens/{tenant.id}.json`.",
        )
