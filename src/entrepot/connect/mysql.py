"""MySQL and MariaDB, by PyMySQL. Their DDL knows no transactions, but it heeds table locks."""

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
from entrepot.connect.registry import need

_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_CLIENT_ERRORS = range(2000, 3000)  # Of the connection.
# Too many connections, shutting down, lost in a lock, deadlock, killed.
_PASSING = (0, 1040, 1053, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1927)


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlOptions:
    host: str = "127.0.0.1"
    port: int = 3306
    user: str
    password: str = ""
    database: str
    ssl_ca: str | None = None  # A PEM file: connect by TLS, to a server of this authority.

    def connect(self) -> Database:
        pymysql = need("pymysql", "PyMySQL", "MySQL")
        try:
            connection = pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                database=self.database,
                autocommit=True,
                charset="utf8mb4",
                connect_timeout=10,
                ssl={"ca": self.ssl_ca} if self.ssl_ca else None,
            )
        except (pymysql.Error, OSError) as error:
            raise Unavailable(f"MySQL: {first_line(error)}") from None
        return Mysql(connection, pymysql.Error)


class Mysql(Database):
    kind = "MySQL"
    quotes = "`"

    def is_passing(self, error: Exception) -> bool:
        code = error.args[0] if error.args else 0
        return not isinstance(code, int) or code in _CLIENT_ERRORS or code in _PASSING

    def columns(self, table: str) -> list[Column]:
        schema, _, name = table.rpartition(".")
        rows = self.execute(
            "SELECT c.column_name, c.data_type, coalesce(k.ordinal_position, 0) "
            "FROM information_schema.columns c "
            "LEFT JOIN information_schema.key_column_usage k "
            "ON k.table_schema = c.table_schema AND k.table_name = c.table_name "
            "AND k.column_name = c.column_name AND k.constraint_name = 'PRIMARY' "
            "WHERE c.table_schema = coalesce(nullif(%s, ''), database()) AND c.table_name = %s "
            "ORDER BY c.ordinal_position",
            [schema, name],
        )
        return [Column(*row) for row in rows]

    def upsert(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        quoted = [self.quote(column) for column in columns]
        changed = [self.quote(column) for column in columns if column not in keys]
        sets = [f"{column} = VALUES({column})" for column in changed or map(self.quote, keys)]
        return (
            f"INSERT INTO {self.quote(table)} ({', '.join(quoted)}) "
            f"VALUES ({self.marks(len(columns))}) ON DUPLICATE KEY UPDATE {', '.join(sets)}"
        )

    def install(self, log_table: str, tables: Sequence[str], *, snapshot: bool) -> None:
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {self.quote(log_table)} ("
            "id BIGINT AUTO_INCREMENT PRIMARY KEY, table_name VARCHAR(200) NOT NULL, "
            "operation VARCHAR(10) NOT NULL, "
            "at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), "
            "before_row LONGTEXT, after_row LONGTEXT)"
        )
        for table in tables:
            rows = {prefix: self._row(table, prefix) for prefix in ("", "OLD.", "NEW.")}
            self.execute(f"LOCK TABLES {self.quote(table)} WRITE, {self.quote(log_table)} WRITE")
            try:
                self._install_triggers(log_table, table, rows, snapshot=snapshot)
            finally:
                self.execute("UNLOCK TABLES")

    def _install_triggers(
        self, log_table: str, table: str, rows: dict[str, str], *, snapshot: bool
    ) -> None:
        log = self.quote(log_table)
        known = self._triggers(log_table, table)
        if "insert" not in known and snapshot:
            # What an installation that did not come to its end left is taken back.
            self.execute(f"DELETE FROM {log} WHERE table_name = {text(table)}")
            self.execute(
                f"INSERT INTO {log} ({LOG_COLUMNS}) SELECT {text(table)}, 'snapshot', NULL, "
                f"{rows['']} FROM {self.quote(table)}"
            )
        for operation in OPERATIONS:
            before = "NULL" if operation == "insert" else rows["OLD."]
            after = "NULL" if operation == "delete" else rows["NEW."]
            body = (
                f"INSERT INTO {log} ({LOG_COLUMNS}) "
                f"VALUES ({text(table)}, '{operation}', {before}, {after})"
            )
            if known.get(operation) == body:
                continue
            name = self.quote(trigger_name(log_table, table, operation))
            self.execute(f"DROP TRIGGER IF EXISTS {name}")
            self.execute(
                f"CREATE TRIGGER {name} AFTER {operation.upper()} ON {self.quote(table)} "
                f"FOR EACH ROW {body}"
            )

    def _triggers(self, log_table: str, table: str) -> dict[str, str]:
        """What those that are there do, by operation."""
        names = {trigger_name(log_table, table, each): each for each in OPERATIONS}
        rows = self.execute(
            "SELECT trigger_name, action_statement FROM information_schema.triggers "
            f"WHERE trigger_schema = database() AND trigger_name IN ({self.marks(len(names))})",
            list(names),
        )
        return {names[name]: body for name, body in rows}

    def _row(self, table: str, prefix: str) -> str:
        """As JSON, which has no word for bytes: they become hexadecimal."""
        pairs = []
        for column in self.known_columns(table):
            value = prefix + self.quote(column.name)
            if column.kind in _BINARY:
                value = f"HEX({value})"
            elif column.kind == "bit":
                value = f"{value} + 0"
            pairs.append(f"{text(column.name)}, {value}")
        return f"JSON_OBJECT({', '.join(pairs)})"
