"""Reads how a source is reached: its origin, its credentials and how hard it may be asked."""

from typing import Final
from urllib.parse import urlsplit

from schemas.definitions import known_keys
from schemas.definitions.durations import parse_rate_per_s, parse_size_bytes
from schemas.definitions.fields import Fields
from schemas.definitions.paths import parse_answer_path
from schemas.definitions.read_lengths import duration_s, positive_s
from schemas.definitions.read_oauth2 import read_identity, read_oauth2
from schemas.definitions.read_pages import header_or_body_path
from schemas.definitions.read_request import NO_PATH, read_request_path
from schemas.definitions.read_values import (
    read_reference,
    read_secret,
    read_tenant_template,
    read_value_map,
)
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.secrets import Reference
from schemas.definitions.source import (
    ApiKeyAuth,
    AuthSpec,
    BasicAuth,
    BearerAuth,
    LimitsSpec,
    Secret,
    SessionAuth,
)
from schemas.definitions.templates import Template, names_in, parse_template
from schemas.definitions.tree import MapNode, Node, ScalarNode

NO_ORIGIN: Final = parse_template("https://unread.invalid")
_NO_SECRET: Final = Reference("env", "UNREAD")
_TOKEN: Final = parse_answer_path("body.token")
_DEFAULT: Final = LimitsSpec()


def read_base_url(reader: Reader, node: Node) -> Template | Reference:
    """The only origin that may be asked, and a path that all requests begin with."""
    if isinstance(node, MapNode):
        return read_reference(reader, node)
    if isinstance(node, ScalarNode) and node.raw in reader.secrets:
        raise Refused  # find_secrets noted it
    template = read_tenant_template(reader, node)
    try:
        url = urlsplit("".join(part if isinstance(part, str) else "x" for part in template.parts))
        fine = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise reader.refuse(
            node, "this is no URL", "Write for example `https://api.shop.example/v2`."
        )
    if url.query or url.fragment or url.username is not None:
        raise reader.refuse(
            node, "base_url is an origin and a path only", "Write the rest as `params:` or `auth:`."
        )
    if template.text.endswith("/"):
        return parse_template(template.text.rstrip("/"))
    return template


def read_auth(reader: Reader, node: Node) -> AuthSpec:
    """One way to authenticate."""
    fields = Fields(reader, reader.map(node, "auth"), "auth", known_keys.AUTH)
    kind = fields.one_of("bearer", "basic", "api_key", "session", "oauth2")
    if kind is None:
        raise Refused
    value = fields.entry(kind).value
    if kind == "bearer":
        return BearerAuth(read_secret(reader, value))
    if kind == "basic":
        return _basic(reader, value)
    if kind == "oauth2":
        return read_oauth2(reader, value)
    return _api_key(reader, value) if kind == "api_key" else _session(reader, value)


def _basic(reader: Reader, node: Node) -> BasicAuth:
    fields = Fields(reader, reader.map(node, "basic"), "basic", known_keys.BASIC)
    user = fields.need("user", lambda one: read_identity(reader, one), "")
    return BasicAuth(user, _needed_secret(fields, "password"))


def _api_key(reader: Reader, node: Node) -> ApiKeyAuth:
    fields = Fields(reader, reader.map(node, "api_key"), "api_key", known_keys.API_KEY)
    place = fields.one_of("header", "param") or "header"
    return ApiKeyAuth(place, fields.get(place, reader.text, ""), _needed_secret(fields, "value"))


def _session(reader: Reader, node: Node) -> SessionAuth:
    fields = Fields(reader, reader.map(node, "session"), "session", known_keys.SESSION)
    body = fields.get("body", lambda one: read_value_map(reader, one), {})
    alien = sorted(name for name in names_in(body) if not name.startswith("tenant."))
    if alien:
        reader.note(
            fields.entry("body"),
            f"{{{alien[0]}}} has no value here",
            "Only `{tenant.FIELD}` may stand here.",
        )
    return SessionAuth(
        post=fields.need("post", lambda one: read_request_path(reader, one), NO_PATH),
        body=body,
        token=fields.need("token", reader.parsed(header_or_body_path), _TOKEN),
        header=fields.get("header", reader.text, "Authorization"),
        scheme=fields.get("scheme", lambda one: _word(reader, one), ""),
        lifetime_s=fields.get("lifetime", reader.parsed(positive_s), None),
    )


def _word(reader: Reader, node: Node) -> str:
    word = reader.text(node)
    if any(character.isspace() for character in word):
        raise reader.refuse(node, "this is more than one word", "Write for example `Bearer`.")
    return word


def _needed_secret(fields: Fields, key: str) -> Secret:
    return fields.need(
        key,
        lambda one: read_secret(fields.reader, one),
        _NO_SECRET,
        f"Write `{key}: {{env: NAME}}`.",
    )


def read_limits(reader: Reader, node: Node) -> LimitsSpec:
    """How hard the provider may be asked."""
    fields = Fields(reader, reader.map(node, "limits"), "limits", known_keys.LIMITS)
    return LimitsSpec(
        rate_per_s=fields.get("rate", reader.parsed(parse_rate_per_s), None),
        concurrency=fields.get("concurrency", reader.at_least(1), _DEFAULT.concurrency),
        per=fields.get("per", reader.choice("credential", "tenant"), _DEFAULT.per),
        timeout_s=fields.get("timeout", reader.parsed(positive_s), _DEFAULT.timeout_s),
        body_max_bytes=fields.get(
            "body_max", lambda one: _size(reader, one), _DEFAULT.body_max_bytes
        ),
        attempts=fields.get("attempts", reader.at_least(1), _DEFAULT.attempts),
        wait_max_s=fields.get("wait_max", reader.parsed(duration_s), _DEFAULT.wait_max_s),
        reserve_s=fields.get("reserve", reader.parsed(duration_s), _DEFAULT.reserve_s),
    )


def _size(reader: Reader, node: Node) -> int:
    if isinstance(node, ScalarNode):
        return reader.notation(node, parse_size_bytes, node.raw)
    raise reader.refuse(node, "a size is needed here", "Write for example `32MiB`.")
