"""Reads `python` of a mapping: where its function is and what it may cost; never the function itself."""

import re
from typing import Final

from schemas.definitions import known_keys
from schemas.definitions.durations import parse_size_bytes
from schemas.definitions.fields import Fields
from schemas.definitions.mapping import FunctionSpec
from schemas.definitions.problems import NotationError
from schemas.definitions.read_lengths import positive_s
from schemas.definitions.reader import Reader
from schemas.definitions.tree import Node, ScalarNode

HANG_S: Final = 2.0
MEMORY_BYTES: Final = 512 * 1024 * 1024
_LEAST_MEMORY_BYTES: Final = 64 * 1024 * 1024
_ADVICE: Final = "Write where it is: `python: acme.shop:order`."
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)


def read_function(reader: Reader, node: Node) -> FunctionSpec:
    """`package.module:name`, or a map with the limits beside it."""
    if isinstance(node, ScalarNode):
        module, name = reader.parsed(_path)(node)
        return FunctionSpec(module, name, HANG_S, MEMORY_BYTES)
    fields = Fields(reader, reader.map(node, "python"), "python", known_keys.FUNCTION)
    module, name = fields.need("function", reader.parsed(_path), ("", ""), _ADVICE)
    memory = fields.get("memory", reader.parsed(parse_size_bytes), MEMORY_BYTES)
    if memory < _LEAST_MEMORY_BYTES:
        reader.note(
            fields.entry("memory"), "Python itself needs more than that", "Write 64MiB or more."
        )
    return FunctionSpec(module, name, fields.get("hang", reader.parsed(positive_s), HANG_S), memory)


def _path(text: str) -> tuple[str, str]:
    found = _FUNCTION.fullmatch(text)
    if found is None:
        raise NotationError(
            f'"{text}" is no path of a function',
            "Write `package.module:function`, as in `acme.shop:order`.",
        )
    return found[1], found[2]
