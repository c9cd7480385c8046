"""Which decision of an operator holds a partition id up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import Control


def paused(controls: Sequence[tuple[int, Control]], partition_id: str) -> Control | None:
    """The decision that holds a partition id up, if the last one about pausing does."""
    held: Control | None = None
    for _, control in controls:
        about = control.about
        if about == partition_id or partition_id.startswith(f"{about}/"):
            if control.action == "pause":
                held = control
            elif control.action == "resume":
                held = None
    return held
