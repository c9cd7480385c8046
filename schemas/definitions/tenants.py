"""Tenants: a list in the definition, a file, or a command's output, all read again while running.

Ids are checked in all of them. A command is not run to validate a definition, only to use it.
"""

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from schemas.definitions.commands import PrintedTooMuch, TookTooLong, output_of
from schemas.definitions.fields import Fields
from schemas.definitions.known_keys import TENANTS
from schemas.definitions.problems import DefinitionError, Problem
from schemas.definitions.read_lengths import positive_s
from schemas.definitions.read_values import is_reference, read_reference
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.source import SourceSpec, Tenant, TenantsSpec
from schemas.definitions.tree import ListNode, MapNode, Node, ScalarNode, read_tree

_ID = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,198}[^\s\x00-\x1f\x7f])?")
COMMAND_TIMEOUT_S: Final = 30.0
_OUTPUT_BYTES_MAX: Final = 32 * 1024 * 1024
_EVERY_S: Final = {"list": 10.0, "file": 10.0, "command": 60.0}
_SURE_S: Final = 2.0
"""A file that was written since may be written again without a sign: its time has a grain."""


def read_tenants(reader: Reader, node: Node, folder: Path) -> TenantsSpec:
    """The `tenants` key of a source. A file that cannot be read is noted here already."""
    fields = Fields(reader, reader.map(node, "tenants"), "tenants", TENANTS)
    kind = fields.one_of("list", "file", "command")
    if kind is None:
        raise Refused
    every_s = fields.get("every", reader.parsed(positive_s), _EVERY_S[kind])
    entry = fields.entry(kind)
    if kind == "list":
        own = folder / reader.file
        return TenantsSpec(
            listed=_tenants(reader, entry.value),
            file=own if own.is_file() else None,
            within=("tenants", "list"),
            every_s=every_s,
        )
    if kind == "command":
        command = reader.list_of(reader.text)(entry.value)
        if not command:
            raise reader.refuse(entry.value, "a command has at least one word")
        return TenantsSpec(command=command, folder=folder, every_s=every_s)
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
    return TenantsSpec(file=path, every_s=every_s)


def current_tenants(spec: SourceSpec) -> tuple[Tenant | None, ...]:
    """Whose data is to be read now; one None for a source without tenants.

    Reads the file (or the definition's own, for its list) or runs the command again, which blocks.
    Raises DefinitionError or OSError: keep the tenants that were known before.
    """
    if spec.tenants is None:
        return (None,)
    if spec.tenants.command:
        return tenants_of_command(spec.tenants.command, spec.tenants.folder)
    if spec.tenants.file is None:
        return spec.tenants.listed
    path, within = spec.tenants.file, spec.tenants.within
    found = path.stat()
    if time.time() - found.st_mtime < _SURE_S:
        return tenants_in_file(path, path.name, within)
    return _as_it_was(path, within, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=64)
def _as_it_was(
    path: Path, within: tuple[str, ...], state: tuple[int, int, int]
) -> tuple[Tenant, ...]:
    """A long list takes seconds to read: only once for every state of its file."""
    return tenants_in_file(path, path.name, within)


def tenants_in_file(
    path: Path, shown: str, within: tuple[str, ...] = ("list",)
) -> tuple[Tenant, ...]:
    """The tenants of a file: a list of maps with `id`, or such a list `within` a map.

    `shown` names the file in messages. Raises DefinitionError, OSError.
    """
    return _parsed(path.read_bytes(), shown, within)


def tenants_of_command(command: tuple[str, ...], folder: Path) -> tuple[Tenant, ...]:
    """The tenants that a command prints, as a file lists them; JSON will do. Blocks while it runs.

    Raises DefinitionError, also where it cannot be started or ends with an exit code other than 0.
    """
    shown = f"the output of {command[0]}"
    try:
        code, printed = output_of(
            command, timeout_s=COMMAND_TIMEOUT_S, most_bytes=_OUTPUT_BYTES_MAX, folder=folder
        )
    except TookTooLong:
        raise _unread(shown, f"it did not end within {COMMAND_TIMEOUT_S:.0f} s") from None
    except PrintedTooMuch:
        raise _unread(shown, f"it is larger than {_OUTPUT_BYTES_MAX:,} bytes") from None
    except OSError as error:
        raise _unread(shown, f"it cannot be started: {error.strerror}") from None
    if code != 0:
        raise _unread(shown, f"it ended with exit code {code}")
    return _parsed(printed, shown, quoted=False)


def _unread(shown: str, message: str) -> DefinitionError:
    return DefinitionError([Problem(shown, 1, 1, message, "", "")])


def _parsed(
    content: bytes, shown: str, within: tuple[str, ...] = ("list",), *, quoted: bool = True
) -> tuple[Tenant, ...]:
    """`quoted`: messages may repeat lines; what a command prints may hold secrets."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unread(shown, "this is not UTF-8") from None
    reader = Reader(shown, text if quoted else "")
    tree = read_tree(text)
    for fault in tree.faults:
        reader.note(fault, fault.message, fault.advice)
    tenants: tuple[Tenant, ...] = ()
    listed = tree.root
    for key in within:
        listed = listed.get(key) if isinstance(listed, MapNode) else listed
    if listed is not None:
        tenants = reader.attempt(lambda: _tenants(reader, listed), ())
    elif not reader.failed:
        reader.note(
            ScalarNode(None, "", 1, 1), "no tenants are listed here", "Write `- id: north` lines."
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
