"""Plain SQL over what apply wrote, and the trigger that records every revision that fell."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

Row = dict[str, Any]

TRIGGER = """
CREATE TABLE IF NOT EXISTS oracle_fall (
  at timestamptz DEFAULT clock_timestamp(), table_name text, old jsonb, new jsonb
);
CREATE OR REPLACE FUNCTION oracle_watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW._source_epoch < OLD._source_epoch
     OR (NEW._source_epoch = OLD._source_epoch AND NEW._began IS NULL
         AND NEW.source_revision IS NOT NULL AND NEW.source_revision < OLD.source_revision) THEN
    INSERT INTO oracle_fall (table_name, old, new) VALUES (TG_TABLE_NAME, to_jsonb(OLD), to_jsonb(NEW));
  END IF;
  RETURN NEW;
END $$;
"""


class Sink:
    """Read access to one lane's database; every call is a transaction of its own."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def rows(self, query: str, *parameters: object) -> list[Row]:
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def watch_revisions(self, table: str) -> None:
        """From now on every update of `table` that lowers a revision is recorded."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute(TRIGGER.encode())
            connection.execute(
                sql.SQL(
                    "CREATE OR REPLACE TRIGGER oracle_watch BEFORE UPDATE ON {} "
                    "FOR EACH ROW EXECUTE FUNCTION oracle_watch()"
                ).format(sql.Identifier(table))
            )

    def falls(self) -> list[Row]:
        return self.rows("SELECT * FROM oracle_fall ORDER BY at")

    def table(self, name: str) -> list[Row]:
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            return connection.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))
            ).fetchall()

    def living(self, name: str, tenant: str) -> int:
        """Rows of one tenant that are not marked deleted; all of them where it has no name."""
        query = sql.SQL("SELECT count(*) FROM {} WHERE NOT _deleted").format(sql.Identifier(name))
        if tenant:
            query += sql.SQL(" AND tenant_id = {}").format(tenant)
        with psycopg.connect(self.dsn) as connection:
            found = connection.execute(query).fetchone()
        return int(found[0]) if found else 0

    def positions_and_ledger(self) -> tuple[list[Row], list[Row]]:
        """Live positions and the whole page ledger as of one instant."""
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            positions = connection.execute(
                "SELECT * FROM gapless.position WHERE pipeline = 'live'"
            ).fetchall()
            ledger = connection.execute("SELECT * FROM gapless.page_ledger").fetchall()
        return positions, ledger
