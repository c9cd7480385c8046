"""Reads which changes of rows become events of a mapping, and whether they go to a topic or a receiver."""

from typing import Final
from urllib.parse import urlsplit

from schemas.definitions import known_keys
from schemas.definitions.fields import Fields
from schemas.definitions.mapping import EventsSpec, PostAuth, PostSpec
from schemas.definitions.read_access import read_auth
from schemas.definitions.read_values import find_secrets_in_auth, is_reference, read_reference
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.secrets import Reference
from schemas.definitions.source import ApiKeyAuth, BasicAuth, BearerAuth
from schemas.definitions.templates import Template
from schemas.definitions.tree import Node, ScalarNode

_TO: Final = "Write `to: {topic: gapless.events}` or `to: {post: https://hooks.shop.example}`."


def read_events(reader: Reader, node: Node) -> EventsSpec:
    """The events of one mapping."""
    fields = Fields(reader, reader.map(node, "events"), "events", known_keys.EVENTS)
    topic, post = fields.need("to", lambda one: _to(reader, one), ("", None), _TO)
    changed, changed_fields = fields.get("changed", lambda one: _changed(reader, one), (None, ()))
    if not any(fields.has(key) for key in ("created", "changed", "deleted")):
        reader.note(
            fields.node, "these events never happen", "Add `created:`, `changed:` or `deleted:`."
        )
    return EventsSpec(
        topic,
        fields.get("created", reader.text, None),
        changed,
        changed_fields,
        fields.get("deleted", reader.text, None),
        post,
    )


def is_receiver(url: str) -> bool:
    """Whether events can be posted to this address: http(s) with a host, without user and fragment."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return (
        fine and url.isascii() and " " not in url and parts.username is None and not parts.fragment
    )


def _to(reader: Reader, node: Node) -> tuple[str | None, PostSpec | None]:
    """Either the topic or the receiver is None."""
    fields = Fields(reader, reader.map(node, "to"), "to", known_keys.EVENTS_TO)
    if fields.has("auth"):
        find_secrets_in_auth(reader, fields.entry("auth"), "receiver")
    kind = fields.one_of("topic", "post")
    if kind is None:
        raise Refused
    if kind == "topic":
        if fields.has("auth"):
            reader.note(
                fields.entry("auth"),
                "a topic needs no `auth`",
                "How Kafka is reached stands in GAPLESS_KAFKA_CONFIG; `auth` belongs to `post`.",
            )
        return fields.get("topic", reader.text, ""), None
    url = fields.get("post", lambda one: _url(reader, one), "")
    return None, PostSpec(url, fields.get("auth", lambda one: _auth(reader, one), None))


def _url(reader: Reader, node: Node) -> str | Reference:
    if is_reference(node):
        return read_reference(reader, node)
    url = reader.text(node)
    if not is_receiver(url):
        if "@" in url:
            reader.secrets.add(url)
        raise reader.refuse(
            node,
            "events cannot be posted there",
            "Write for example `https://hooks.shop.example/orders`, without a user; what proves who "
            "we are is `auth:`.",
        )
    if urlsplit(url).query:
        reader.secrets.add(url)
        raise reader.refuse(
            node,
            "the address has a query, and queries often hold secrets",
            "Write `auth: {api_key: {param: NAME, value: {env: …}}}`, or the whole as `{env: NAME}`.",
        )
    return url


def _auth(reader: Reader, node: Node) -> PostAuth:
    fields = Fields(reader, reader.map(node, "auth"), "auth", known_keys.EVENTS_AUTH)
    alien = set(fields.node.entries) - set(known_keys.EVENTS_AUTH.keys)
    if alien or fields.one_of(*known_keys.EVENTS_AUTH.keys) is None:
        raise Refused
    auth = read_auth(reader, node)
    assert isinstance(auth, BearerAuth | BasicAuth | ApiKeyAuth)
    if any(isinstance(one, Template) for one in _parts(auth)):
        raise reader.refuse(
            node, "no tenant's fields have a value here", "Write secrets as `{env: NAME}`."
        )
    return auth


def _parts(auth: PostAuth) -> tuple[object, ...]:
    if isinstance(auth, BearerAuth):
        return (auth.token,)
    return (auth.user, auth.password) if isinstance(auth, BasicAuth) else (auth.value,)


def _changed(reader: Reader, node: Node) -> tuple[str | None, tuple[str, ...]]:
    if isinstance(node, ScalarNode):
        return reader.text(node), ()
    fields = Fields(reader, reader.map(node, "changed"), "changed", known_keys.CHANGED)
    return fields.need("type", reader.text, None), fields.get(
        "fields", reader.list_of(reader.text), ()
    )
