"""The first question of a stream that a program reads: a class is made and asked, a tap only named.

A class is imported and must keep to the protocol; nothing is sent.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from urllib.parse import urlencode

from ingest import python_plan as said
from ingest.calls import Calls
from ingest.python_program import (
    Given,
    ProgramFault,
    PythonProgram,
    find_class,
    moment,
    request_of,
)
from ingest.requests import tenant_values
from ops.check.question import Question
from schemas.definitions.programs import PythonSpec, SingerSpec
from schemas.definitions.secrets import Secrets, SecretUnavailable
from schemas.definitions.source import StreamSpec, Tenant
from schemas.definitions.templates import RenderError, render_value

__all__ = ["ProgramFault", "program_question"]


def program_question(
    stream: StreamSpec, tenant: Tenant | None, folder: Path, now_us: int
) -> Question:
    """What the stream's program would begin with. Raises ProgramFault for a class that cannot."""
    owner, program = stream.partition_id(tenant.id if tenant else None), stream.program
    assert program is not None
    if isinstance(program, SingerSpec):
        return Question(owner, program.plan, program.stream, _command(program), _notes(program))
    find_class(program, folder)
    secrets = Secrets(folder=folder)
    try:
        asked = asyncio.run(_first(program, tenant, owner, folder, secrets, now_us))
    except (SecretUnavailable, RenderError) as error:
        return Question(owner, program.plan, program.path, "(not asked)", (str(error),))
    return Question(owner, program.plan, program.path, secrets.scrubber.text(asked), ())


async def _first(
    spec: PythonSpec,
    tenant: Tenant | None,
    owner: str,
    folder: Path,
    secrets: Secrets,
    now_us: int,
) -> str:
    values = tenant_values(tenant, secrets.get)
    settings = render_value(spec.settings, values, secrets.get)
    assert isinstance(settings, dict)
    named = {name.removeprefix("tenant."): value for name, value in values.items()}
    given = Given(spec, folder, settings, named, secrets.scrubber)
    now = moment(now_us)
    program = await PythonProgram.restored(owner, given, Calls(), None, now)
    wanted = await program.ask(now)
    await program.state()
    if isinstance(wanted, said.WaitUntil):
        return f"nothing before {wanted.at.isoformat()}: {wanted.why}"
    if isinstance(wanted, said.Complete):
        return "nothing: it says that everything is complete"
    request = request_of(wanted, {})
    query = f"?{urlencode(request.params, safe=':,{} ')}" if request.params else ""
    body = f"  {json.dumps(request.body, ensure_ascii=False)}" if request.body is not None else ""
    return f"{request.method} {request.link or request.path}{query}{body}"


def _command(spec: SingerSpec) -> str:
    words = [*spec.command, "--config", "(config)"]
    if spec.catalog is not None or spec.discover:
        words += ["--catalog", "(catalog)"]
    return " ".join(words)


def _notes(spec: SingerSpec) -> tuple[str, ...]:
    found = []
    if shutil.which(spec.command[0]) is None and "/" not in spec.command[0]:
        found.append(f"There is no program {spec.command[0]} on this machine.")
    if spec.discover:
        found.append("The catalog is asked for before each run: --discover.")
    return tuple(found)
