"""Reads values out of a definition's tree and collects everything that is wrong with them.

A fault never stops the reading: it is noted, a fallback goes on in its place, and no specification is
made of a file with faults. So one run tells all there is to change.
"""

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Protocol, TypeVar

from schemas.definitions.problems import NotationError, Problem, closest, listed, without_secrets
from schemas.definitions.tree import ListNode, MapNode, Node, ScalarNode

T = TypeVar("T")
D = TypeVar("D")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_SQL_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Refused(Exception):
    """A value cannot be used; the problem is noted already."""


class Place(Protocol):
    """What has a position."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class Reader:
    """One file's problems, and readers of single values that note them and raise Refused."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.secrets: set[str] = set()
        self._lines = text.splitlines()

    @property
    def failed(self) -> bool:
        """Whether there is any problem that is not just a warning."""
        return any(problem.severity == "error" for problem in self.problems)

    def note(self, at: Place, message: str, advice: str = "", severity: str = "error") -> None:
        """Note a problem; the same one at the same place is noted once (anchors are read twice)."""
        line = self._lines[at.line - 1] if at.line <= len(self._lines) else ""
        excerpt = without_secrets(line.rstrip(), self.secrets)
        problem = Problem(self.file, at.line, at.column, message, excerpt, advice, severity)
        if problem not in self.problems:
            self.problems.append(problem)

    def warn(self, at: Place, message: str, advice: str = "") -> None:
        """Note something to think about."""
        self.note(at, message, advice, "warning")

    def refuse(self, at: Place, message: str, advice: str = "") -> Refused:
        """Note a problem; the caller raises what is returned and so gives the value up."""
        self.note(at, message, advice)
        return Refused()

    def attempt(self, read: Callable[[], T], fallback: D) -> T | D:
        """What `read` returns, or the fallback if it refused."""
        try:
            return read()
        except Refused:
            return fallback

    def notation(self, at: Place, parse: Callable[[str], T], text: str) -> T:
        """What the parser of a small notation makes of a text."""
        try:
            return parse(text)
        except NotationError as error:
            raise self.refuse(at, error.message, error.advice) from None

    def text(self, node: Node) -> str:
        """A text."""
        if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.value:
            return node.value
        if isinstance(node, ScalarNode) and node.value is not None and node.value != "":
            raise self.refuse(node, "a text is needed here", f'Quote it: `"{node.raw}"`.')
        raise self.refuse(node, "a text is needed here")

    def parsed(self, parse: Callable[[str], T]) -> Callable[[Node], T]:
        """A reader of texts in a small notation."""
        return lambda node: self.notation(node, parse, self.text(node))

    def name(self, node: Node) -> str:
        """A name of a source, stream or mapping."""
        text = self.text(node)
        if _NAME.fullmatch(text) is None:
            raise self.refuse(
                node,
                f'"{text}" is no name',
                "Use letters, digits, `_` and `-`; begin with a letter.",
            )
        return text

    def sql_name(self, node: Node) -> str:
        """A name of a table or column."""
        return self.check_sql_name(node, self.text(node))

    def check_sql_name(self, at: Place, text: str) -> str:
        """The text, if it can name a table or column without quotes."""
        if _SQL_NAME.fullmatch(text) is None:
            advice = "Use small letters, digits and `_`, at most 63; begin with a letter."
            raise self.refuse(at, f'"{text}" cannot name a table or column', advice)
        return text

    def boolean(self, node: Node) -> bool:
        """`true` or `false`."""
        if isinstance(node, ScalarNode) and isinstance(node.value, bool):
            return node.value
        raise self.refuse(node, "`true` or `false` is needed here")

    def integer(self, node: Node) -> int:
        """A whole number."""
        if (
            isinstance(node, ScalarNode)
            and isinstance(node.value, int)
            and not isinstance(node.value, bool)
        ):
            return node.value
        raise self.refuse(
            node, "a whole number is needed here", "Write digits only, such as `100`."
        )

    def at_least(self, least: int) -> Callable[[Node], int]:
        """A reader of whole numbers."""

        def read(node: Node) -> int:
            number = self.integer(node)
            if number < least:
                raise self.refuse(node, f"{number} is too small", f"Write {least} or more.")
            return number

        return read

    def decimal(self, node: Node) -> Decimal:
        """A number, exactly as written."""
        if (
            isinstance(node, ScalarNode)
            and isinstance(node.value, int | float)
            and not isinstance(node.value, bool)
        ):
            try:
                return Decimal(node.raw)
            except InvalidOperation:
                pass
        raise self.refuse(node, "a number is needed here")

    def scalar(self, node: Node) -> str | int | float | bool | None:
        """A text, number, boolean or null."""
        if isinstance(node, ScalarNode):
            return node.value
        raise self.refuse(node, "a single value is needed here, not a list or a map")

    def choice(self, *words: str) -> Callable[[Node], str]:
        """A reader of one of these words."""

        def read(node: Node) -> str:
            shown = node.raw if isinstance(node, ScalarNode) else "this"
            if isinstance(node, ScalarNode) and node.raw in words:
                return node.raw
            near = closest(shown, words)
            raise self.refuse(
                node,
                f'"{shown}" is none of {", ".join(words)}',
                f"Write {f'`{near}`' if near else listed(words)}.",
            )

        return read

    def list_of(self, read: Callable[[Node], T]) -> Callable[[Node], tuple[T, ...]]:
        """A reader of lists; elements that are refused are noted, all of them."""

        def read_list(node: Node) -> tuple[T, ...]:
            if not isinstance(node, ListNode):
                raise self.refuse(node, "a list is needed here", "Write `[a, b]`.")
            out: list[T] = []
            refused = False
            for item in node.items:
                try:
                    out.append(read(item))
                except Refused:
                    refused = True
            if refused:
                raise Refused
            return tuple(out)

        return read_list

    def map(self, node: Node, what: str) -> MapNode:
        """A map."""
        if isinstance(node, MapNode):
            return node
        raise self.refuse(node, f"{what} is a map", "Write `key: value` lines below it.")
