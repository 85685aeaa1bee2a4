"""SQLite. The change log is installed in one transaction, triggers, snapshot and all."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from entrepot.connect.database import (
    LOG_COLUMNS,
    OPERATIONS,
    Column,
    Database,
    first_line,
    text,
    trigger_name,
)
from entrepot.connect.interface import Unavailable

BUSY_S = 5.0  # How long to wait for another writer.
_PASSING = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions:
    path: str

    def connect(self) -> Database:
        try:
            connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise Unavailable(f"SQLite: {self.path}: {first_line(error)}") from None
        return Sqlite(connection, sqlite3.Error)


class Sqlite(Database):
    kind = "SQLite"
    mark = "?"
    begin = "BEGIN IMMEDIATE"  # A writer from the start: it cannot lose the race to write.

    def is_passing(self, error: Exception) -> bool:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING

    def columns(self, table: str) -> list[Column]:
        schema, _, name = table.rpartition(".")
        prefix = f"{self.quote(schema)}." if schema else ""
        rows = self.execute(f"PRAGMA {prefix}table_info({self.quote(name)})")
        return [Column(row[1], row[2], row[5]) for row in rows]

    def upsert(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        return upsert_on_conflict(self, table, columns, keys)

    def install(self, log_table: str, tables: Sequence[str], *, snapshot: bool) -> None:
        self.execute(self.begin)
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {self.quote(log_table)} ("
            "id INTEGER PRIMARY KEY AUTOINCREMENT, table_name TEXT NOT NULL, "
            "operation TEXT NOT NULL, "
            "at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), "
            "before_row TEXT, after_row TEXT)"
        )
        for table in tables:
            is_new = False
            for operation in OPERATIONS:
                is_new |= self._install_trigger(log_table, table, operation)
            if is_new and snapshot:
                self.execute(
                    f"INSERT INTO {self.quote(log_table)} ({LOG_COLUMNS}) SELECT {text(table)}, "
                    f"'snapshot', NULL, {self._row(table, '')} FROM {self.quote(table)}"
                )
        self.execute("COMMIT")

    def _install_trigger(self, log_table: str, table: str, operation: str) -> bool:
        """Whether there was none. One that misses a column is replaced."""
        name = trigger_name(log_table, table, operation)
        before = "NULL" if operation == "insert" else self._row(table, "OLD.")
        after = "NULL" if operation == "delete" else self._row(table, "NEW.")
        statement = (
            f"CREATE TRIGGER {self.quote(name)} AFTER {operation.upper()} ON {self.quote(table)} "
            f"BEGIN INSERT INTO {self.quote(log_table)} ({LOG_COLUMNS}) "
            f"VALUES ({text(table)}, '{operation}', {before}, {after}); END"
        )
        found = self.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?", [name]
        )
        if found != [(statement,)]:
            self.execute(f"DROP TRIGGER IF EXISTS {self.quote(name)}")
            self.execute(statement)
        return not found

    def _row(self, table: str, prefix: str) -> str:
        """As JSON, which has no word for bytes: they become hexadecimal."""
        pairs = []
        for column in self.known_columns(table):
            value = prefix + self.quote(column.name)
            value = f"CASE typeof({value}) WHEN 'blob' THEN hex({value}) ELSE {value} END"
            pairs.append(f"{text(column.name)}, {value}")
        return f"json_object({', '.join(pairs)})"


def upsert_on_conflict(
    database: Database, table: str, columns: Sequence[str], keys: Sequence[str]
) -> str:
    """As SQLite and PostgreSQL say it."""
    quoted = [database.quote(column) for column in columns]
    changed = [database.quote(column) for column in columns if column not in keys]
    sets = ", ".join(f"{column} = excluded.{column}" for column in changed)
    action = f"UPDATE SET {sets}" if sets else "NOTHING"
    return (
        f"INSERT INTO {database.quote(table)} ({', '.join(quoted)}) "
        f"VALUES ({database.marks(len(columns))}) "
        f"ON CONFLICT ({', '.join(map(database.quote, keys))}) DO {action}"
    )
