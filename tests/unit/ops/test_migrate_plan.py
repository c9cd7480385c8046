"""Which migrations are applied, and which databases are refused."""

from __future__ import annotations

import pytest

from ops.migrate import Migration, MigrationRefused, pending, shipped

ONE = Migration(1, "0001_one.sql", "SELECT 1")
TWO = Migration(2, "0002_two.sql", "SELECT 2")


def test_an_empty_database_gets_all_in_order() -> None:
    assert pending([TWO, ONE], {}) == [ONE, TWO]


def test_what_was_applied_is_left_alone() -> None:
    assert pending([ONE, TWO], {1: ONE.sha256}) == [TWO]
    assert pending([ONE, TWO], {1: ONE.sha256, 2: TWO.sha256}) == []


def test_a_changed_file_is_refused() -> None:
    with pytest.raises(MigrationRefused, match=r"0001_one\.sql is not the file"):
        pending([ONE, TWO], {1: TWO.sha256})


def test_a_newer_database_is_refused() -> None:
    with pytest.raises(MigrationRefused, match="newer"):
        pending([ONE], {1: ONE.sha256, 2: TWO.sha256})


def test_the_shipped_ones_are_numbered_without_holes() -> None:
    versions = [migration.version for migration in shipped()]
    assert versions == list(range(1, len(versions) + 1))
    assert versions
