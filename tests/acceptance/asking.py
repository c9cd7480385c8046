"""One HTTP request as writers and judges send it, without product code."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TIMEOUT_S = 20.0
_NEXT_LINK = re.compile(r'<([^<>]+)>; rel="next"')


@dataclass(frozen=True, slots=True)
class Answer:
    """A 2xx answer; header names are in lower case, `body` is None where there was none."""

    headers: Mapping[str, str]
    body: Any


class Refused(AssertionError):
    """An answer with another status, with what it said."""


def ask(
    method: str, url: str, headers: Mapping[str, str], body: Mapping[str, Any] | None = None
) -> Answer:
    """Sends JSON, reads JSON. Raises Refused for a status that is not 2xx."""
    data = None if body is None else json.dumps(body).encode()
    full = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, data, full, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            text = answer.read()
            names = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(names, json.loads(text) if text else None)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode("utf-8", "replace")
            raise Refused(f"{method} {url}: {error.code} {said}") from None


def next_link(answer: Answer) -> str | None:
    """The link to the next page in a Link header."""
    found = _NEXT_LINK.search(answer.headers.get("link", ""))
    return found[1] if found else None
