"""Maps with known keys: every unknown one is noted, with what was probably meant."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from schemas.definitions.problems import closest, listed
from schemas.definitions.reader import Reader
from schemas.definitions.tree import Entry, MapNode, Node, is_null

T = TypeVar("T")
D = TypeVar("D")


class Known:
    """The keys that a map may have, those of the language that are not supported, and hints."""

    __slots__ = ("advice", "keys", "unsupported")

    def __init__(
        self,
        keys: Sequence[str],
        unsupported: Mapping[str, str] | None = None,
        advice: Mapping[str, str] | None = None,
    ) -> None:
        self.keys = tuple(keys)
        self.unsupported = unsupported or {}
        self.advice = advice or {}


class Fields:
    """One map with its known keys; unknown ones are noted when it is made."""

    def __init__(self, reader: Reader, node: MapNode, what: str, known: Known) -> None:
        self.reader = reader
        self.node = node
        self.what = what
        for entry in node.entries.values():
            if entry.key in known.keys:
                continue
            if entry.key in known.unsupported:
                if not is_null(entry.value):
                    reader.note(
                        entry,
                        f"`{entry.key}` is part of the language but not of this version",
                        known.unsupported[entry.key],
                    )
                continue
            advice = known.advice.get(entry.key)
            if advice is None:
                near = closest(entry.key, (*known.keys, *known.unsupported))
                advice = f"Did you mean `{near}`?" if near else f"Known: {', '.join(known.keys)}."
            reader.note(entry, f'{what} has no key "{entry.key}"', advice)

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.node.get(key) is not None

    def entry(self, key: str) -> Entry:
        """The entry of a key that is there."""
        return self.node.entries[key]

    def get(self, key: str, read: Callable[[Node], T], default: D) -> T | D:
        """The key's value; the default also if it was refused."""
        node = self.node.get(key)
        return default if node is None else self.reader.attempt(lambda: read(node), default)

    def need(self, key: str, read: Callable[[Node], T], fallback: D, advice: str = "") -> T | D:
        """A required key's value; if it is missing or refused that is noted and the fallback goes on."""
        if self.node.get(key) is None:
            message = f"{self.what} needs `{key}:`"
            self.reader.note(self.node.entries.get(key, self.node), message, advice)
        return self.get(key, read, fallback)

    def one_of(self, *keys: str) -> str | None:
        """Which one of these keys is there; noted if none or several are."""
        there = [key for key in keys if self.has(key)]
        if len(there) == 1:
            return there[0]
        if there:
            self.reader.note(
                self.entry(there[1]), f"{self.what} has {' and '.join(there)}", "Keep one."
            )
            return None
        self.reader.note(self.node, f"{self.what} needs {listed(keys)}")
        return None
