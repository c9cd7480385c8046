"""`gapless topics`: creates and verifies the topics of this deployment."""

from __future__ import annotations

import typer

from ops import problems
from ops.cli import context


def register(app: typer.Typer) -> None:
    app.command("topics")(topics)


def topics() -> None:
    """Create the topics that are missing, and refuse settings that would break a promise."""
    from ops.facts.log import connect
    from ops.topics import TopicsRefused, TopicsUnreachable, ensure_topics

    settings = context.load_settings()
    connect(settings)
    try:
        lines = ensure_topics(settings)
    except TopicsRefused as refused:
        raise problems.Stop(f"Refused, nothing was changed:\n{refused}", problems.REFUSED) from None
    except TopicsUnreachable as error:
        raise problems.Stop(str(error), problems.UNREACHABLE) from None
    for line in lines:
        typer.echo(line)
