"""Random mappings with every feature, from a seed."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

from schemas.definitions.column_types import NUMBERS, TEXTS, TIMES, ColumnType, parse_type
from schemas.definitions.mapping import (
    POSITION,
    Alternative,
    ByPlan,
    ChildSpec,
    ColumnSpec,
    MappingSpec,
    Personal,
    RevisionKind,
    RevisionSpec,
    Unknown,
)
from schemas.definitions.paths import parse_entity_path, parse_mapping_path
from schemas.definitions.predicates import Line, Operator, Predicate, Scalar
from schemas.definitions.predicates import Test as Check
from schemas.definitions.times import parse_format

PATHS = ("a", "b", "c", "a.b", "a.c", "d[0]", "d[-1].c", '["x y"]', "$.id", "id", "e.a[1]")
TYPES = (
    "text", "text", "varchar(4)", "char(3)", "smallint", "integer", "bigint", "numeric",
    "numeric(6,2)", "real", "double precision", "boolean", "timestamptz", "date", "uuid", "jsonb",
    "text[]", "integer[]", "timestamptz[]", "uuid[]",
)  # fmt: skip
TIMED = (parse_type("timestamptz"), parse_type("timestamptz[]"))
CHILD_PATHS = ("lines[*]", "lines[*]", "$.f.lines[*]", "f.lines[*]", "more[*].inner")
KEY_TYPES = ("text", "char(3)", "bigint", "numeric(6,2)", "uuid", "date", "timestamptz", "boolean")
FORMATS = ("unix_s", "unix_ms", "%Y-%m-%d %H:%M:%S")


def spec(dice: Random) -> MappingSpec:
    """A mapping with one or two keys and up to five other columns."""
    keys = ["k1", "k2"][: dice.randint(1, 2)]
    found = {name: column(dice, name, key=True) for name in keys}
    for number in range(dice.randint(0, 5)):
        found[f"v{number}"] = column(dice, f"v{number}", key=False)
    entity = parse_entity_path(dice.choice(["$", "$", "$", "$", "e", "d[0]"]))
    return MappingSpec(
        name="m", version=1, source="s", stream="t", table="rows", key=tuple(keys),
        revision=_revision(dice), columns=found,
        entity=ByPlan(entity) if dice.random() < 0.9 else ByPlan(named={"interval": entity}),
        where=predicate(dice) if dice.random() < 0.2 else None,
        deleted=predicate(dice) if dice.random() < 0.2 else None,
        children=_children(aside(dice)),
    )  # fmt: skip


def aside(dice: Random) -> Random:
    """Dice of its own, so that what these seeds were chosen to reach is still reached."""
    return Random(hash(dice.getstate()[1]))


def _children(dice: Random) -> dict[str, ChildSpec]:
    """Up to two child tables, each with a key of its own or by position."""
    names = [f"child{number}" for number in range(dice.choice([0, 0, 1, 1, 2]))]
    return {name: _child(dice, name) for name in names}


def _child(dice: Random, name: str) -> ChildSpec:
    path = parse_mapping_path(dice.choice(CHILD_PATHS), each=True)
    keys = ["n1", "n2"][: dice.randint(0, 2)]
    columns = {one: _of_child(dice, one, key=True) for one in keys}
    for number in range(0 if keys and dice.random() < 0.2 else dice.randint(1, 2)):
        columns[f"w{number}"] = _of_child(dice, f"w{number}", key=False)
    paths = ByPlan(path) if dice.random() < 0.9 else ByPlan(named={"interval": path})
    return ChildSpec(name, f"rows_{name}", paths, tuple(keys) or (POSITION,), columns)


def _of_child(dice: Random, name: str, *, key: bool) -> ColumnSpec:
    """Mostly a plain column, since one fault of a child is one of its record."""
    if dice.random() < 0.3:
        return column(dice, name, key=key)
    of = parse_type(dice.choice(KEY_TYPES[:4] if key else TYPES))
    own = Alternative(parse_mapping_path(name))
    return ColumnSpec(name, of, ByPlan((own,)), required=key, zone="UTC" if of in TIMED else None)


def _revision(dice: Random) -> RevisionSpec:
    if dice.random() < 0.4:
        return RevisionSpec(RevisionKind.NONE)
    of = parse_type(dice.choice(["bigint", "text", "timestamptz", "numeric", "date"]))
    paths = {
        "interval": parse_mapping_path(dice.choice(["rev", "rev", *PATHS[:3]])),
        "snapshot": parse_mapping_path("observation.as_of"),
    }
    kind = dice.choice([RevisionKind.EXACT, RevisionKind.COARSE])
    pattern = "^([0-9]+)" if dice.random() < 0.2 else None
    return RevisionSpec(kind, ByPlan(named=paths), of, pattern=pattern)


def column(dice: Random, name: str, *, key: bool) -> ColumnSpec:
    """One column with any of what a column can say."""
    of = parse_type(dice.choice(KEY_TYPES if key else TYPES))
    some = tuple(
        _alternative(dice, of, name) for _ in range(1 if key else dice.choice([1, 1, 1, 2, 3]))
    )
    personal = dice.choice(list(Personal))
    plain_text = of == ColumnType("text")
    if (personal is Personal.HASH and not plain_text) or (key and personal is Personal.DROP):
        personal = Personal.KEEP
    timed = of.name in TIMES
    constant = not key and dice.random() < 0.1 and plain_text
    return ColumnSpec(
        name=name,
        type=of,
        path=None
        if constant
        else ByPlan(some)
        if dice.random() < 0.8
        else ByPlan(named={"interval": some}),
        const="constant" if constant else None,
        required=dice.random() < 0.2,
        from_=parse_format(dice.choice(FORMATS)) if timed and dice.random() < 0.3 else None,
        zone="Europe/Berlin" if timed and dice.random() < 0.4 else None,
        personal=personal,
        **({} if key or constant else _conditions(dice, of)),
    )


def _alternative(dice: Random, of: ColumnType, own: str) -> Alternative:
    if of.array and dice.random() < 0.3:
        return Alternative(parse_mapping_path("d[*].c", each=True))
    if dice.random() < 0.1:
        return Alternative(
            parse_mapping_path(f"observation.{dice.choice(['tenant', 'run', 'fetched_at'])}")
        )
    pattern = dice.choice(["^([0-9]+)-?", "(a)|b"]) if dice.random() < 0.1 else None
    path = own if dice.random() < 0.7 else dice.choice(PATHS)
    # of texts only, since before anything else it would mostly be a fault
    other = aside(dice)
    prefixed = of == ColumnType("text") and other.random() < 0.2
    prefix = other.choice(["1", "n-"]) if prefixed else None
    return Alternative(parse_mapping_path(path), pattern, prefix)


def _conditions(dice: Random, of: ColumnType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    text = of.name in TEXTS
    if text and dice.random() < 0.3:
        found["values"] = dice.choice(
            [{"open": "abc", "ab": "p"}, {"abc": "o", 5: "x", True: "t"}, {"abc": "abc"}]
        )
    if of.name in ("smallint", "integer") and dice.random() < 0.3:
        found["values"] = {"open": 1, "paid": 2, 5: 5, Decimal("1.0"): 7}
    if "values" in found:
        found["unknown"] = dice.choice(list(Unknown))
        used = "u" if text else 3
        found["unknown_value"] = used if found["unknown"] is Unknown.USE else None
    if of.array or text:
        found["min"] = dice.choice([None, None, None, 0, 2])
        found["max"] = dice.choice([None, None, None, 1, 5])
    elif of.name in NUMBERS:
        found["min"] = dice.choice([None, None, 0, Decimal("-0.5"), -(10**20)])
        found["max"] = dice.choice([None, None, None, 0, 5, Decimal("1.5"), 10**20])
    elif of.name in TIMES:
        found["min"] = dice.choice([None, None, "2024-03-01"])
    if not of.array and dice.random() < 0.2:
        if of.name == "text":
            found["default"] = "d"
        if of.name in ("integer", "numeric"):
            found["default"] = 0
    return found


def predicate(dice: Random) -> Predicate:
    """A predicate; every operator is possible."""
    return Predicate(
        tuple(
            tuple(_line(dice) for _ in range(dice.choice([1, 1, 2])))
            for _ in range(dice.choice([1, 1, 2]))
        )
    )


def _line(dice: Random) -> Line:
    path = parse_mapping_path(dice.choice([*PATHS, "observation.plan", "observation.run"]))
    return Line(path, tuple(_test(dice, 2) for _ in range(dice.choice([1, 1, 2]))))


def _test(dice: Random, depth: int) -> Check:
    operator = dice.choice([one for one in Operator if depth or one is not Operator.NOT])
    scalars: tuple[Scalar, ...] = ("open", "5", 5, 0.3, 1, True, None, "", "interval")
    if operator is Operator.NOT:
        return Check(operator, tuple(_test(dice, depth - 1) for _ in range(dice.randint(1, 2))))
    if operator is Operator.ONE_OF:
        return Check(operator, tuple(dice.sample(scalars, dice.randint(0, 3))))
    if operator is Operator.EXISTS:
        return Check(operator, dice.random() < 0.5)
    if operator is Operator.MATCHES:
        return Check(operator, dice.choice(["op", "^$", "^[0-9]"]))
    if operator is Operator.EQUALS:
        return Check(operator, dice.choice(scalars))
    return Check(operator, dice.choice(scalars[:4]))
