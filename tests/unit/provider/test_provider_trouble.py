"""What tests do to the provider: faults, holds, the clock, authentication; and what the log says of it."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import subprocess
import sys
import time
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import pytest

from tests.unit.provider.tenant import Tenant
from tests.upstream import Provider, ProviderError


def _connection(tenant: Tenant) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(str(urlsplit(tenant.provider.url).netloc), timeout=10)


def test_a_rule_hits_the_nth_matching_request_only(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=3)
    headers = {"Retry-After": "7"}
    rule = {
        "path": "/accounts\\?limit",
        "nth": 2,
        "kind": "status",
        "status": 429,
        "headers": headers,
    }
    tenant.provider.faults(rule)
    assert tenant.get("/all").status == 200
    answers = [tenant.get(limit=1) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 429, 200]
    assert answers[1].headers["retry-after"] == "7"
    assert tenant.provider.fault_counts()[0] == {
        "path": "/accounts\\?limit", "kind": "status", "matched": 3, "fired": 1,
    }  # fmt: skip


def test_rules_fire_by_every_times_and_chance(tenant: Tenant) -> None:
    broken = {"path": "", "kind": "status", "status": 503}
    tenant.provider.faults({**broken, "every": 3})
    assert [tenant.get().status for _ in range(6)] == [200, 200, 503] * 2
    tenant.provider.faults({**broken, "times": 2})
    assert [tenant.get().status for _ in range(4)] == [503, 503, 200, 200]
    tenant.provider.faults({**broken, "probability": 0.5})
    statuses = [tenant.get().status for _ in range(40)]
    assert {200, 503} == set(statuses)
    tenant.provider.faults()
    assert tenant.get().status == 200


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "fish"},
        {"kind": "status", "color": 1},
        {"kind": "status", "every": 0},
        {"kind": "cut", "path": "("},
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(tenant: Tenant, rule: dict[str, object]) -> None:
    with pytest.raises(ProviderError, match="400"):
        tenant.provider.faults(rule)


@pytest.mark.parametrize("chunked", [True, False])
def test_a_cut_body_ends_early_under_200(tenant: Tenant, chunked: bool) -> None:
    tenant.provider.seed(tenant.name, count=20)
    whole = tenant.get().body
    tenant.provider.faults({"path": "", "kind": "cut", "keep": 0.4, "chunked": chunked})
    connection = _connection(tenant)
    connection.request("GET", tenant.path())
    answer = connection.getresponse()
    assert answer.status == 200
    with pytest.raises(http.client.IncompleteRead) as error:
        answer.read()
    assert error.value.partial == whole[: int(len(whole) * 0.4)]
    connection.close()


@pytest.mark.parametrize("kind", ["close", "reset"])
def test_a_connection_can_end_without_an_answer(tenant: Tenant, kind: str) -> None:
    tenant.provider.faults({"path": "", "kind": kind})
    connection = _connection(tenant)
    connection.request("GET", tenant.path())
    with pytest.raises(ConnectionError):
        connection.getresponse()
    connection.close()
    assert tenant.provider.requests(tenant.path())[-1]["status"] == 0


def test_wrong_content_and_a_bomb_come_under_200(tenant: Tenant) -> None:
    tenant.provider.faults({"path": "", "kind": "html"})
    page = tenant.get()
    assert (page.status, page.headers["content-type"]) == (200, "text/html")
    tenant.provider.faults({"path": "", "kind": "gzip_bomb", "bomb_bytes": 20_000_000})
    bomb = tenant.get()
    assert bomb.headers["content-encoding"] == "gzip"
    assert len(bomb.body) < 100_000
    assert len(gzip.decompress(bomb.body)) > 20_000_000


def test_a_rule_can_delay_or_add_headers(tenant: Tenant) -> None:
    tenant.provider.faults({"path": "", "kind": "delay", "delay_s": 0.3})
    began = time.monotonic()
    assert tenant.get().json() == {"items": [], "total": 0}
    assert time.monotonic() - began >= 0.3
    tenant.provider.faults(
        {"path": "", "kind": "headers", "headers": {"X-RateLimit-Remaining": "0"}}
    )
    answer = tenant.get()
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert answer.json() == {"items": [], "total": 0}


def test_a_request_is_held_until_it_is_released(tenant: Tenant) -> None:
    hold = tenant.provider.hold(tenant.path() + "\\?limit", nth=2)
    assert tenant.get(limit=1).status == 200
    connection = _connection(tenant)
    connection.request("GET", tenant.path() + "?limit=2")
    assert tenant.provider.wait_held(hold) == [tenant.path() + "?limit=2"]
    assert tenant.get(limit=3).status == 200
    # It was read but not answered: what changes now is in its answer.
    tenant.put(id="a")
    assert tenant.provider.release(hold) == 1
    assert json.loads(connection.getresponse().read())["total"] == 1
    connection.close()
    assert tenant.get(limit=1).status == 200


def test_a_hold_in_the_body_has_sent_half_of_it(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=50)
    whole = tenant.get().body
    hold = tenant.provider.hold(tenant.path(), stage="body")
    connection = _connection(tenant)
    connection.request("GET", tenant.path())
    answer = connection.getresponse()
    tenant.provider.wait_held(hold)
    half = answer.read(len(whole) // 2)
    connection.sock.settimeout(0.2)
    with pytest.raises(socket.timeout):
        connection.sock.recv(1)
    connection.sock.settimeout(10)
    tenant.provider.release()
    assert half + answer.read() == whole
    connection.close()


def test_a_held_caller_that_dies_is_forgotten(tenant: Tenant) -> None:
    hold = tenant.provider.hold(tenant.path(), count=0)
    code = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])"
    url = tenant.provider.url + tenant.path()
    with subprocess.Popen([sys.executable, "-c", code, url], stderr=subprocess.DEVNULL) as worker:
        tenant.provider.wait_held(hold)
        worker.kill()
    deadline = time.monotonic() + 10
    while not (ended := tenant.provider.requests(tenant.path())):
        assert time.monotonic() < deadline
    assert ended[-1]["status"] == 0
    assert tenant.provider.release(hold) == 0
    with pytest.raises(ProviderError, match="no request was held"):
        tenant.provider.wait_held(timeout_s=0)


def test_the_clock_jumps_for_stamps_and_dates(tenant: Tenant) -> None:
    before = tenant.put(id="a")["updated_at"]
    date_before = parsedate_to_datetime(tenant.get().headers["date"])
    tenant.provider.clock(jump_s=36 * 3_600)
    after = tenant.put(id="a")["updated_at"]
    date_after = parsedate_to_datetime(tenant.get().headers["date"])
    assert 36 * 3_600 <= (date_after - date_before).total_seconds() < 36 * 3_600 + 60
    assert before < after
    assert after[:10] == date_after.strftime("%Y-%m-%d")
    tenant.provider.clock(jump_s=-36 * 3_600)
    assert tenant.put(id="a")["updated_at"] < after


def test_the_clock_runs_at_a_speed_and_stops(tenant: Tenant) -> None:
    assert (
        tenant.provider.clock(set="2027-01-01T00:00:00Z", speed=0) == "2027-01-01T00:00:00.000000Z"
    )
    assert tenant.put(id="a")["updated_at"] == "2027-01-01T00:00:00.000000Z"
    assert tenant.get().headers["date"] == "Fri, 01 Jan 2027 00:00:00 GMT"
    tenant.provider.clock(speed=100_000)
    assert tenant.provider.clock(speed=1) > "2027-01-01T00:00:10Z"


def test_a_bearer_token_may_be_required(tenant: Tenant) -> None:
    tenant.provider.settings(auth_token="s3cret")
    assert tenant.get().status == 401
    assert tenant.provider.get(tenant.path(), {"Authorization": "Bearer wrong"}).status == 401
    assert tenant.provider.get(tenant.path(), {"Authorization": "Bearer s3cret"}).status == 200
    log = tenant.provider.requests(tenant.path())
    assert [(each["authorized"], each["status"]) for each in log] == [
        (False, 401), (True, 401), (True, 200),
    ]  # fmt: skip
    assert "s3cret" not in json.dumps(log)


def test_answers_may_be_compressed(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=50)
    plain = tenant.get().body
    tenant.provider.settings(compress=True)
    packed = tenant.provider.get(tenant.path(), {"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain


def test_the_log_says_what_was_asked_and_given(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=5)
    tenant.get(limit=3)
    tenant.provider.post(tenant.path("events", "/search"), {"limit": 1})
    first, second = tenant.provider.requests(f"^/t/{tenant.name}/")
    assert (first["target"], first["status"], first["count"]) == (
        tenant.path() + "?limit=3",
        200,
        3,
    )
    assert (first["first_id"], first["last_id"]) == ("acc-000001", "acc-000003")
    assert (second["method"], second["body"], second["count"]) == ("POST", '{"limit": 1}', 0)
    assert tenant.provider.requests(f"^/t/{tenant.name}/", after=first["number"]) == [second]


def test_what_does_not_exist_is_said_so(tenant: Tenant) -> None:
    assert tenant.provider.get("/t/nobody/accounts").json()["code"] == "not_found"
    assert tenant.get(collection="fish").status == 404
    with pytest.raises(ProviderError, match="no setting 'page_size'"):
        tenant.provider.settings(page_size=3)
    with pytest.raises(ProviderError, match="bounds is one of"):
        tenant.provider.settings(bounds="[[")
    with pytest.raises(ProviderError, match="404"):
        tenant.delete("acc-999999")


def test_the_process_ends_with_the_test_that_started_it() -> None:
    code = "from tests.upstream import Provider; import time; print(Provider.start().url, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as test:
        assert test.stdout is not None
        address = urlsplit(test.stdout.readline().decode().strip())
        assert address.port is not None
        test.kill()
    deadline = time.monotonic() + 10
    while _listens(address.port):
        assert time.monotonic() < deadline, "the provider still answers"
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_provider_that_cannot_start_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProviderError, match="ended with 2"):
        Provider.start(settings={"bounds": "no"})
    assert "bounds is one of" in capfd.readouterr().err
