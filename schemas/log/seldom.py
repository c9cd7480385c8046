"""Says which of many equal lines is worth saying: the first, then one per stretch of time. Pure.

What is held back is counted and told with the next line, so that nothing is hidden. Memory is
bounded: beyond `most` kinds the one that was said longest ago is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Kind:
    said_at_s: float
    held_back: int = 0


@dataclass(slots=True)
class Seldom:
    """One line per kind and `every_s` seconds."""

    every_s: float = 60.0
    most: int = 200
    _kinds: dict[str, _Kind] = field(default_factory=dict)

    def told(self, kind: str, now_s: float) -> int | None:
        """How many of this kind were held back since the last line; None: hold this one back.

        `now_s`: a monotonic clock, in seconds.
        """
        known = self._kinds.get(kind)
        if known is not None and now_s - known.said_at_s < self.every_s:
            known.held_back += 1
            return None
        if known is not None:
            del self._kinds[kind]  # it moves behind all others
        elif len(self._kinds) >= self.most:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = _Kind(now_s)
        return 0 if known is None else known.held_back
