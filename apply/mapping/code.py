"""Lines of generated code, and the way in them from a record to a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from apply.mapping.code_texts import TextCount
from apply.mapping.shape import Form
from schemas.definitions.paths import MISSING, Each, Root, Step, find

BODY = " " * 12


@dataclass(slots=True)
class Writer:
    """Collects lines, and the objects that they name.

    `forms`: of the variables that hold, or are part of, an object with a form: the form of the whole
    record, and where in it the variable is. `once`: before the loop, for what all records share. `objects`: first in the loop, each object
    on the way to a value once. `lines`: the rest of the loop's body. `texts`: what counts member names
    and texts, if they are counted.
    """

    names: dict[str, Any] = field(default_factory=dict)
    forms: dict[str, tuple[Form, tuple[Step, ...]]] = field(default_factory=dict)
    once: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[Step, ...], str] = field(default_factory=dict)
    texts: TextCount | None = None

    def line(self, text: str) -> None:
        self.lines.append(BODY + text)

    def name(self, prefix: str, value: Any) -> str:
        found = f"{prefix}{len(self.names)}"
        self.names[found] = value
        return found

    def may_be_unset(self, root: Root, steps: tuple[Step, ...]) -> bool:
        """Whether what the steps lead to may be a member of a form that an object has not."""
        if not steps:
            return False
        form, last = self.form("r" if root is Root.RECORD else "e", steps[:-1]), steps[-1]
        if form is None or not isinstance(last, str) or last not in form.members:
            return False
        return form.members[last].optional

    def is_raw(self, root: Root, steps: tuple[Step, ...]) -> bool:
        """Whether what the steps lead to is a member of a form that stays as JSON writes it."""
        if not steps:
            return False
        form = self.form("r" if root is Root.RECORD else "e", steps[:-1])
        return form is not None and steps[-1] in form.raw

    def form(self, start: str, steps: tuple[Step, ...]) -> Form | None:
        """The form of the object that the steps lead to from a variable; None: it is a dict."""
        if start not in self.forms:
            return None
        whole, before = self.forms[start]
        return whole.find((*before, *steps))


def fetch(writer: Writer, root: Root, steps: tuple[Step, ...]) -> str:
    """An expression for what the steps lead to; None, or UNSET in a form, if they lead nowhere."""
    start = "r" if root is Root.RECORD else "e"
    if any(isinstance(step, Each) for step in steps):
        at = 0
        if start in writer.forms:
            at = next(at for at, step in enumerate(steps) if not isinstance(step, str))
            start = fetch(writer, root, steps[:at])
        return f"{writer.name('find', finder(steps[at:]))}({start})"
    if not steps:
        return start
    return _last(writer, start, steps)


def _last(writer: Writer, start: str, steps: tuple[Step, ...]) -> str:
    """The last step, from the object or list that the others lead to."""
    holder, form = _holder(writer, start, steps), writer.form(start, steps[:-1])
    step = steps[-1]
    if form is not None and isinstance(step, str):
        field = form.field(step)
        return "None" if field is None else f"{holder}.{field}"
    if isinstance(step, str):
        return f"{holder}.get({step!r})"
    if not isinstance(step, int):
        raise TypeError("[*] is found by a call")
    least = step + 1 if step >= 0 else -step
    return f"({holder}[{step}] if len({holder}) >= {least} else None)"


def _holder(writer: Writer, start: str, steps: tuple[Step, ...]) -> str:
    """A variable with the object that holds the last member, or the list; empty if there is none."""
    if len(steps) == 1 and isinstance(steps[0], str):
        return start
    form = writer.form(start, steps[:-1])
    of = "list" if not isinstance(steps[-1], str) else "dict" if form is None else "form"
    place = (start, of, *steps[:-1])
    known = writer.known.get(place)
    if known is None:
        inner = start if len(steps) == 1 else _last(writer, start, steps[:-1])
        known = writer.known[place] = f"o{len(writer.known)}"
        nothing = f"NO_{of}" if form is None else writer.name("NO", form.nothing)
        expected = of if form is None else class_of(writer, form)
        instead = f"{known} = {nothing}"
        if writer.texts is not None and form is not None and start == "e":
            instead = f"texts -= {len(form.members)} + ({known} is UNSET); {instead}"
        writer.objects.append(f"{BODY}{known} = {inner}")
        writer.objects.append(f"{BODY}if {known}.__class__ is not {expected}: {instead}")
    return known


def class_of(writer: Writer, form: Form | None) -> str:
    """The name of the class that objects of this form have; dicts without one."""
    return "dict" if form is None else writer.name("S", form.type)


def finder(steps: tuple[Step, ...]) -> Callable[[object], object]:
    """Finds what the steps lead to, None where they lead nowhere."""

    def found(value: object) -> object:
        one = find(steps, value)
        return None if one is MISSING else one

    return found
