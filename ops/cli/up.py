"""`gapless up`: runs the local Kafka and PostgreSQL in the foreground, until it is told to stop.

The data stays in the folder, so the next `up` continues where this one ended. Other commands that
are started beside the folder find both servers by themselves.
"""

from __future__ import annotations

import json as json_format
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ops.stack import Addresses, Stack

_UNREACHABLE = 3
_BUSY = 6
_LOOK_S = 0.5


def up(
    folder: Annotated[
        Path, typer.Option(help="Where data and addresses are kept.", file_okay=False)
    ] = Path(".gapless"),
    kafka_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Else one is chosen once and kept.")
    ] = None,
    postgres_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Else one is chosen once and kept.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Delete what an earlier run left in the folder first.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write the addresses as one line of JSON.")
    ] = False,
) -> None:
    """Run a local Kafka and PostgreSQL until Ctrl-C or SIGTERM; their data is kept.

    Exit codes: 0 stopped as asked, 3 a server does not start or ended by itself, 6 a stack already
    runs on this folder.
    """
    from ops.stack import Stack, StackBusy, StackError

    stack = Stack(folder, kafka_port=kafka_port, postgres_port=postgres_port, tell=_say)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    ended = None
    try:
        if reset:
            stack.remove()
        _say("starting Kafka and PostgreSQL ...")
        with stack:
            _show(stack.addresses, folder, json)
            ended = _first_to_end(stack)
    except KeyboardInterrupt:
        _say("stopped")
    except StackBusy as fault:
        _say(str(fault))
        raise typer.Exit(_BUSY) from fault
    except StackError as fault:
        _say(str(fault))
        raise typer.Exit(_UNREACHABLE) from fault
    if ended:
        _say(f"{ended} ended by itself; see what it wrote in {stack.folder}")
        raise typer.Exit(_UNREACHABLE)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _first_to_end(stack: Stack) -> str:
    """Returns when a server is gone, with its name."""
    while True:
        if not stack.kafka.running:
            return "Kafka"
        if not stack.postgres.running:
            return "PostgreSQL"
        time.sleep(_LOOK_S)


def _show(addresses: Addresses, folder: Path, json: bool) -> None:
    if json:
        value = {"kafka": addresses.kafka, "postgres": addresses.postgres}
        typer.echo(json_format.dumps(value))
    else:
        typer.echo(f"Kafka       {addresses.kafka}")
        typer.echo(f"PostgreSQL  {addresses.postgres}")
        typer.echo(
            f"Other commands started here find both. Ctrl-C or SIGTERM stops; {folder} keeps the data."
        )
    sys.stdout.flush()


def _say(text: str) -> None:
    typer.echo(text, err=True)
