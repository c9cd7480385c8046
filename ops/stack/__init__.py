"""The local stack: real Kafka and real PostgreSQL, with nothing but Python needed."""

from ops.stack.errors import StackBusy, StackError
from ops.stack.folder import Addresses, running
from ops.stack.stack import Stack

__all__ = ["Addresses", "Stack", "StackBusy", "StackError", "running"]
