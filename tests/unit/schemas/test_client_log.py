"""librdkafka's own lines: one of each kind per minute, through structlog, with their level."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from confluent_kafka import Consumer
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from schemas.log import config
from schemas.log.client_log import CLIENT_LOG, ClientLog
from schemas.log.seldom import Seldom
from schemas.settings import Settings

REFUSED = "[thrd:10.0.0.1:9092/1]: 10.0.0.1:9092/1: Connect failed: refused (after {}ms)"


Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as found:
        yield found
    structlog.reset_defaults()


def say(log: ClientLog, said: str, level: int = 40, client: str = "a#consumer-1") -> None:
    log.log(level, "%s [%s] %s", "FAIL", client, said)


def test_a_line_keeps_its_level_and_says_who_and_what(lines: Lines) -> None:
    say(ClientLog(), REFUSED.format(3), level=30)
    assert lines == [
        {
            "event": "kafka client", "log_level": "warning", "kind": "FAIL",
            "client": "a#consumer-1", "said": "10.0.0.1:9092/1: Connect failed: refused (after 3ms)",
        }
    ]  # fmt: skip


def test_what_many_clients_repeat_is_said_once(lines: Lines) -> None:
    log = ClientLog()
    for number in range(100):
        say(log, REFUSED.format(number), client=f"a#producer-{number}")
    say(log, REFUSED.replace("10.0.0.1", "10.0.0.2").format(1))
    assert len(lines) == 2, "another broker is another trouble"


def test_what_was_held_back_is_counted(lines: Lines) -> None:
    log = ClientLog(every_s=0.0)
    log._seldom = Seldom(60.0)
    log._seldom.told("FAIL b: gone", -100.0)
    log._seldom.told("FAIL b: gone", -50.0)
    say(log, "b: gone")
    assert lines[-1]["held_back"] == 1


def test_before_logging_is_set_up_nothing_reaches_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structlog.reset_defaults()
    say(ClientLog(), REFUSED.format(3))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "Kafka client: 10.0.0.1:9092/1: Connect failed: refused (after 3ms)\n"


def test_a_line_of_another_shape_is_taken_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    ClientLog().log(20, "just %s", "this")
    assert capsys.readouterr().err == "Kafka client: just this\n"


def test_every_client_has_it() -> None:
    settings = Settings()
    for made in (
        config.client(settings, "x"), config.reader(settings, "x"),
        config.member(settings, "g", "x"), config.transactional(settings, 0),
    ):  # fmt: skip
        assert made["logger"] is CLIENT_LOG
    assert config.admin(settings, "x")["log_level"] == 2, "it is never polled"
    assert config.transactional(settings, 0)["log_level"] == 2, "nor is this one while idle"


def test_a_real_client_hands_its_lines_over(capfd: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    said: list[tuple[object, ...]] = []

    class Kept(ClientLog):
        def log(self, level: int, form: str, *parts: object) -> None:
            said.append((level, *parts))

    properties = {**config.reader(Settings(kafka="127.0.0.1:9"), "x"), "logger": Kept()}
    consumer = Consumer(properties)
    for _ in range(100):
        consumer.consume(1, 0.1)
        if said:
            break
    consumer.close()
    level, facility, client, text = said[0]
    assert (level, facility) == (40, "FAIL")
    assert str(client).startswith("gapless.x.")
    assert "Connection refused" in str(text)
    assert capfd.readouterr().err == "", "nothing is written beside it"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 40)), max_size=60))
def test_no_kind_is_said_twice_within_its_time_and_none_is_lost(
    events: list[tuple[str, float]],
) -> None:
    seldom, now_s = Seldom(60.0), 0.0
    said_at: dict[str, float] = {}
    held: dict[str, int] = {}
    for kind, later_s in events:
        now_s += later_s
        told = seldom.told(kind, now_s)
        due = kind not in said_at or now_s - said_at[kind] >= 60.0
        assert (told is not None) == due
        if told is None:
            held[kind] = held.get(kind, 0) + 1
        else:
            assert told == held.pop(kind, 0)
            said_at[kind] = now_s


@given(st.lists(st.integers(0, 50), max_size=100))
def test_memory_is_bounded(kinds: list[int]) -> None:
    seldom = Seldom(60.0, most=5)
    for kind in kinds:
        seldom.told(str(kind), 0.0)
    assert len(seldom._kinds) <= 5
