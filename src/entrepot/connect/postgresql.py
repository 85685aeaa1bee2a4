"""PostgreSQL, by psycopg. One trigger function serves all tables and all their columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from entrepot.connect.database import (
    LOG_COLUMNS,
    Column,
    Database,
    first_line,
    text,
    trigger_name,
)
from entrepot.connect.interface import Unavailable
from entrepot.connect.registry import need
from entrepot.connect.sqlite import upsert_on_conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlOptions:
    host: str = "127.0.0.1"
    port: int = 5432
    user: str
    password: str | None = None
    database: str
    parameters: dict[str, str] = field(default_factory=dict)  # More of libpq's: sslmode, …

    def connect(self) -> Database:
        psycopg = need("psycopg", "psycopg", "PostgreSQL")
        try:
            connection = psycopg.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                dbname=self.database,
                autocommit=True,
                **({"connect_timeout": "10"} | self.parameters),
            )
        except psycopg.Error as error:
            raise Unavailable(f"PostgreSQL: {first_line(error)}") from None
        return Postgresql(connection, psycopg)


class Postgresql(Database):
    kind = "PostgreSQL"

    def __init__(self, connection: Any, psycopg: Any) -> None:
        super().__init__(connection, psycopg.Error)
        self._broken = (psycopg.OperationalError, psycopg.InterfaceError)

    def is_passing(self, error: Exception) -> bool:
        """Connections, locks, deadlocks, shutdowns; by the classes of SQLSTATE."""
        state = getattr(error, "sqlstate", None)
        if state is None:
            return isinstance(error, self._broken)
        return state[:2] in ("08", "40", "53", "55", "57", "58")

    def columns(self, table: str) -> list[Column]:
        rows = self.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), "
            "coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0) FROM pg_attribute a "
            "LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped "
            "ORDER BY a.attnum",
            [self.quote(table)],
        )
        return [Column(*row) for row in rows]

    def upsert(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        return upsert_on_conflict(self, table, columns, keys)

    def install(self, log_table: str, tables: Sequence[str], *, snapshot: bool) -> None:
        self.execute("BEGIN")
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {self.quote(log_table)} ("
            "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, table_name text NOT NULL, "
            "operation text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), "
            "before_row text, after_row text)"
        )
        function = self.quote(f"{log_table}_write")
        # Whoever changes a table need not have rights to the log.
        self.execute(
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql "
            "SECURITY DEFINER SET search_path FROM CURRENT AS $body$ BEGIN "
            f"INSERT INTO {self.quote(log_table)} ({LOG_COLUMNS}) "
            "VALUES (TG_ARGV[0], lower(TG_OP), "
            "CASE WHEN TG_OP <> 'INSERT' THEN row_to_json(OLD)::text END, "
            "CASE WHEN TG_OP <> 'DELETE' THEN row_to_json(NEW)::text END); "
            "RETURN NULL; END $body$"
        )
        for table in tables:
            self._install_trigger(log_table, table, function, snapshot=snapshot)
        self.execute("COMMIT")

    def _install_trigger(
        self, log_table: str, table: str, function: str, *, snapshot: bool
    ) -> None:
        self.known_columns(table)
        name = trigger_name(log_table, table, "change")
        if self.execute(
            "SELECT 1 FROM pg_trigger WHERE tgname = %s AND tgrelid = to_regclass(%s)",
            [name, self.quote(table)],
        ):
            return
        # This holds writers off until the end, so nothing falls between it and the snapshot.
        self.execute(
            f"CREATE TRIGGER {self.quote(name)} AFTER INSERT OR UPDATE OR DELETE "
            f"ON {self.quote(table)} FOR EACH ROW EXECUTE FUNCTION {function}({text(table)})"
        )
        if snapshot:
            self.execute(
                f"INSERT INTO {self.quote(log_table)} ({LOG_COLUMNS}) SELECT {text(table)}, "
                f"'snapshot', NULL, row_to_json(kept)::text FROM {self.quote(table)} AS kept"
            )
