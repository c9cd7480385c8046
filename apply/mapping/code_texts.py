"""Counting, in generated code, the member names and texts that the records of a form hold.

Invariant: never more are counted than there are. So if a page has exactly twice as many quotes, each
of them belongs to a name or a text that was found, and no member is named twice: the cheapest proof.
"""

from __future__ import annotations

from apply.mapping.shape import Form
from schemas.definitions.paths import Root, Step

NOTHING_COUNTED = -1


class TextCount:
    """What is left to be counted in the code of one form.

    `left`: values by their names from the record down, and whether a record may lack them. `each`:
    what the code begins with for every record, to correct it as it goes on; a record that it does
    not come to the end of counts nothing. `objects`: a value of each inner object; whoever makes code
    that fetches it as a value of the entity takes back the object's names where it is not there.
    """

    def __init__(self, form: Form) -> None:
        self.left: dict[tuple[str, ...], bool] = {}
        self.objects: list[tuple[str, ...]] = []
        self.each = 0
        self._add(form, ())

    def _add(self, form: Form, at: tuple[str, ...]) -> None:
        self.each += len(form.members)
        for name, member in form.members.items():
            inner = form.inner.get(name)
            if inner is not None:
                self.objects.append((*at, name, next(iter(inner.members))))
                self._add(inner, (*at, name))
            elif name not in form.raw or member.optional:
                self.left[*at, name] = member.optional

    def take(self, root: Root, steps: tuple[Step, ...]) -> bool:
        """Whether the value is to be counted where it is read: nobody else does it."""
        return root is Root.ENTITY and self.left.pop(steps, None) is not None  # type: ignore[arg-type]


def texts_in(value: object) -> int:
    """Texts of a list, not of what it holds."""
    return list(map(type, value)).count(str) if isinstance(value, list) else 0
