"""What a replay says: how far it is, what it did, what it would change. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field


class ReplayRefused(Exception):
    """A replay would not do what it should; says what to do first."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets done and to do, over all partitions, and what became of records so far.

    `phase`: read, build, catch up or swap. `rate_per_s` in offsets, `left_s` and `lag_s` (of live)
    in seconds, None while unknown; `rest_s`: how long it rests after each batch for live's sake.
    """

    done: int
    total: int
    pages: int
    outcomes: tuple[int, ...]
    phase: str = "read"
    rate_per_s: float | None = None
    left_s: float | None = None
    rest_s: float = 0.0
    lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One row as an example. `record`: PARTITION:OFFSET and index of the observation it is from.

    `before` and `after` are None for NULL, HIDDEN for what is not declared `personal: false`.
    """

    what: str
    record: str
    column: str | None = None
    before: str | None = None
    after: str | None = None


HIDDEN = "(not shown)"


@dataclass(slots=True)
class ChildDiff:
    """Elements of one child table below rows that have a new state."""

    added: int = 0
    changed: int = 0
    removed: int = 0


@dataclass(slots=True)
class Diff:
    """What would change. `removed`: living rows without a successor, by reason: `deleted` (the
    record says so), `ignored`, `quarantined`, `erased`, `superseded`, `other_key` (the record now has
    another one), `without_observation` (the log no longer has what the row is from).

    `children`: by child table. `newly_quarantined`: records by reason that are no open exceptions now (of a dismissed one
    another version asks again); `healed`: by the reason why they
    fail now, of records that would become a row. Both count a record once, however often it was
    seen. `incomparable`: why rows cannot be compared.
    `not_compared`: rows that live has written since the look began, living or deleted.
    """

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    changed_columns: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    children: dict[str, ChildDiff] = field(default_factory=dict)
    newly_quarantined: dict[str, int] = field(default_factory=dict)
    healed: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    incomparable: str | None = None
    not_compared: int = 0


@dataclass(slots=True)
class ReplayReport:
    """What a replay did, or a dry run would do.

    `how`: in_place or shadow (for a dry run: what this change needs). `outcomes`: sightings per
    outcome, in the order of `Outcome`: a record that was read again counts again. `replaced`:
    sightings that older versions had refused and this version now speaks for. `diff`: of dry runs, and
    of shadows before their swap. `carried`: what of the live table was made for the new one too.
    `swapped`: the new table is the live one; `way`: the option that swaps; `back`: it is an older
    version's; `aside`: the version whose table stands beside it. `file`: the mapping's, in the folder
    of definitions. `against`: of dry runs, why nothing takes the definition as it is.
    """

    mapping: str
    version: int
    dry_run: bool
    how: str = "in_place"
    scope: str = "everything"
    resumed: bool = False
    offsets: int = 0
    pages: int = 0
    outcomes: list[int] = field(default_factory=lambda: [0] * 6)
    replaced: int = 0
    diff: Diff | None = None
    carried: list[str] = field(default_factory=list)
    swapped: bool = False
    way: str = "--shadow"
    back: bool = False
    aside: int | None = None
    file: str = ""
    against: str | None = None
    why_shadow: list[str] = field(default_factory=list)
