"""What can go wrong with the local stack; every message says what to do next."""

from __future__ import annotations


class StackError(Exception):
    """A server of the local stack cannot be set up, started or stopped."""


class StackBusy(StackError):
    """Another process runs a stack on this folder; two on one folder would corrupt its data."""
