"""Reads what requests are made of: values, templates, references, and finds secrets written out."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from schemas.definitions.problems import NotationError
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.secrets import KINDS, Reference
from schemas.definitions.templates import Template, Value, parse_template
from schemas.definitions.tree import Entry, ListNode, MapNode, Node, ScalarNode, text_nodes

SENT_KEYS: Final = ("get", "post", "params", "headers", "body", "variables")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(
    r"(?:.*[_-])?(?:authorization|cookie|passwords?|passwd|pwd|secret|token|api[_-]?key|apikey"
    r"|access[_-]?key|private[_-]?key|signature)",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"(?:sk|pk|rk)_(?:live|test)_\w{8,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{8,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}.*"
    r"|(?:Bearer|Basic) (?=\S*[0-9])[\w.~+/=-]{8,}|-----BEGIN .*",
    re.DOTALL,
)
_USER_IN_URL = re.compile(r"[a-z]+://[^/@\s]*:([^/@\s]+)@")
_HOLDS_VALUES: Final = (
    "params", "headers", "body", "variables", "config", "settings", "environment",
)  # fmt: skip
_SHORTEST_NAMED: Final = 6  # `key: id` is hardly a secret


def is_reference(node: Node) -> bool:
    """Whether the node is written like `{env: X}`, `{file: …}` or `{command: [..]}`."""
    return isinstance(node, MapNode) and len(node.entries) == 1 and set(node.entries) <= set(KINDS)


def read_reference(reader: Reader, node: Node) -> Reference:
    """A reference to a secret."""
    if not isinstance(node, MapNode) or not is_reference(node):
        raise reader.refuse(node, "a reference is needed here", "Write for example `{env: NAME}`.")
    [entry] = node.entries.values()
    if entry.key == "command":
        command = reader.list_of(reader.text)(entry.value)
        if not command:
            raise reader.refuse(entry.value, "a command has at least one word")
        return Reference("command", command)
    target = reader.text(entry.value)
    if entry.key == "env" and _ENV_NAME.fullmatch(target) is None:
        reader.secrets.add(target)
        raise reader.refuse(
            entry.value,
            "this is no name of an environment variable",
            "Write its name, not its value.",
        )
    return Reference(entry.key, target)


def read_template(reader: Reader, node: Node) -> Template:
    """A text with placeholders."""
    return reader.notation(node, parse_template, reader.text(node))


def read_tenant_template(reader: Reader, node: Node) -> Template:
    """A text that may hold `{tenant.x}` only: it is used outside of plans and pages."""
    template = read_template(reader, node)
    for name in sorted(template.names):
        if not name.startswith("tenant."):
            raise reader.refuse(
                node, f"{{{name}}} has no value here", "Only `{tenant.FIELD}` may stand here."
            )
    return template


def read_secret(reader: Reader, node: Node) -> Reference | Template:
    """A secret by reference, or a field of the tenant that is one."""
    if isinstance(node, MapNode):
        return read_reference(reader, node)
    if isinstance(node, ScalarNode) and node.raw in reader.secrets:
        raise Refused  # find_secrets noted it
    return read_tenant_template(reader, node)


def read_value(reader: Reader, node: Node) -> Value:
    """A value of a param, a header or a body; a text without placeholders is a plain str."""
    if isinstance(node, ScalarNode):
        if not isinstance(node.value, str):
            return node.value
        template = reader.notation(node, parse_template, node.value)
        if template.placeholders:
            return template
        return "".join(part for part in template.parts if isinstance(part, str))
    if isinstance(node, ListNode):
        return reader.list_of(lambda item: read_value(reader, item))(node)
    if is_reference(node):
        return read_reference(reader, node)
    return read_value_map(reader, node)


def read_value_map(reader: Reader, node: Node) -> Mapping[str, Value]:
    """A map of values; members that are refused are noted, all of them."""
    out: dict[str, Value] = {}
    refused = False
    for entry in reader.map(node, "this").entries.values():
        try:
            out[entry.key] = read_value(reader, entry.value)
        except Refused:
            refused = True
    if refused:
        raise Refused
    return out


def read_flat_map(reader: Reader, node: Node) -> Mapping[str, Value]:
    """Params or headers: values without maps within."""
    values = read_value_map(reader, node)
    for entry in reader.map(node, "this").entries.values():
        if isinstance(entry.value, MapNode) and not is_reference(entry.value):
            advice = f'Write its members as keys, such as `"{entry.key}[x]": …`.'
            raise reader.refuse(
                entry.value, f"{entry.key} is a map, and only bodies hold maps", advice
            )
    return values


def templates_below(node: MapNode, keys: Iterable[str]) -> Iterator[tuple[ScalarNode, Template]]:
    """Every readable template below these keys of a map, with the text that holds it."""
    for key in keys:
        value = node.get(key)
        for text in () if value is None else text_nodes(value):
            if isinstance(text.value, str) and "{" in text.value:
                try:
                    yield text, parse_template(text.value)
                except NotationError:
                    continue  # noted where it is read


def names_sent(request: MapNode) -> frozenset[str]:
    """The placeholders that a merged request sends, also where another part of it is wrong."""
    found = templates_below(request, SENT_KEYS)
    return frozenset(name for _, template in found for name in template.names)


def find_secrets(reader: Reader, root: MapNode, source: str) -> None:
    """Note every secret that is written out in a source, and never show it from here on."""
    _note_secrets(reader, _secrets_of(root), source)


def find_secrets_in_auth(reader: Reader, auth: Entry, of: str) -> None:
    """The same for one `auth`, which stands outside of a source; to call before it is read."""
    _note_secrets(reader, _in_auth(auth), of)


def _note_secrets(reader: Reader, secrets: Iterable[tuple[ScalarNode, str]], of: str) -> None:
    found = [(node, key) for node, key in secrets if isinstance(node.value, str)]
    reader.secrets.update(node.raw for node, _ in found)
    for node, key in found:
        variable = re.sub(r"[^A-Za-z0-9]+", "_", f"{of}_{'token' if key == 'bearer' else key}")
        reader.note(
            node,
            "this looks like a secret, and files are not for secrets",
            f"Write `{key}: {{env: {variable.upper()}}}`. If the file was shared, change the "
            f"{'password' if 'pass' in key else 'token'}.",
        )


def _secrets_of(root: MapNode) -> Iterator[tuple[ScalarNode, str]]:
    base_url = root.get("base_url")
    if isinstance(base_url, ScalarNode) and _USER_IN_URL.match(base_url.raw):
        yield base_url, "base_url"
    for entry in root.entries.values():
        if entry.key == "auth":
            yield from _in_auth(entry)
        elif entry.key != "mappings":
            yield from _named(entry, inside=entry.key in _HOLDS_VALUES)


def _in_auth(auth: Entry) -> Iterator[tuple[ScalarNode, str]]:
    if not isinstance(auth.value, MapNode):
        return
    for kind in auth.value.entries.values():
        if isinstance(kind.value, ScalarNode):
            yield from _literal(kind)
        elif isinstance(kind.value, MapNode) and not is_reference(kind.value):
            for entry in kind.value.entries.values():
                if entry.key in ("password", "value", "client_secret", "refresh_token"):
                    yield from _literal(entry)
                elif entry.key in ("body", "params"):
                    yield from _named(entry, inside=True)


def _literal(entry: Entry) -> Iterator[tuple[ScalarNode, str]]:
    if (
        isinstance(entry.value, ScalarNode)
        and entry.value.value is not None
        and not _filled(entry.value)
    ):
        yield (
            ScalarNode(entry.value.raw, entry.value.raw, entry.value.line, entry.value.column),
            entry.key,
        )


def _named(entry: Entry, inside: bool) -> Iterator[tuple[ScalarNode, str]]:
    """Literals below an entry that are named or look like a secret."""
    node = entry.value
    if isinstance(node, ScalarNode):
        named = inside and _SECRET_NAME.fullmatch(entry.key) and len(node.raw) >= _SHORTEST_NAMED
        if (named and not _filled(node)) or _SECRET_TEXT.fullmatch(node.raw):
            yield node, entry.key
    elif isinstance(node, ListNode):
        for item in node.items:
            yield from _named(Entry(entry.key, item, entry.line, entry.column), inside)
    elif not is_reference(node):
        for member in node.entries.values():
            deeper = inside or member.key in _HOLDS_VALUES
            yield from _named(member, deeper)


def _filled(node: ScalarNode) -> bool:
    """Whether a placeholder makes the value; then what is written is not the secret."""
    try:
        return bool(parse_template(node.raw).placeholders)
    except NotationError:
        return False
