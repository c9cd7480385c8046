"""Texts of definitions by their place in the folder, and putting them there without loss.

A file that is there is never overwritten, but for the schemas, which are made and never edited.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ops.problems import REFUSED, Stop
from schemas.definitions.json_schema import mapping_schema, source_schema

SOURCE_SCHEMA = "schema/source.json"
MAPPING_SCHEMA = "schema/mapping.json"

Files = Mapping[str, str]
"""Text by path relative to the definitions' folder, such as `sources/shop.yaml`."""


def schema_files() -> dict[str, str]:
    """The schemas that the first line of every scaffold names; an editor completes keys from them."""
    return {
        SOURCE_SCHEMA: json.dumps(source_schema(), indent=2) + "\n",
        MAPPING_SCHEMA: json.dumps(mapping_schema(), indent=2) + "\n",
    }


def with_schema(text: str, schema: str) -> str:
    """A definition that tells editors its schema, by a path from its own folder."""
    return f"# yaml-language-server: $schema=../{schema}\n{text}"


def write(folder: Path, files: Files) -> list[Path]:
    """Write these and the schemas; nothing at all if one of them is there. Gives their paths.

    Raises Stop, naming what is in the way.
    """
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise Stop(
            f"{folder / there[0]} is there already, and nothing is overwritten. Nothing was written."
            " Choose another name, another folder (-d FOLDER), or move the file away.",
            REFUSED,
        )
    _put(folder, files, "x")
    return [*(folder / name for name in files), *write_schemas(folder)]


def write_schemas(folder: Path) -> list[Path]:
    """The schemas of this version, in place of an earlier one's. Gives their paths."""
    files = schema_files()
    _put(folder, files, "w")
    return [folder / name for name in files]


def _put(folder: Path, files: Files, mode: str) -> None:
    """Raises Stop for what the file system refuses."""
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            said = f"{path} cannot be written: {error.strerror}. Choose another folder: -d FOLDER"
            raise Stop(said, REFUSED) from error
