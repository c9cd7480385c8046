"""What one run of a tap is started with: config, state and catalog as files. Pure but for secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ingest.requests import tenant_values
from ingest.taps.messages import TapFault
from ingest.taps.process import InFolder, Start
from schemas.definitions.catalogs import NoStream, selected
from schemas.definitions.programs import SingerSpec
from schemas.definitions.secrets import Reference
from schemas.definitions.source import Tenant
from schemas.definitions.templates import render_value, text_of

Resolve = Callable[[Reference], str]


def discovery(spec: SingerSpec, tenant: Tenant | None, folder: Path, resolve: Resolve) -> Start:
    """The run that prints the tap's catalog. Raises SecretUnavailable or RenderError."""
    return _start(spec, tenant, folder, resolve, {}, ["--discover"])


def sync(
    spec: SingerSpec,
    tenant: Tenant | None,
    folder: Path,
    resolve: Resolve,
    *,
    state: bytes | None,
    catalog: str | None,
) -> Start:
    """The run that reads on from `state`. Raises SecretUnavailable or RenderError."""
    files: dict[str, bytes] = {}
    words: list[str | InFolder] = []
    if state is not None:
        files["state.json"] = state
        words += ["--state", InFolder("state.json")]
    if catalog is not None:
        files["catalog.json"] = catalog.encode()
        words += ["--catalog", InFolder("catalog.json")]
    return _start(spec, tenant, folder, resolve, files, words)


def _start(
    spec: SingerSpec,
    tenant: Tenant | None,
    folder: Path,
    resolve: Resolve,
    files: Mapping[str, bytes],
    words: list[str | InFolder],
) -> Start:
    values = tenant_values(tenant, resolve)
    config = render_value(spec.config, values, resolve)
    given = render_value(spec.environment, values, resolve)
    assert isinstance(given, Mapping)
    environment = {str(name): text_of(value) for name, value in given.items() if value is not None}
    program = _program(spec.command[0], folder)
    return Start(
        command=[program, *spec.command[1:], "--config", InFolder("config.json"), *words],
        files={"config.json": json.dumps(config, ensure_ascii=False).encode(), **files},
        environment=environment,
    )


def _program(word: str, folder: Path) -> str:
    """A relative path starts at the definitions' folder; a name is looked for in PATH."""
    return str((folder / word).resolve()) if os.sep in word and not os.path.isabs(word) else word


def catalog_of(output: bytes, stream: str) -> str:
    """The catalog that a discovery printed, with this stream and all its fields selected.

    Raises TapFault.
    """
    try:
        return json.dumps(selected(json.loads(output), stream, fields=True), ensure_ascii=False)
    except NoStream as error:
        raise TapFault(str(error), "`stream:` as the tap names it", lasting=True) from None
    except (ValueError, RecursionError) as error:
        raise TapFault(
            f"what the tap prints for --discover is no catalog: {type(error).__name__}",
            "`catalog: {file: …}` for a tap that cannot discover",
        ) from None
