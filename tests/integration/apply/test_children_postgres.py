"""Child tables on a real server: whatever comes in whatever order, they hold the winner's set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from apply.absence import Absence, sweep
from apply.barrier import Barrier
from apply.batch import Batch, PageWork, Part, Work
from apply.children import ChildForms
from apply.faults import SinkFault, refusal
from apply.mapping.compile import compile_mapping
from apply.mapping.types import CompiledMapping, Place
from apply.outcomes import Outcome, Reason
from apply.rows import Landing, Target
from apply.share import shares
from apply.target_tables import migrate_table
from ops.migrate import migrate
from schemas.definitions import load_folder
from schemas.definitions.mapping import ByPlan, ChildSpec, MappingSpec
from schemas.definitions.paths import parse_mapping_path
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Check
from schemas.records import Observation
from tests.conftest import Lane
from tests.waiting import wait_until

Connection = psycopg.Connection[tuple[Any, ...]]
Lines = dict[int, int]
"""A set of children: quantity by line number."""
EXAMPLES = Path(__file__).parents[2] / "unit" / "definitions"
KEYS = "abcd"
REFUSED = -1
"""A quantity that a constraint of the test's table refuses."""


@pytest.fixture
def connection(lane: Lane) -> Iterator[Connection]:
    """A database with the schema of Gapless, set up as the sink's."""
    migrate(lane.postgres)
    options = "-c enable_hashjoin=off -c enable_mergejoin=off -c TimeZone=UTC"
    with psycopg.connect(lane.postgres, options=options, autocommit=True) as opened:
        yield opened


@pytest.fixture
def orders(tmp_path: Path) -> MappingSpec:
    """`mappings/shop_orders.yaml` as the language's own document has it, with tombstones."""
    for name in ("sources/shop.yaml", "mappings/shop_orders.yaml"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(EXAMPLES / name, tmp_path / name)
    found = load_folder(tmp_path).check().mappings["shop_orders"]
    gone = Line(parse_mapping_path("gone"), (Check(Operator.EQUALS, True),))
    return replace(found, deleted=Predicate(((gone,),)))


def _second(spec: MappingSpec) -> MappingSpec:
    """Version 2, which reads another quantity."""
    (lines,) = spec.children.values()
    quantity = lines.columns["quantity"]
    assert quantity.path is not None and quantity.path.every is not None
    other = replace(quantity.path.every[0], path=parse_mapping_path("doubled"))
    columns = {**lines.columns, "quantity": replace(quantity, path=ByPlan((other,)))}
    return replace(spec, version=2, children={lines.name: replace(lines, columns=columns)})


@dataclass(slots=True)
class State:
    """An order as the promises say that it stands. `order`: offset, index, mapping version."""

    revision: int | None
    order: tuple[int, int, int]
    lines: Lines


@dataclass(slots=True)
class World:
    """The sink under test, and beside it what must stand there, kept by other means.

    `swept`: where the last listing began; what was observed before it no longer counts.
    """

    connection: Connection
    versions: dict[int, CompiledMapping]
    dice: Random
    log: list[list[dict[str, Any]]] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)
    swept: int = 0
    outcomes: list[int] = field(default_factory=lambda: [0] * 7)

    def prepare(self) -> dict[int, Target]:
        made = {number: Target(one) for number, one in self.versions.items()}
        for target in made.values():
            target.prepare(self.connection)
        return made

    def record(self) -> dict[str, Any]:
        """An order with some lines; rarely one with a fault, or that is gone."""
        dice = self.dice
        numbers = dice.sample(range(5), dice.randint(0, 4))
        lines = [
            {"line_no": n, "sku": f"s{n}", "quantity": (q := dice.randint(1, 9)), "doubled": 2 * q}
            for n in numbers
        ]
        chance = dice.random()
        if lines and chance < 0.05:
            lines.append(lines[0])
        elif lines and chance < 0.1:
            lines[0] = {**lines[0], "quantity": REFUSED, "doubled": REFUSED}
        elif lines and chance < 0.15:
            lines[0] = {**lines[0], "quantity": "many", "doubled": "many"}
        found: dict[str, Any] = {"id": dice.choice(KEYS), "updated_at": _stamp(dice.randint(1, 6))}
        if lines or dice.random() < 0.5:
            found["lines"] = lines
        return {**found, "gone": True} if dice.random() < 0.1 else found

    def batch(self, targets: dict[int, Target]) -> None:
        """New pages, or old ones again, perhaps under the other version, in one transaction."""
        chosen: list[int] = []
        for _ in range(self.dice.randint(1, 3)):
            if self.log and self.dice.random() < 0.3:
                chosen.append(self.dice.randrange(len(self.log)))
            else:
                self.log.append([self.record() for _ in range(self.dice.randint(1, 4))])
                chosen.append(len(self.log) - 1)
        number = self.dice.choice([1, 1, 2])
        works = [self._page(offset, self.versions[number]) for offset in sorted(set(chosen))]
        self._land(targets[number], works)
        for work in works:
            for at, outcome in enumerate(work.works[0].outcomes):
                self.outcomes[outcome] += 1
                if outcome in (Outcome.APPLIED, Outcome.SUPERSEDED):
                    self._expect(work.offset, at, number)

    def _page(self, offset: int, compiled: CompiledMapping) -> PageWork:
        observation = page(self.log[offset])
        mapped = compiled.map_page(observation, Place(1, 0, offset, None, None))
        work = Work(compiled.version_id, compiled, mapped)
        if self.dice.random() < 0.5:  # else the sink forms them
            form = ChildForms(compiled).form
            work.child_forms = {index: form(rows) for index, rows in mapped.children.items()}
        return PageWork(offset, 0, 0, 1, observation, [work])

    def _land(self, target: Target, works: list[PageWork]) -> None:
        batch = Batch([Part(0, 0, 0, 0, 0, pages=works)])
        try:
            with self.connection.transaction():
                land(self.connection, target, batch, swept=self.swept)
        except psycopg.Error as error:
            assert refusal(error) is not None, error
            with self.connection.transaction():
                land(self.connection, target, batch, careful=True, swept=self.swept)

    def _expect(self, offset: int, index: int, version: int) -> None:
        """A record that was no fault counts by its revision, then by where it was observed."""
        record = self.log[offset][index]
        revision, order = _revision(record), (offset, index, version)
        old = self.states.get(record["id"])
        newer = old is None or order > old.order
        if old is not None and old.revision not in (None, revision):
            newer = revision > old.revision
        if newer and offset >= self.swept:
            name = "doubled" if version == 2 else "quantity"
            lines = {line["line_no"]: line[name] for line in record.get("lines", [])}
            gone = record.get("gone", False)
            self.states[record["id"]] = State(revision, order, {} if gone else lines)

    def sweep(self) -> None:
        """A listing that began now, and lacked one order."""
        key, barrier = self.dice.choice(KEYS), len(self.log)
        self.log.append([])  # the begin mark
        with self.connection.transaction():
            self.connection.execute("DELETE FROM gapless.present_orders")
            for other in set(KEYS) - {key}:
                self.connection.execute(
                    "INSERT INTO gapless.present_orders VALUES (1, 'now', %s)", (other,)
                )
            self.connection.execute("SET LOCAL enable_hashjoin = on")
            where = Absence(1, 0, barrier, ["now"], 0, datetime(2026, 1, 1, tzinfo=UTC))
            sweep(self.connection, self.versions[1], where)
        self.swept = barrier
        if key in self.states:
            self.states[key] = State(None, (barrier, 0, 0), {})

    def check(self) -> None:
        found: dict[str, Lines] = {}
        for parent, number, quantity in self.connection.execute(
            "SELECT parent_id, line_no, quantity FROM order_lines"
        ):
            found.setdefault(parent, {})[number] = quantity
        wanted = {key: state.lines for key, state in self.states.items() if state.lines}
        assert found == wanted
        strangers = self.connection.execute(
            "SELECT count(*) FROM order_lines c LEFT JOIN orders t ON t.id = c.parent_id"
            " AND (t._generation, t._partition_id, t._offset, t._index, t._mapping_version)"
            " = (c._generation, c._partition_id, c._offset, c._index, c._mapping_version)"
            " AND NOT t._deleted WHERE t.id IS NULL"
        ).fetchone()
        assert strangers == (0,), "every child names the observation that its parent is of"
        gaps = self.connection.execute(
            "SELECT count(*) FROM (SELECT FROM order_lines GROUP BY parent_id"
            " HAVING count(*) <> max(position) + 1) p"
        ).fetchone()
        assert gaps == (0,)


def _stamp(day: int) -> str:
    return f"2026-03-0{day}T10:00:00Z"


def _revision(record: dict[str, Any]) -> int:
    return int(str(record["updated_at"])[9])


def page(records: list[dict[str, Any]]) -> Observation:
    """One observation with these records."""
    return Observation(
        partition_id="shop/orders", plan="interval", scope="x", pass_="p", page=1, reason="r",
        method="GET", url="u", definition_hash="h", status=200, requested_at=1, received_at=1,
        records=[json.dumps(one).encode() for one in records],
    )  # fmt: skip


def land(
    connection: Connection, target: Target, batch: Batch, *, careful: bool = False, swept: int = 0
) -> None:
    """All rows of a batch of one mapping, as the store lands them."""
    found = Barrier(swept={1: (0, swept)})
    for share in shares(batch):
        Landing(connection, target, share, silent=True).land(share.rows(), found, careful=careful)
    for work in batch.pages():
        work.works[0].settle()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_children_are_always_the_winners(
    connection: Connection, orders: MappingSpec, seed: int
) -> None:
    versions = {1: compile_mapping(orders, 1), 2: compile_mapping(_second(orders), 2)}
    for compiled in versions.values():
        migrate_table(connection, compiled.spec)
    connection.execute("ALTER TABLE order_lines ADD CHECK (quantity >= 0)")
    connection.execute("ALTER TABLE order_lines ADD UNIQUE (parent_id, position) DEFERRABLE")
    world = World(connection, versions, Random(seed))
    targets = world.prepare()
    for _ in range(80):
        world.batch(targets)
        if world.dice.random() < 0.1:
            world.sweep()
        world.check()
    applied, superseded, refused = (
        world.outcomes[one] for one in (Outcome.APPLIED, Outcome.SUPERSEDED, Outcome.QUARANTINED)
    )
    assert min(applied, superseded, refused) > 20, world.outcomes


def _landed(
    connection: Connection, spec: MappingSpec, *records: dict[str, Any], careful: bool = False
) -> Work:
    compiled = compile_mapping(spec, 1)
    migrate_table(connection, spec)
    target = Target(compiled)
    observation = page(list(records))
    work = Work(1, compiled, compiled.map_page(observation, Place(1, 0, 5, None, None)))
    batch = Batch([Part(0, 0, 0, 0, 0, pages=[PageWork(5, 0, 0, 1, observation, [work])])])
    connection.execute("DISCARD TEMP")
    target.prepare(connection)
    with connection.transaction():
        land(connection, target, batch, careful=careful)
    return work


def _order(key: str, *lines: dict[str, Any]) -> dict[str, Any]:
    return {"id": key, "updated_at": _stamp(1), "lines": list(lines)}


def test_what_the_database_refuses_of_a_child_refuses_its_record_alone(
    connection: Connection, orders: MappingSpec
) -> None:
    migrate_table(connection, orders)
    connection.execute("ALTER TABLE order_lines ADD CHECK (quantity < 100)")
    good, bad = {"line_no": 1, "quantity": 1}, {"line_no": 2, "quantity": 100}
    work = _landed(
        connection,
        orders,
        _order("a", good),
        _order("b", good, bad),
        _order("c", good),
        careful=True,
    )
    assert list(work.outcomes) == [Outcome.APPLIED, Outcome.QUARANTINED, Outcome.APPLIED]
    assert [fault.reason for fault in work.faults] == [Reason.CHECK]
    for table, column in (("orders", "id"), ("order_lines", "parent_id")):
        found = connection.execute(f"SELECT {column} FROM {table} ORDER BY 1".encode())
        assert found.fetchall() == [("a",), ("c",)]


def test_a_column_that_nobody_fills_stops_the_sink_and_no_record(
    connection: Connection, orders: MappingSpec
) -> None:
    migrate_table(connection, orders)
    connection.execute("ALTER TABLE order_lines ADD COLUMN checked_by text DEFAULT 'nobody'")
    connection.execute("ALTER TABLE orders ADD COLUMN note text")
    line = {"line_no": 1, "quantity": 1}
    assert not _landed(connection, orders, _order("a", line)).faults
    for table in ("orders", "order_lines"):
        connection.execute(
            f"ALTER TABLE {table} ADD COLUMN owner text NOT NULL DEFAULT ''".encode()
        )
        connection.execute(f"ALTER TABLE {table} ALTER COLUMN owner DROP DEFAULT".encode())
        with pytest.raises(SinkFault) as caught:
            _landed(connection, orders, _order("b", line), careful=True)
        assert caught.value.reason == "column_not_filled"
        assert f"column owner of {table} is NOT NULL" in caught.value.detail
        connection.execute(f"ALTER TABLE {table} ALTER COLUMN owner DROP NOT NULL".encode())
    connection.execute("TRUNCATE orders, order_lines")
    connection.execute("ALTER TABLE orders ALTER COLUMN status SET NOT NULL")
    work = _landed(connection, orders, _order("b", line), careful=True)
    assert [fault.reason for fault in work.faults] == [Reason.CHECK], (
        "a mapped column: the record's"
    )
    connection.execute("ALTER TABLE order_lines ALTER COLUMN sku TYPE varchar(3)")
    with pytest.raises(
        SinkFault, match=r"sku of order_lines is character varying\(3\) and not text"
    ):
        Target(compile_mapping(orders, 9)).prepare(connection)


def test_a_list_without_a_key_of_its_own_is_keyed_by_position(
    connection: Connection, orders: MappingSpec
) -> None:
    (lines,) = orders.children.values()
    columns = {name: replace(one, required=False) for name, one in lines.columns.items()}
    by_place = ChildSpec("order_lines", "places", lines.path, ("position",), columns)
    spec = replace(orders, children={"order_lines": by_place})
    same = {"line_no": 1, "quantity": 1}
    assert not _landed(connection, spec, _order("a", same, same)).faults
    found = connection.execute("SELECT parent_id, position, line_no FROM places ORDER BY 2")
    assert found.fetchall() == [("a", 0, 1), ("a", 1, 1)]


def test_renumbered_lines_may_keep_what_must_be_unique(
    connection: Connection, orders: MappingSpec
) -> None:
    migrate_table(connection, orders)
    connection.execute("ALTER TABLE order_lines ADD UNIQUE (parent_id, sku)")
    _landed(connection, orders, _order("a", {"line_no": 1, "sku": "x"}))
    later = {**_order("a", {"line_no": 2, "sku": "x"}), "updated_at": _stamp(2)}
    assert not _landed(connection, orders, later).faults
    assert connection.execute("SELECT line_no FROM order_lines").fetchall() == [(2,)]


def test_a_sweep_takes_children_that_were_written_while_it_waited(
    connection: Connection, lane: Lane, orders: MappingSpec
) -> None:
    """A replay holds the row that a sweep is about to clear."""
    line = {"line_no": 1, "quantity": 1, "doubled": 2}
    _landed(connection, orders, _order("a", line))
    connection.execute("UPDATE order_lines SET line_no = 7")  # what the replay adds is new
    compiled = compile_mapping(_second(orders), 2)
    target = Target(compiled)
    target.prepare(connection)
    observation = page([_order("a", line)])
    work = Work(2, compiled, compiled.map_page(observation, Place(1, 0, 5, None, None)))
    batch = Batch([Part(0, 0, 0, 0, 0, pages=[PageWork(5, 0, 0, 1, observation, [work])])])
    with psycopg.connect(lane.postgres, autocommit=True) as other, ThreadPoolExecutor(1) as pool:

        def swept() -> None:
            where = Absence(1, 0, 9, ["now"], 0, datetime(2026, 1, 1, tzinfo=UTC))
            with other.transaction():
                sweep(other, compile_mapping(orders, 1), where)

        with connection.transaction():
            land(connection, target, batch)
            sweeping = pool.submit(swept)
            wait_until(
                lambda: _waits(connection, other.info.backend_pid),
                30,
                "the sweep waits for the row",
            )
        sweeping.result(30)
    assert connection.execute("SELECT _deleted FROM orders").fetchall() == [(True,)]
    assert connection.execute("SELECT * FROM order_lines").fetchall() == []


def _waits(connection: Connection, pid: int) -> bool:
    found = connection.execute("SELECT FROM pg_locks WHERE pid = %s AND NOT granted", (pid,))
    return found.fetchone() is not None
