"""`gapless demo`: the whole pipeline on this machine, killed several times, then audited."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    seconds: Annotated[
        float, typer.Option(help="How long workers are killed for; draining and audit come after.")
    ] = 80.0,
    seed: Annotated[int, typer.Option(help="Decides what the provider invents.")] = 7,
    folder: Annotated[Path, typer.Option(help="Data and logs of the demo; emptied first.")] = Path(
        ".gapless/demo"
    ),
) -> None:
    """Run the main job on a simulated provider, kill workers again and again, end with the audit."""
    from ops.demo.run import Plan, run

    code = run(folder, Plan(seconds=seconds, seed=seed), typer.echo)
    raise typer.Exit(code)
