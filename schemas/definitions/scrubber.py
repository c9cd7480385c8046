"""Takes secrets out of what is written down, and puts them back where they have to be sent again."""

import base64
import json
from collections import deque
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, quote_plus

SHORTEST: Final = 4
"""Characters; a shorter value could not be taken out of a text without destroying the text."""
SHORTEST_IN_RECORDS: Final = 16
"""Characters; a shorter credential may be an ordinary word of the data, which is kept exactly."""
PASSING_KEPT: Final = 8
"""Tokens of one kind that are still taken out; older ones have expired."""


def _forms(value: str) -> tuple[str, ...]:
    """A value as it is, URL-encoded, JSON-escaped and in base64; some are equal."""
    return (
        value,
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        base64.b64encode(value.encode()).decode(),
    )


class Scrubber:
    """Replaces secrets by their references, also where they were encoded."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._longest_first: tuple[str, ...] = ()
        self._latest: dict[str, str] = {}
        self._in_records: dict[bytes, bytes] = {}
        self._passing: dict[str, deque[list[str]]] = {}

    def add(self, value: str, shown: str) -> None:
        """From now on `value` is shown as `shown`. An empty value is ignored."""
        if value:
            self._learn(value, shown)

    def add_credential(self, value: str, shown: str) -> None:
        """As `add`, for what proves who we are: it is taken out of records too, if long enough.

        Names and addresses are not: records may hold them rightly, and are kept exactly.
        """
        if value:
            self._learn(value, shown)
            self._guard(value, shown)

    def add_passing(self, value: str, shown: str) -> None:
        """As `add_credential`, for tokens that follow each other: only the newest few are kept.

        A value shorter than SHORTEST is ignored.
        """
        if len(value) < SHORTEST or value in self._shown:
            return
        kept = self._passing.setdefault(shown, deque())
        kept.append(self._learn(value, shown))
        self._guard(value, shown)
        if len(kept) > PASSING_KEPT:
            for form in kept.popleft():
                del self._shown[form]
                self._in_records.pop(form.encode(), None)
            self._order()

    def text(self, text: str) -> str:
        """The text without secrets."""
        for form in self._longest_first:
            if form in text:
                text = text.replace(form, self._shown[form])
        return text

    def body(self, content: bytes) -> bytes:
        """A body of records without credentials; everything else is kept exactly."""
        for form, shown in self._in_records.items():
            if form in content:
                content = content.replace(form, shown)
        return content

    def bytes(self, content: bytes) -> bytes:
        """The bytes without secrets; everything else is kept exactly."""
        for form in self._longest_first:
            found = form.encode()
            if found in content:
                content = content.replace(found, self._shown[form].encode())
        return content

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers without secrets, in names and values."""
        return {self.text(name): self.text(value) for name, value in headers.items()}

    def hidden(self, link: str) -> str:
        """A link without secrets that `restored` makes whole again."""
        for form in self._longest_first:
            if form in link:
                shown = self._shown[form]
                link = link.replace(form, _marker(shown, _forms(self._latest[shown]), form))
        return link

    def restored(self, link: str) -> str:
        """A link as it is asked, with the secrets of now."""
        if "{" not in link:
            return link
        for shown, value in self._latest.items():
            for number, form in enumerate(_forms(value)):
                link = link.replace(f"{shown}:{number}", form)
        return link

    def _learn(self, value: str, shown: str) -> list[str]:
        """The forms that were not known before."""
        self._latest[shown] = value
        fresh = [form for form in dict.fromkeys(_forms(value)) if form not in self._shown]
        self._shown.update(dict.fromkeys(fresh, shown))
        self._order()
        return fresh

    def _guard(self, value: str, shown: str) -> None:
        if len(value) >= SHORTEST_IN_RECORDS:
            written = json.dumps(shown, ensure_ascii=False)[1:-1].encode()
            self._in_records.update(dict.fromkeys((f.encode() for f in _forms(value)), written))

    def _order(self) -> None:
        self._longest_first = tuple(sorted(self._shown, key=len, reverse=True))


def _marker(shown: str, forms: tuple[str, ...], form: str) -> str:
    """No link holds braces unencoded. What an older value stood in is asked with the newest, as it is."""
    return f"{shown}:{forms.index(form) if form in forms else 0}"
