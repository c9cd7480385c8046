"""The local stack: real Kafka and real PostgreSQL, with nothing but Python needed.

`Stack` is imported when it is asked for: whoever only wants to know whether one runs need not wait
for the clients of both servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ops.stack.errors import StackBusy, StackError
from ops.stack.folder import Addresses, running

if TYPE_CHECKING:
    from ops.stack.stack import Stack

__all__ = ["Addresses", "Stack", "StackBusy", "StackError", "running"]


def __getattr__(name: str) -> Any:
    if name == "Stack":
        from ops.stack.stack import Stack

        return Stack
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
