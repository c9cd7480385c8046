"""Mapping functions in real processes: whatever one does, it costs its record and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apply.functions.outside import Surroundings
from apply.functions.process import FunctionUnavailable
from apply.mapping import numerics
from apply.mapping.compile import compile_mapping
from apply.mapping.types import Mapped, Place
from apply.outcomes import Outcome, Reason
from schemas.definitions.mapping import FunctionSpec, MappingSpec
from schemas.definitions.paths import parse_mapping_path
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Check
from tests.unit.apply.mapped import column, page, spec
from tests.waiting import wait_until

FOLDER = Path(__file__).parent / "functions_folder"
DOES = FunctionSpec("odd_functions", "does", hang_s=1.0, memory_bytes=160 << 20)


@pytest.fixture(scope="module")
def outside() -> Iterator[Surroundings]:
    with closing(Surroundings(FOLDER)) as found:
        yield found


def made(outside: Surroundings, *records: dict[str, Any], of: MappingSpec | None = None) -> Mapped:
    """What becomes of these records."""
    of = of or spec(column("v", "text"), column("tenant", "text"), python=DOES)
    raws = [json.dumps(record) for record in records]
    return compile_mapping(of, 1, outside).map_page(page(*raws), Place(1, 0, 5, "north", None))


def test_a_function_makes_the_rows(outside: Surroundings) -> None:
    found = made(
        outside, {"id": "a", "v": "x"}, {"id": "b", "do": "ignore"}, {"id": "c", "do": "one"},
        {"id": "d", "do": "stop early"},
    )  # fmt: skip
    assert [row[:3] for row in found.rows] == [("a", "x", "north"), ("c", None, "north")]
    ignored = Outcome.IGNORED
    assert list(found.outcomes) == [0, ignored, 0, ignored]
    assert not found.faults


@pytest.mark.parametrize(
    ("deed", "reason", "said"),
    [
        ("raise", Reason.MAPPER_FAILED, "raised ValueError at odd_functions.py:"),
        ("leave", Reason.MAPPER_FAILED, "raised SystemExit"),
        ("exit", Reason.MAPPER_ENDED, "ended its process: exit code 0"),
        ("child", Reason.MAPPER_ENDED, "ended its process: exit code 7"),
        ("segfault", Reason.MAPPER_ENDED, "ended its process: SIGSEGV"),
        ("forge", Reason.MAPPER_ENDED, "wrote where its answers go"),
        ("freeze", Reason.MAPPER_HUNG, "did not return within 1 s"),
        ("wait", Reason.MAPPER_HUNG, "did not return within 1 s"),
        ("hog", Reason.MAPPER_ENDED, "needs more than 160 MiB"),
        ("many", Reason.MAPPER_FAILED, "more than one row"),
        ("nothing", Reason.MAPPER_FAILED, "returned NoneType"),
        ("empty", Reason.MAPPER_FAILED, "returned no row; write `return Ignored()`"),
        ("text", Reason.MAPPER_FAILED, "returned str"),
        ("number", Reason.MAPPER_FAILED, "returned int"),
        ("deep", Reason.MAPPER_FAILED, "nested too deeply"),
        (
            "typo",
            Reason.MAPPER_FAILED,
            "2 members that no column reads; columns read id, tenant, v",
        ),
    ],
)
def test_it_costs_that_record_alone(
    outside: Surroundings, deed: str, reason: Reason, said: str
) -> None:
    found = made(
        outside, {"id": "a"}, {"id": "bad", "do": deed, "v": "anna@example.org"}, {"id": "c"}
    )
    assert [row[0] for row in found.rows] == ["a", "c"]
    (fault,) = found.faults
    assert (fault.index, fault.reason, fault.key) == (1, reason, None)
    assert said in fault.detail, fault.detail
    assert "anna" not in fault.detail
    assert found.unreadable == 1, "nobody knows its key, so it withholds a sweep"


def test_an_ignored_record_of_a_listing_withholds_the_sweep(outside: Surroundings) -> None:
    """It exists, and nobody can tell which row is its own: that row must not go as absent."""
    of = spec(column("v", "text"), column("tenant", "text"), python=DOES)
    of = replace(
        of, where=Predicate(((Line(parse_mapping_path("v"), (Check(Operator.EQUALS, "x"),)),),))
    )
    raws = [json.dumps({"id": "a", "v": "y"}), json.dumps({"id": "b", "do": "ignore"})]
    compiled, place = compile_mapping(of, 1, outside), Place(1, 0, 5, "north", 3)
    listed = compiled.map_page(page(*raws, plan="snapshot"), place)
    assert list(listed.outcomes) == [Outcome.IGNORED] * 2
    assert (listed.other_keys, listed.unreadable) == ([("a",)], 1)
    assert compiled.map_page(page(*raws), place).unreadable == 0


def test_several_poison_records_in_one_page(outside: Surroundings) -> None:
    deeds = [None, "exit", None, None, "segfault", "exit", None]
    found = made(outside, *({"id": f"{n}", "do": deed} for n, deed in enumerate(deeds)))
    assert [row[0] for row in found.rows] == ["0", "2", "3", "6"]
    assert [fault.index for fault in found.faults] == [1, 4, 5]


def test_a_function_that_forks_gives_no_record_the_row_of_another(outside: Surroundings) -> None:
    for _ in range(3):
        found = made(
            outside,
            *({"id": f"{n}", "do": "twice" if n % 3 else None, "v": f"{n}"} for n in range(9)),
        )
        assert [row[:2] for row in found.rows] == [(f"{n}", f"{n}") for n in range(9)]
        assert not found.faults


@pytest.mark.parametrize("then", ["exit", "segfault", "wait", "freeze", "hog", "forge"])
def test_what_left_its_session_ends_with_it(
    outside: Surroundings, tmp_path: Path, then: str
) -> None:
    """However it ends, and also what the record leaves that is tried once more, alone."""
    at = tmp_path / "daemons"
    found = made(outside, {"id": "a", "do": "daemon", "at": str(at), "then": then}, {"id": "b"})
    assert [row[0] for row in found.rows] == ["b"]
    daemons = [int(line) for line in at.read_text().split()]
    assert len(daemons) == 2
    wait_until(lambda: not any(map(runs, daemons)), 10, "the daemons are gone")


def test_what_left_its_session_ends_with_the_worker(tmp_path: Path) -> None:
    """Closed as it should be, and killed by kill -9."""
    at = tmp_path / "daemon"
    with closing(Surroundings(FOLDER)) as fresh:
        made(fresh, {"id": "a", "do": "daemon", "at": str(at)})
        made(fresh, {"id": "b"})
        assert runs(daemon := int(at.read_text()))
    assert not runs(daemon)
    at.unlink()
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(FOLDER), str(at)])
    try:
        wait_until(at.exists, 30, "the daemon runs")
        daemon = int(at.read_text())
        assert runs(daemon)
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not runs(daemon), 10, "the daemon is gone")


WORKER = """
import json, sys, time
from pathlib import Path
from tests.unit.apply.test_functions import Surroundings, made
made(Surroundings(Path(sys.argv[1])), {"id": "a", "do": "daemon", "at": sys.argv[2]})
time.sleep(600)
"""


def runs(pid: int) -> bool:
    """Whether it is there, and no mere entry that nobody has asked about."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_serves_until_it_ends(outside: Surroundings) -> None:
    first, second = made(outside, {"id": "a", "do": "pid"}), made(outside, {"id": "a", "do": "pid"})
    assert first.rows[0][1] == second.rows[0][1] != str(os.getpid())


def test_what_it_prints_reaches_nobody(outside: Surroundings, capfd: Any) -> None:
    found = made(outside, {"id": "a", "do": "print"}, {"id": "b", "do": "input"})
    assert [row[:2] for row in found.rows] == [("a", None), ("b", "")]
    assert capfd.readouterr() == ("", "")


def test_it_sees_no_secret_of_the_worker(
    outside: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAPLESS_POSTGRES", "postgresql://me:secret@db/x")
    with closing(Surroundings(FOLDER)) as fresh:
        assert made(fresh, {"id": "a", "do": "environment"}).rows[0][1] == "none"


@pytest.mark.parametrize(
    ("of", "type_", "stored"),
    [
        ("decimal", "numeric(6,3)", numerics.packer(3)(12_340)),
        ("exact", "numeric", Decimal("0.10000000000000000001")),
        ("big", "numeric", Decimal(2**70)),
        ("float", "double precision", 0.1),
        ("uuid", "uuid", b"\0" * 15 + b"\5"),
        ("moment", "timestamptz", 825_681_600_000_000),
        ("day", "date", 9_556),
        ("inner", "jsonb", b'\x01{"a":[1,null,"x"]}'),
    ],
)
def test_values_keep_what_they_are(
    outside: Surroundings, of: str, type_: str, stored: object
) -> None:
    mapping = spec(column("v", type_), python=DOES)
    raw = f'{{"id":"a","do":"typed","of":"{of}","n":0.10000000000000000001}}'
    found = compile_mapping(mapping, 1, outside).map_page(page(raw), Place(1, 0, 5, None, None))
    assert not found.faults
    assert found.rows[0][1] == stored
    assert type(found.rows[0][1]) is type(stored)


@pytest.mark.parametrize(
    ("of", "type_", "reason"),
    [
        ("naive", "timestamptz", Reason.NAIVE_TIME),
        ("big", "bigint", Reason.OUT_OF_RANGE),
        ("decimal", "text", Reason.WRONG_TYPE),
        ("nan", "double precision", Reason.MAPPER_FAILED),
        ("bytes", "text", Reason.MAPPER_FAILED),
        ("set", "jsonb", Reason.MAPPER_FAILED),
        ("strange", "jsonb", Reason.MAPPER_FAILED),
        ("key", "jsonb", Reason.MAPPER_FAILED),
        ("nul", "text", Reason.NUL),
    ],
)
def test_what_a_column_does_not_take(
    outside: Surroundings, of: str, type_: str, reason: Reason
) -> None:
    mapping = spec(column("v", type_), python=DOES)
    (fault,) = made(outside, {"id": "a", "do": "typed", "of": of}, of=mapping).faults
    assert fault.reason is reason, fault.detail


def test_a_record_that_is_no_json_is_never_given_to_it(outside: Surroundings) -> None:
    compiled = compile_mapping(
        spec(column("v", "text"), column("tenant", "text"), python=DOES), 1, outside
    )
    found = compiled.map_page(page('{"id":"a"', '{"id":"b"}'), Place(1, 0, 5, None, None))
    assert [(fault.index, fault.reason) for fault in found.faults] == [(0, Reason.UNREADABLE)]
    assert [row[0] for row in found.rows] == ["b"]


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("nowhere", "does", "there is no module nowhere"),
        ("odd_functions", "missing", "has no function missing"),
        ("odd_functions", "STARTED", "has no function STARTED"),
    ],
)
def test_a_function_that_is_not_there_is_said_at_the_start(
    outside: Surroundings, module: str, name: str, said: str
) -> None:
    of = spec(python=FunctionSpec(module, name, 1.0, 160 << 20))
    with pytest.raises(FunctionUnavailable, match=said):
        compile_mapping(of, 1, outside)


def test_a_mapping_compiled_without_its_function_maps_nothing() -> None:
    compiled = compile_mapping(spec(python=DOES), 1)
    with pytest.raises(RuntimeError, match="odd_functions:does"):
        compiled.map_page(page('{"id":"a"}'), Place(1, 0, 5, None, None))
