"""Reads the plans `python` and `singer`: what a program is given, never the program itself."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

from schemas.definitions import known_keys
from schemas.definitions.catalogs import NoStream, entry_of, selected
from schemas.definitions.fields import Fields, Known
from schemas.definitions.fingerprint import fingerprint
from schemas.definitions.merging import merge_requests
from schemas.definitions.problems import NotationError
from schemas.definitions.programs import ProgramSpec, PythonSpec, SingerSpec
from schemas.definitions.read_lengths import positive_s
from schemas.definitions.read_request import NOTHING, read_errors
from schemas.definitions.read_values import is_reference, read_flat_map, read_value_map
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.templates import Value, names_in
from schemas.definitions.tree import MapNode, Node, ScalarNode

_PYTHON_HANG_S: Final = 30.0
_SINGER_HANG_S: Final = 600.0
_CLASS = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASKED: Final = tuple(key for key in known_keys.REQUEST_KEYS if key not in ("headers", "errors"))
_REQUEST: Final = Known(known_keys.REQUEST_KEYS)
_CATALOG_ADVICE: Final = "Write `catalog: discover`, or `catalog: {file: orders.json}`."


def read_program(
    reader: Reader,
    plans: Mapping[str, MapNode],
    outer: Sequence[MapNode],
    name: str,
    folder: Path,
) -> ProgramSpec | None:
    """The program of the stream `name`, if it has one; `outer`: the maps of stream and source."""
    if "python" in plans:
        layers = [plans["python"], *outer]
        return read_python(reader, layers, f"the python plan of {name}", "snapshot" not in plans)
    if "singer" in plans:
        layers = [plans["singer"], *outer]
        return read_singer(reader, layers, f"the singer plan of {name}", name, folder)
    return None


def read_python(reader: Reader, layers: Sequence[MapNode], what: str, alone: bool) -> PythonSpec:
    """The plan `python`; its own map is the first of `layers`. `alone`: there is no snapshot."""
    fields = Fields(reader, layers[0], what, known_keys.PYTHON)
    advice = "Write where it is: `class: acme.jobs:Export`."
    module, name = fields.need("class", reader.parsed(_class_path), ("", ""), advice)
    settings = fields.get("settings", lambda node: _given(reader, node), NOTHING)
    merged = merge_requests(layers)
    request = Fields(reader, merged, what, _REQUEST)
    headers = request.get("headers", lambda node: read_flat_map(reader, node), NOTHING)
    _check_tenant_only(reader, merged.get("headers"), headers)
    if alone:
        _refuse_request(reader, layers[1], "the class says what to ask")
    asked = {"plan": "python", "class": f"{module}:{name}", "settings": settings}
    return PythonSpec(
        module=module,
        name=name,
        settings=settings,
        headers=headers,
        errors=request.get("errors", lambda node: read_errors(reader, node), ()),
        hang_s=fields.get("hang", reader.parsed(positive_s), _PYTHON_HANG_S),
        definition_hash=fingerprint(asked),
    )


def read_singer(
    reader: Reader, layers: Sequence[MapNode], what: str, stream: str, folder: Path
) -> SingerSpec:
    """The plan `singer` of the stream `stream`; `folder` is where the catalog's file starts."""
    fields = Fields(reader, layers[0], what, known_keys.SINGER)
    command = fields.need(
        "command", lambda node: _command(reader, node), ("",), "Write `command: [tap-name]`."
    )
    config = fields.get("config", lambda node: _given(reader, node), NOTHING)
    own = fields.get("stream", reader.text, stream)
    discover, catalog = fields.get(
        "catalog", lambda node: _catalog(reader, node, own, folder), (False, None)
    )
    state = fields.get("state", reader.choice("kept", "none"), "kept")
    others = fields.get("others", reader.choice("refuse", "ignore"), "refuse")
    _refuse_request(reader, layers[1], "the tap asks by itself")
    asked: dict[str, object] = {
        "plan": "singer",
        "command": [PurePath(command[0]).name, *command[1:]],
        "config": config,
        "stream": own,
        "catalog": None if catalog is None else entry_of(catalog, own),
    }
    return SingerSpec(
        command=command,
        config=config,
        environment=fields.get("environment", lambda node: _environment(reader, node), NOTHING),
        stream=own,
        catalog=None if catalog is None else json.dumps(catalog, ensure_ascii=False),
        discover=discover,
        ignores_others=others == "ignore",
        keeps_state=state == "kept",
        hang_s=fields.get("hang", reader.parsed(positive_s), _SINGER_HANG_S),
        definition_hash=fingerprint(asked),
    )


def refuse_snapshot(reader: Reader, plans: Mapping[str, MapNode], what: str) -> None:
    """A tap cannot list what a request lists: the records would have two shapes and no order."""
    if "singer" in plans and "snapshot" in plans:
        reader.note(
            plans["snapshot"],
            f"{what} is read by a tap, and a tap has no snapshot",
            "Take `snapshot` out, or read the listing as a stream of its own.",
        )


def _class_path(text: str) -> tuple[str, str]:
    found = _CLASS.fullmatch(text)
    if found is None:
        raise NotationError(
            f'"{text}" is no path of a class',
            "Write `package.module:Class`, as in `acme.jobs:Export`.",
        )
    return found[1], found[2]


def _given(reader: Reader, node: Node) -> Mapping[str, Value]:
    """Values for a program: texts, numbers, lists, maps, references and `{tenant.x}`."""
    values = read_value_map(reader, node)
    _check_tenant_only(reader, node, values)
    return values


def _check_tenant_only(reader: Reader, node: Node | None, values: Mapping[str, Value]) -> None:
    alien = sorted(name for name in names_in(values) if not name.startswith("tenant."))
    if alien and node is not None:
        reader.note(
            node,
            f"{{{alien[0]}}} has no value here",
            "Only `{tenant.FIELD}` may stand here; a brace itself is written `{{`.",
        )


def _environment(reader: Reader, node: Node) -> Mapping[str, Value]:
    for entry in reader.map(node, "environment").entries.values():
        if _VARIABLE.fullmatch(entry.key) is None:
            reader.note(entry, f'"{entry.key}" is no name of an environment variable')
        if not isinstance(entry.value, ScalarNode) and not is_reference(entry.value):
            reader.note(
                entry, "an environment variable is one text", "Write a text or a reference."
            )
    return _given(reader, node)


def _command(reader: Reader, node: Node) -> tuple[str, ...]:
    command = reader.list_of(reader.text)(node)
    if not command:
        raise reader.refuse(node, "a command has at least one word", "Write `command: [tap-name]`.")
    if any("{" in word for word in command):
        raise reader.refuse(
            node,
            "a command has no placeholders: everybody on the machine can read it",
            "Write values below `config:` or `environment:`.",
        )
    return command


def _catalog(
    reader: Reader, node: Node, stream: str, folder: Path
) -> tuple[bool, dict[str, Any] | None]:
    """Whether the tap is asked for one, and the one of a file with the stream selected."""
    if isinstance(node, ScalarNode):
        if node.value == "discover":
            return True, None
        raise reader.refuse(node, f'"{node.raw}" is no catalog', _CATALOG_ADVICE)
    fields = Fields(reader, reader.map(node, "catalog"), "catalog", known_keys.CATALOG)
    at = fields.need("file", lambda one: one, None, _CATALOG_ADVICE)
    if at is None:
        raise Refused
    name = reader.text(at)
    try:
        found = json.loads((folder / name).read_bytes())
        return False, selected(found, stream, fields=False)
    except OSError as error:
        where = "It starts at the definitions' folder."
        raise reader.refuse(at, f"this file cannot be read: {error.strerror}", where) from None
    except NoStream as error:
        raise reader.refuse(at, str(error), "Write `stream:` as the tap names it.") from None
    except ValueError as error:
        raise reader.refuse(at, f"{name}: {error}", _CATALOG_ADVICE) from None


def _refuse_request(reader: Reader, stream: MapNode, why: str) -> None:
    """What a stream says of a request that nobody makes would silently do nothing."""
    for key in _ASKED:
        if stream.get(key) is not None:
            reader.note(stream.entries[key], f"`{key}` has no use here: {why}", "Take it out.")
