"""Reads one request out of the maps that describe it: plan, stream and source, nearest first."""

from collections.abc import Mapping, Sequence
from typing import Final

from schemas.definitions import known_keys
from schemas.definitions.fields import Fields, Known
from schemas.definitions.merging import merge_requests
from schemas.definitions.paths import Path, parse_answer_path, parse_record_path
from schemas.definitions.read_lengths import duration_s
from schemas.definitions.read_pages import body_path, header_or_body_path, read_pages
from schemas.definitions.read_predicate import read_predicate
from schemas.definitions.read_values import names_sent, read_flat_map, read_template, read_value_map
from schemas.definitions.reader import Reader
from schemas.definitions.rules import PARTIAL_GRAPHQL
from schemas.definitions.source import Action, ErrorRule, RequestSpec
from schemas.definitions.templates import Template, Value
from schemas.definitions.tree import MapNode, Node, ScalarNode

NO_PATH: Final = Template(("/",), "/")
_ID: Final = parse_record_path("id")
NOTHING: Final[Mapping[str, Value]] = {}
_BODY: Final = body_path("body")
_REQUEST: Final = Known(known_keys.REQUEST_KEYS)


def read_request(reader: Reader, layers: Sequence[MapNode], what: str, plan: str) -> RequestSpec:
    """The merged request of one plan; `what` names the plan in messages."""
    merged = merge_requests(layers)
    fields = Fields(reader, merged, what, _REQUEST)
    method = fields.one_of("get", "post")
    path = (
        fields.get(method, lambda node: read_request_path(reader, node), NO_PATH)
        if method
        else NO_PATH
    )
    params = fields.get("params", lambda node: read_flat_map(reader, node), NOTHING)
    headers = fields.get("headers", lambda node: read_flat_map(reader, node), NOTHING)
    body = fields.get("body", lambda node: read_value_map(reader, node), None)
    if body is not None and method == "get":
        reader.note(fields.entry("body"), "a GET has no body", "Write `post:`, or `body: null`.")
    if fields.has("graphql") or fields.has("variables"):
        body = _graphql(fields, method)
    sent = names_sent(merged)
    records = fields.need(
        "records",
        reader.parsed(body_path),
        _BODY,
        "Write where the list is: `records: body.items`.",
    )
    fields.need("pages", lambda node: None, None, "Write `pages: none` if one answer is all.")
    params_node = merged.get("params")
    pages = fields.get(
        "pages",
        lambda node: read_pages(
            reader, node, sent, plan, params_node if isinstance(params_node, MapNode) else None
        ),
        None,
    )
    return RequestSpec(
        method="POST" if method == "post" else "GET",
        path=path,
        records=records,
        id=fields.get("id", reader.parsed(parse_record_path), _ID),
        params=params,
        headers=headers,
        body=body,
        read_as=fields.get("read_as", reader.choice("json", "ndjson"), "json"),
        pages=pages,
        errors=fields.get("errors", lambda node: read_errors(reader, node), ())
        + ((PARTIAL_GRAPHQL,) if fields.has("graphql") else ()),
    )


def read_errors(reader: Reader, node: Node) -> tuple[ErrorRule, ...]:
    """The rules that say what an answer means, nearest first."""
    return reader.list_of(lambda one: _rule(reader, one))(node)


def _graphql(fields: Fields, method: str | None) -> Mapping[str, Value] | None:
    """The body of a query: its text as it is written, its variables filled in."""
    reader = fields.reader
    if not fields.has("graphql"):
        reader.note(
            fields.entry("variables"), "variables without a query", "Add `graphql:` with its text."
        )
        return None
    if method == "get":
        reader.note(fields.entry("graphql"), "a query is posted", "Write `post: /graphql`.")
    if fields.has("body"):
        reader.note(
            fields.entry("body"),
            "a request has either `body` or `graphql`",
            "Write `variables:`, or `body: null` where it stands further out.",
        )
    query = fields.get("graphql", reader.text, "")
    variables = fields.get("variables", lambda node: read_value_map(reader, node), NOTHING)
    return {"query": query, "variables": variables} if variables else {"query": query}


def read_request_path(reader: Reader, node: Node) -> Template:
    """The path behind `base_url`; a query belongs to `params`."""
    template = read_template(reader, node)
    first = template.parts[0]
    if not (isinstance(first, str) and first.startswith("/")) or "://" in template.text:
        raise reader.refuse(
            node, "a path begins with /", "It is appended to `base_url` as it stands."
        )
    if "?" in template.text or "#" in template.text:
        raise reader.refuse(node, "a path has no query", "Write it as `params:`.")
    return template


def _rule(reader: Reader, node: Node) -> ErrorRule:
    fields = Fields(
        reader, reader.map(node, "an error rule"), "an error rule", known_keys.ERROR_RULE
    )
    when = fields.need("when", lambda one: read_predicate(reader, one, parse_answer_path), None)
    do = fields.need("do", reader.choice(*(action.value for action in Action)), "fail")
    wait, wait_s = fields.get("wait", lambda one: _wait(reader, one), (None, None))
    because = fields.get("because", reader.text, None)
    if do == Action.TREAT_AS_EMPTY and because is None:
        reader.note(
            fields.node,
            "treat_as_empty takes an error for an answer without records",
            "Say why that is so: `because: issues are switched off there`.",
        )
    if when is None:
        raise reader.refuse(fields.node, "this rule has no condition that could be read")
    return ErrorRule(
        when,
        Action(do),
        fields.get("until", reader.parsed(header_or_body_path), None),
        wait,
        wait_s,
        because,
    )


def _wait(reader: Reader, node: Node) -> tuple[Path | None, float | None]:
    """A path to a number of seconds, or a duration."""
    if isinstance(node, ScalarNode) and node.raw.startswith(("header.", "body")):
        return reader.parsed(header_or_body_path)(node), None
    return None, reader.parsed(duration_s)(node)
