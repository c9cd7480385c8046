"""Tenants: a fixed list, or a file that is read again while running. Ids are checked both ways."""

import re
from collections.abc import Sequence
from pathlib import Path

from schemas.definitions.fields import Fields
from schemas.definitions.known_keys import TENANTS
from schemas.definitions.problems import DefinitionError, Problem
from schemas.definitions.read_values import is_reference, read_reference
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.source import SourceSpec, Tenant, TenantsSpec
from schemas.definitions.tree import ListNode, MapNode, Node, ScalarNode, read_tree

_ID = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,198}[^\s\x00-\x1f\x7f])?")


def read_tenants(reader: Reader, node: Node, folder: Path) -> TenantsSpec:
    """The `tenants` key of a source. A file that cannot be read is noted here already."""
    fields = Fields(reader, reader.map(node, "tenants"), "tenants", TENANTS)
    kind = fields.one_of("list", "file")
    if kind == "list":
        return TenantsSpec(listed=_tenants(reader, fields.entry("list").value))
    if kind is None:
        raise Refused
    entry = fields.entry("file")
    path = folder / reader.text(entry.value)
    try:
        tenants_in_file(path, reader.text(entry.value))
    except DefinitionError as error:
        reader.problems.extend(error.problems)
    except OSError as error:
        reader.note(
            entry.value,
            f"this file cannot be read: {error.strerror}",
            "It starts at the definitions' folder.",
        )
    return TenantsSpec(file=path)


def current_tenants(spec: SourceSpec) -> tuple[Tenant | None, ...]:
    """Whose data is to be read now; one None for a source without tenants.

    Reads the file again, if there is one. Raises DefinitionError or OSError: keep the tenants that
    were known before.
    """
    if spec.tenants is None:
        return (None,)
    if spec.tenants.file is None:
        return spec.tenants.listed
    return tenants_in_file(spec.tenants.file, spec.tenants.file.name)


def tenants_in_file(path: Path, shown: str) -> tuple[Tenant, ...]:
    """The tenants of a file: a list of maps with `id`, or a map with such a `list`.

    `shown` names the file in messages. Raises DefinitionError, OSError.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DefinitionError([Problem(shown, 1, 1, "this file is not UTF-8", "", "")]) from None
    reader = Reader(shown, text)
    tree = read_tree(text)
    for fault in tree.faults:
        reader.note(fault, fault.message, fault.advice)
    tenants: tuple[Tenant, ...] = ()
    root = tree.root
    listed = root.get("list") if isinstance(root, MapNode) else root
    if listed is not None:
        tenants = reader.attempt(lambda: _tenants(reader, listed), ())
    elif not reader.failed:
        reader.note(
            ScalarNode(None, "", 1, 1), "this file lists no tenants", "Write `- id: north` lines."
        )
    if reader.failed:
        raise DefinitionError(reader.problems)
    return tenants


def _tenants(reader: Reader, node: Node) -> tuple[Tenant, ...]:
    tenants = reader.list_of(lambda item: _tenant(reader, item))(node)
    places = node.items if isinstance(node, ListNode) else ()
    _check_unique(reader, tenants, places)
    return tenants


def _check_unique(reader: Reader, tenants: Sequence[Tenant], places: Sequence[Node]) -> None:
    seen: set[str] = set()
    for tenant, place in zip(tenants, places, strict=True):
        if tenant.id in seen:
            reader.note(place, f'the tenant "{tenant.id}" is listed twice', "Keep one.")
        seen.add(tenant.id)


def _tenant(reader: Reader, node: Node) -> Tenant:
    fields: dict[str, object] = {}
    for entry in reader.map(node, "a tenant").entries.values():
        if is_reference(entry.value):
            fields[entry.key] = read_reference(reader, entry.value)
        else:
            fields[entry.key] = reader.scalar(entry.value)
    at = node.get("id") if isinstance(node, MapNode) else None
    if not isinstance(at, ScalarNode) or _ID.fullmatch(at.raw) is None:
        raise reader.refuse(
            at or node,
            "a tenant needs an `id`, a text of 1 to 200 characters",
            "It becomes part of keys and of `tenant_id`, so it must never be personal data.",
        )
    fields["id"] = at.raw
    return Tenant(at.raw, fields)  # type: ignore[arg-type]  # scalars and references only
