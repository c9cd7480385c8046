"""Problems of a definition, told so that the reader knows what to write instead.

A problem never repeats a secret: lines are shown only after what may be one was taken out.
"""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

_WIDTH = 79
_SECRET_LINE = re.compile(
    r"""^(.*?(?:bearer|password|passwd|secret|authorization|cookie|(?:api|access|private)[_-]?key
        |(?:access|refresh|auth)[_-]?token)["']?\s*:\s*)(?![{\[|>&*])(\S.*?)\s*$""",
    re.IGNORECASE | re.VERBOSE,
)


class NotationError(ValueError):
    """A text does not follow one of the small notations; `advice` says what to write instead."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to change (or, as a warning, to think about) in a definition."""

    file: str
    line: int  # from 1
    column: int  # from 1
    message: str
    excerpt: str  # the line, secrets taken out; empty if there is none
    advice: str
    severity: str = "error"  # or warning

    def __str__(self) -> str:
        warning = "warning: " if self.severity == "warning" else ""
        out = [f"{self.file}:{self.line}:{self.column}  {warning}{self.message}"]
        if self.excerpt:
            out.append(f"{self.line:>5} | {self.excerpt}")
        if self.advice:
            out += textwrap.wrap(
                self.advice,
                _WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        return "\n".join(out)


class DefinitionError(Exception):
    """A definition cannot be used; `problems` says all that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n\n".join(str(problem) for problem in self.problems))


def hidden(secret: str) -> str:
    """What is shown in place of a secret."""
    return f"({len(secret)} characters, not repeated here)"


def without_secrets(line: str, secrets: Iterable[str]) -> str:
    """A line of a file without the given secrets and without what its keys call one."""
    for secret in sorted((s for s in secrets if s), key=len, reverse=True):
        line = line.replace(secret, hidden(secret))
    found = _SECRET_LINE.match(line)
    if found is not None and "not repeated here)" not in found[2]:
        line = found[1] + hidden(found[2].strip("\"'"))
    return line


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def listed(words: Iterable[str]) -> str:
    """`a`, `b` and `c` in backquotes, as a sentence lists them."""
    quoted = [f"`{word}`" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
