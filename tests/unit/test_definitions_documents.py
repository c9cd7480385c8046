"""The examples of the language's own document, as they stand there."""

from decimal import Decimal
from pathlib import Path

import pytest

from schemas.definitions import Definitions, load_file, load_folder
from schemas.definitions.mapping import Personal, RevisionKind, Unknown
from schemas.definitions.paths import EACH, Root
from schemas.definitions.predicates import Predicate
from schemas.definitions.secrets import Reference
from schemas.definitions.source import (
    Action,
    BearerAuth,
    Bounds,
    CursorSpec,
    End,
    IntervalSpec,
    KeysetSpec,
    Order,
    Turn,
)

FOLDER = Path(__file__).parent / "definitions"
DEMO = Path(__file__).parents[2] / "ops" / "demo" / "definitions"


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    return load_folder(FOLDER)


def test_what_is_supported_is_read(definitions: Definitions) -> None:
    assert sorted(definitions.sources) == [
        "couch",
        "github",
        "pocket",
        "shop",
        "stripe",
        "watchtower",
    ]
    assert sorted(definitions.mappings) == [
        "couch_docs",
        "github_issues",
        "pipeline_events",
        "pocket_items",
        "shop_orders",
        "stripe_customers",
        "stripe_events",
    ]


def test_nothing_of_it_is_refused(definitions: Definitions) -> None:
    assert definitions.errors == ()


def test_shop(definitions: Definitions) -> None:
    (lines,) = definitions.mappings["shop_orders"].children.values()
    assert (lines.name, lines.table, lines.key) == ("order_lines", "order_lines", ("line_no",))
    assert lines.path.every is not None
    assert (lines.path.every.root, lines.path.every.steps) == (Root.ENTITY, ("lines", EACH))
    assert {name: one.type.sql for name, one in lines.columns.items()} == {
        "line_no": "integer",
        "sku": "text",
        "quantity": "integer",
    }
    assert lines.columns["line_no"].required
    assert not lines.columns["sku"].required
    assert lines.parent_columns(("id", "tenant_id")) == ("parent_id", "parent_tenant_id")


def test_github(definitions: Definitions) -> None:
    source = definitions.sources["github"]
    assert source.auth == BearerAuth(Reference("env", "GITHUB_TOKEN"))
    assert source.limits.rate_per_s == 1.25
    assert source.tenants is not None
    assert [tenant.fields["repo"] for tenant in source.tenants.listed] == [
        "example-org/kernel",
        "example-org/docs",
    ]
    issues = source.streams["issues"]
    assert issues.partition_id("docs") == "github/issues/docs"
    assert issues.schedule.every_s == 120
    interval, snapshot = issues.changes, issues.snapshot
    assert isinstance(interval, IntervalSpec)
    assert (interval.order, interval.granularity_us, interval.lookback_us) == (
        Order.ASC,
        1_000_000,
        3_600_000_000,
    )
    assert interval.start_us == 1_420_070_400_000_000
    assert interval.bounds is Bounds.UNKNOWN
    pages = interval.request.pages
    assert pages is not None
    assert (pages.turn, pages.end, pages.cap) == (Turn.LINK, End.NO_NEXT, 100)
    assert [rule.do for rule in interval.request.errors] == [
        Action.RATE_LIMITED,
        Action.TREAT_AS_EMPTY,
    ]
    assert snapshot is not None
    assert snapshot.listings_needed == issues.keep_snapshots == 2
    assert snapshot.request.params["sort"] == "created"
    assert snapshot.request.params["state"] == "all"
    mapping = definitions.mappings["github_issues"]
    labels = mapping.columns["labels"].path
    assert labels is not None
    assert labels.every is not None
    assert labels.every[0].path.steps == ("labels", EACH, "name")
    assert mapping.columns["reason"].unknown is Unknown.KEEP
    assert mapping.columns["author"].personal is Personal.HASH
    assert mapping.events is not None
    assert mapping.events.changed_fields == ("state",)
    assert mapping.key == ("id", "tenant_id")


def test_stripe(definitions: Definitions) -> None:
    customers = definitions.sources["stripe"].streams["customers"]
    interval, snapshot = customers.changes, customers.snapshot
    assert isinstance(interval, IntervalSpec)
    assert snapshot is not None
    assert interval.start_us is None  # what the provider still has
    assert customers.upstream_retention_s == 30 * 86_400
    assert interval.settle_us == 300_000_000
    assert set(interval.request.params) == {
        "limit",
        "starting_after",
        "created[gte]",
        "created[lt]",
        "types[]",
    }
    assert set(snapshot.request.params) == {"limit", "starting_after"}
    assert isinstance(snapshot.request.pages and snapshot.request.pages.end, Predicate)
    mapping = definitions.mappings["stripe_customers"]
    assert mapping.key == ("id",)
    entity, revision = mapping.entity, mapping.revision.path
    assert revision is not None
    assert [path and path.steps for path in map(entity.of, ("interval", "snapshot"))] == [
        ("data", "object"),
        (),
    ]
    assert [path and path.root for path in map(revision.of, ("interval", "snapshot"))] == [
        Root.RECORD,
        Root.OBSERVATION,
    ]
    assert definitions.mappings["stripe_events"].revision.kind is RevisionKind.EXACT


def test_couch(definitions: Definitions) -> None:
    docs = definitions.sources["couch"].streams["docs"]
    cursor, snapshot = docs.changes, docs.snapshot
    assert isinstance(cursor, CursorSpec)
    assert (cursor.start, cursor.on_reset) == ("0", "reread")
    assert cursor.identity is not None
    assert cursor.identity.head is not None
    assert cursor.request.pages is not None
    assert (cursor.request.pages.turn, cursor.request.pages.end) == (Turn.CURSOR, End.EMPTY)
    assert snapshot is not None
    assert snapshot.request.pages is not None
    assert (snapshot.request.pages.turn, snapshot.request.pages.end) == (
        Turn.LAST_ID,
        End.NOTHING_NEW,
    )
    assert snapshot.request.pages.size == 500  # maps merge
    assert snapshot.listings_needed == 1
    assert definitions.mappings["couch_docs"].revision.pattern == "^([0-9]+)-"
    assert definitions.mappings["couch_docs"].absent_max == Decimal("0.1")


def test_pocket(definitions: Definitions) -> None:
    items = definitions.sources["pocket"].streams["items"]
    keyset, snapshot = items.changes, items.snapshot
    assert isinstance(keyset, KeysetSpec)
    assert (keyset.plan, keyset.order, keyset.settle_us) == ("keyset", Order.ASC, 5_000_000)
    assert keyset.granularity_us == keyset.format.unit_us == 1_000
    assert keyset.request.pages is not None
    assert (keyset.request.pages.turn, keyset.request.pages.end) == (Turn.KEYSET, End.EMPTY)
    assert items.plan("keyset") is keyset
    assert snapshot is not None
    assert snapshot.request.pages is not None
    assert snapshot.request.pages.turn is Turn.LAST_ID
    assert keyset.definition_hash != snapshot.definition_hash


def test_watchtower(definitions: Definitions) -> None:
    events = definitions.sources["watchtower"].streams["run_events"]
    schedule = events.schedule
    assert schedule.occurrences is not None
    assert schedule.occurrences.zone == "Europe/Berlin"
    assert (schedule.deadline_s, schedule.stages) == (
        2_700,
        ("extract", "match", "load", "publish"),
    )
    occurrence = schedule.occurrences.after(1_793_577_600_000_000)  # 2026-11-01, 23:00 in UTC
    assert events.run_id(occurrence) == "watchtower/run_events@2026-11-02T04:30:00Z"


def test_a_file_alone() -> None:
    assert load_file(FOLDER / "sources" / "github.yaml").mappings.keys() == {"github_issues"}
    alone = load_file(FOLDER / "mappings" / "shop_orders.yaml")
    assert (alone.problems, list(alone.mappings)) == ((), ["shop_orders"])


def test_shipped_examples() -> None:
    shipped = load_folder(DEMO)
    assert shipped.problems == ()
    accounts = shipped.mappings["normalized_accounts"]
    assert accounts.key == ("external_id", "provider", "tenant_id")
    assert all(accounts.columns[name].required for name in accounts.key)
    assert accounts.columns["email"].personal is Personal.KEEP
    events = shipped.mappings["pipeline_events"]
    assert {"run_id", "source_id"} <= set(events.key)
    run_id = events.columns["run_id"].path
    assert run_id is not None
    assert run_id.every is not None
    assert [one.path.text for one in run_id.every] == ["tags.run_id", "occurred_at"]
    assert [one.pattern for one in run_id.every] == [None, r"^(\d{4}-\d{2}-\d{2})"]
    assert [one.prefix for one in run_id.every] == [None, "nightly-"]
