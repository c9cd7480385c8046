"""`gapless topics`: creates and verifies the topics of this deployment."""

from __future__ import annotations

import typer

from ops.cli import context, errors


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
        raise errors.Stop(f"Refused, nothing was changed:\n{refused}", errors.REFUSED) from None
    except TopicsUnreachable as error:
        raise errors.Stop(str(error), errors.UNREACHABLE) from None
    for line in lines:
        typer.echo(line)
