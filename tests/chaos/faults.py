"""What chaos and soak raise when a promise is broken."""

from __future__ import annotations


class Fault(Exception):
    """Something that may never happen; the text says what."""
