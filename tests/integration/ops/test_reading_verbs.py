"""coverage, explain and quarantine on real servers; personal data is shown only when asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.records import MissingRecord
from tests.integration.ops.verbs import read, run
from tests.integration.ops.written import DAYS, OWNER, Deployment, page


def test_coverage(deployment: Deployment) -> None:
    (found,) = read(deployment.environment, "coverage", "shop/*")
    assert (found["partition_id"], found["plan"], found["whole"]) == (OWNER, "interval", True)
    assert [(s["state"], s["records"], s["errors"]) for s in found["stretches"]] == [
        ("complete_with_errors", 4, 1), ("complete", 2, 0),
    ]  # fmt: skip
    assert read(deployment.environment, "coverage", "shop_orders") == []
    assert "no holes" in run(deployment.environment, "coverage", "--holes").stdout
    with deployment.database() as db:
        db.execute("DELETE FROM gapless.coverage WHERE start_at = '2024-01-01'")
        db.execute(
            "INSERT INTO gapless.coverage (partition_id, plan, start_at, end_at, state, pages,"
            " records, completed_at) VALUES (1, 'interval', '2023-12-01', '2023-12-05', 'complete',"
            " 1, 1, now())"
        )
    text = run(deployment.environment, "coverage", "--holes").stdout
    assert "2023-12-05 .. 2024-01-02" in text
    assert "not searched" in text


def test_explain_finds_superseded_records_too(deployment: Deployment) -> None:
    found = read(deployment.environment, "explain", "orders", "o-1")
    at = deployment.offsets
    assert [
        (o["offset"], o["index"], o["outcome"], o["revision"], o["wrote_row"])
        for o in found["observations"]
    ] == [(at[0], 0, "superseded", "1", False), (at[1], 1, "applied", "2", True)]
    first = found["observations"][0]
    assert (first["pass"], first["page"], first["scope"]) == ("a", 1, f"{DAYS[0]}~{DAYS[1]}")
    assert first["fetched_at"].startswith("2024-01-07T00:00:00.05")
    assert found["row"]["status"] == "open"
    assert found["row"]["email"] == (  # nobody has to have said that it is personal
        "(not shown: not declared `personal: false`; --raw shows it)"
    )
    assert found["children"] == {"order_lines": 2}
    assert "mail.example" not in str(found)
    shown = read(deployment.environment, "explain", "orders", "id=o-1", "--raw")
    assert "o-1@mail.example" in shown["observations"][0]["raw"]
    assert "mail.example" in shown["row"]["email"]


def test_explain_shows_values_as_they_are(deployment: Deployment) -> None:
    """NULL, lists and JSON with exact numbers, for people and for programs."""
    file = deployment.settings.definitions / "mappings/orders.yaml"
    more = "columns:\n  tags: {type: 'text[]', personal: false}\n  extra: {type: jsonb, personal: false}"
    file.write_text(file.read_text().replace("columns:", more, 1))
    with deployment.database() as db:
        db.execute("ALTER TABLE orders ADD tags text[], ADD extra jsonb")
        db.execute("""UPDATE orders SET status = NULL, tags = '{a,"b c"}', extra = '{"n": 1.10}'""")
    row = read(deployment.environment, "explain", "orders", "o-1")["row"]
    assert (row["status"], row["tags"], row["extra"]) == (None, '["a", "b c"]', '{"n": 1.10}')
    text = run(deployment.environment, "explain", "orders", "o-1").stdout
    assert "  status             NULL\n" in text
    assert '  extra              {"n": 1.10}\n' in text


def test_explain_finds_refused_records_too(deployment: Deployment) -> None:
    found = read(deployment.environment, "explain", "orders", "o-3")
    (seen,) = found["observations"]
    assert found["row"] is None
    assert seen["outcome"] == "quarantined"
    assert seen["exception"].startswith("quarantined: unknown_value, status")
    assert "There is no such row." in run(deployment.environment, "explain", "orders", "o-3").stdout


def test_explain_tells_what_each_version_of_the_mapping_made_of_it(deployment: Deployment) -> None:
    """The first version refused the record and somebody dismissed it; the second one applied it."""
    with deployment.database() as db:
        db.execute(
            "UPDATE gapless.exception SET state = 'dismissed', decided_by = 'ada',"
            " decided_at = '2024-02-01T10:00:00Z', decided_note = 'a test order'"
        )
        db.execute(
            "INSERT INTO gapless.mapping_version (mapping, version, hash, definition, source,"
            " stream, table_name, state) SELECT mapping, 2, 'other', definition, source, stream,"
            " table_name, 'live' FROM gapless.mapping_version"
        )
        db.execute(
            "INSERT INTO gapless.page_ledger SELECT (SELECT max(id) FROM gapless.mapping_version),"
            ' partition, generation, "offset", partition_id, plan, scope, pass, page, part, parts,'
            " original_offset, records, counts, decode(repeat('01', records), 'hex'), fetched_at"
            " FROM gapless.page_ledger"
        )
    (seen,) = read(deployment.environment, "explain", "orders", "o-3")["observations"]
    newest, oldest = seen["became"]
    assert newest == {"version": 2, "outcome": "applied", "exception": None, "beside": False}
    assert (oldest["version"], oldest["outcome"]) == (1, "quarantined")
    assert oldest["exception"].startswith("dismissed: unknown_value, status")
    assert oldest["exception"].endswith("; ada at 2024-02-01T10:00:00Z: a test order")
    assert seen["outcome"] == "applied"
    text = run(deployment.environment, "explain", "orders", "o-3").stdout
    assert "v2 applied\n" in text
    assert "v1 quarantined (dismissed: unknown_value" in text
    with deployment.database() as db:
        db.execute("UPDATE gapless.mapping_version SET state = 'shadow' WHERE version = 2")
    (seen,) = read(deployment.environment, "explain", "orders", "o-3")["observations"]
    assert seen["outcome"] == "quarantined", "a table that is being built says nothing of the row"
    assert (
        "v2 beside live: applied\n"
        in run(deployment.environment, "explain", "orders", "o-3").stdout
    )


def test_explain_says_that_a_record_was_erased(deployment: Deployment) -> None:
    """Its bytes stand in the log until that is compacted; a row that was forgotten is named."""
    at = deployment.offsets[1]
    second = page(f"{DAYS[0]}~{DAYS[1]}", "a", 2, [b"", b""])
    gone = [MissingRecord(1, "erased", 100)]
    deployment.log(msgspec.structs.replace(second, missing=gone, original_offset=at))
    place = f"{deployment.number}/{at}/1"
    found = read(deployment.environment, "explain", "orders", "o-1")
    assert [note.split(" since")[0] for note in found["notes"]] == [
        f"The record at {place} was erased"
    ]
    with deployment.database() as db:
        db.execute("UPDATE orders SET id = 'o-forgotten' WHERE id = 'o-1'")
    text = run(deployment.environment, "explain", "orders", "o-forgotten").stdout
    assert f"The row is of offset {at}, where its record was erased: erase the row, too." in text


def test_explain_of_a_key_that_nobody_has_seen(deployment: Deployment) -> None:
    done = run(deployment.environment, "explain", "orders", "o-9999")
    assert done.returncode == 1
    assert "No observation that is still in the log has this key." in done.stdout


def test_explain_says_what_is_not_applied_yet(deployment: Deployment) -> None:
    with deployment.database() as db:
        db.execute('DELETE FROM gapless.page_ledger WHERE "offset" = %s', (deployment.offsets[3],))
    (seen,) = read(deployment.environment, "explain", "orders", "o-4")["observations"]
    assert seen["outcome"] is None
    assert "not applied yet" in run(deployment.environment, "explain", "orders", "o-4").stdout


def test_explain_refuses_what_it_cannot_look_for(deployment: Deployment) -> None:
    done = run(deployment.environment, "explain", "nothing", "1")
    assert done.returncode == 2
    assert "known: orders" in done.stderr
    done = run(deployment.environment, "explain", "orders", "1", "2")
    assert done.returncode == 2
    assert "The key of orders is id: give 1 values." in done.stderr


def _one(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


def test_quarantine_lists_without_personal_data(deployment: Deployment) -> None:
    environment = deployment.environment
    row = _one(read(environment, "quarantine", "list", "orders"))
    place = f"{deployment.number}/{deployment.offsets[1]}/0"
    assert (row["place"], row["reason"], row["state"]) == (place, "unknown_value", "quarantined")
    assert row["size"] > 0
    assert read(environment, "quarantine", "list", "other") == []
    for shown in (str(row), run(environment, "quarantine", "list").stdout):
        assert "mail.example" not in shown
        assert "o-3" not in shown
    text = run(environment, "quarantine", "show", place).stdout
    assert "mail.example" not in text
    assert "add --raw" in text
    raw = _one(read(environment, "quarantine", "show", place, "--raw"))
    assert "o-3@mail.example" in raw["raw"]
    assert raw["key"] == {"id": "o-3"}


def test_quarantine_names_keys_that_may_be_shown(deployment: Deployment) -> None:
    environment = deployment.environment
    place = f"{deployment.number}/{deployment.offsets[1]}/0"
    assert "key" not in _one(read(environment, "quarantine", "list"))
    with deployment.database() as db:
        db.execute(
            "UPDATE gapless.mapping_version SET definition ="
            """ '{"columns": {"id": {"personal": "no"}, "name": {"type": "text"}}}'"""
        )
    assert _one(read(environment, "quarantine", "list"))["key"] == {"id": "o-3"}
    listed = run(environment, "quarantine", "list").stdout
    assert "quarantined  id o-3  unknown_value: status" in listed
    assert "      1 record  orders quarantined unknown_value\n" in listed
    assert "key           id o-3\n" in run(environment, "quarantine", "show", place).stdout
    with deployment.database() as db:  # one column that may not be shown is enough
        db.execute("""UPDATE gapless.exception SET key = '{"id": "o-3", "name": "x"}'""")
    assert "key" not in _one(read(environment, "quarantine", "list"))


def test_quarantine_decisions_are_kept_and_the_counts_balance(deployment: Deployment) -> None:
    environment = deployment.environment
    place = f"{deployment.number}/{deployment.offsets[1]}/0"
    done = run(environment, "quarantine", "retry", place, "--wait", "0")
    assert "1 record is due now" in done.stdout, done.stderr
    assert "1 record is not tried yet" in done.stdout
    assert _one(read(environment, "quarantine", "list"))["state"] == "retryable"
    assert read(environment, "audit")["clean"]
    assert run(environment, "quarantine", "dismiss", "orders").returncode == 2
    done = run(environment, "quarantine", "dismiss", "orders", "--note", "test data", "--by", "ann")
    assert "1 record is dismissed by ann." in done.stdout, done.stderr
    assert read(environment, "quarantine", "list") == []
    row = _one(read(environment, "quarantine", "list", "--state", "dismissed"))
    assert (row["decided_by"], row["decided_note"]) == ("ann", "test data")
    assert read(environment, "audit")["clean"]
    with deployment.database() as db:
        actions = db.execute("SELECT by, action FROM gapless.operator_action ORDER BY id")
        assert actions.fetchall() == [("tester", "retry"), ("ann", "dismiss")]
    history = _one(read(environment, "quarantine", "show", place))["history"]
    assert [(one["event"], one["by"]) for one in history] == [
        ("retry", "tester"), ("dismissed", "ann"),
    ]  # fmt: skip
    text = run(environment, "quarantine", "show", place).stdout
    assert "dismissed by ann: test data -> dismissed" in text


def test_quarantine_counts_and_filters(deployment: Deployment) -> None:
    environment = deployment.environment
    group = _one(read(environment, "quarantine", "list", "--counts"))
    assert (group["mapping"], group["reason"], group["count"]) == ("orders", "unknown_value", 1)
    found = read(environment, "quarantine", "list", "--reason", "unknown_value")
    assert found == read(environment, "quarantine", "list", "--partition-id", OWNER)
    assert len(found) == 1
    assert read(environment, "quarantine", "list", "--tenant", "nobody") == []
    assert (
        "1 record  orders  quarantined  unknown_value"
        in run(environment, "quarantine", "list", "--counts").stdout
    )


def test_quarantine_says_so_when_nothing_is_meant(deployment: Deployment) -> None:
    environment = deployment.environment
    place = f"{deployment.number}/{deployment.offsets[1]}/0"
    for words, code, says in (
        (("retry", "NOSUCH"), 2, "There is no mapping NOSUCH; known: orders."),
        (("dismiss", "NOSUCH", "--note", "x"), 2, "There is no mapping NOSUCH; known: orders."),
        (("retry", "--reason", "odd"), 2, "There is no reason odd; write one of"),
        (("retry", "7/7/7"), 2, "There is no exception at 7/7/7"),
        (("retry",), 2, "Say which: a mapping"),
        (("list", "--state", "odd"), 2, "There is no state odd"),
        (("retry", "orders", "--reason", "unique"), 1, "No open record is like that"),
        (("dismiss", "--all", "--note", "x"), 0, "1 record is dismissed"),
        (("retry", place), 1, f"The exception at {place} is dismissed"),
    ):
        done = run(environment, "quarantine", *words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert says in done.stdout + done.stderr
    with deployment.database() as db:
        row = db.execute("SELECT count(*) FROM gapless.operator_action").fetchone()
        assert row == (1,)


def test_quarantine_refuses_a_place_that_is_none(deployment: Deployment) -> None:
    assert run(deployment.environment, "quarantine", "show", "1/2").returncode == 2
    done = run(deployment.environment, "quarantine", "show", "1/2/3")
    assert done.returncode == 2
    assert "There is no exception at 1/2/3" in done.stderr
