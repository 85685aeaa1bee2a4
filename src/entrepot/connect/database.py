"""What the connectors ask of a database, whichever it is.

Statements are run one by one, with BEGIN and COMMIT among them, so transactions look the
same everywhere. All of it blocks, and runs in a thread of its own. An error is passing,
when the connection or a lock is its cause: then it is Unavailable. Any other is of the
statement.

A change log is a table that triggers write to, in the transaction of the change itself:

    id          grows; in the order of the changes of any one row
    table_name, operation ('insert', 'update', 'delete', 'snapshot'), at
    before_row, after_row   as JSON
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NamedTuple

from crc32c import crc32c

from entrepot.connect.interface import ConnectError, Unavailable

OPERATIONS = ("delete", "update", "insert")  # The insert trigger comes last: then all are there.
NAME_SIZE_MAX = 60
LOG_COLUMNS = "table_name, operation, before_row, after_row"


class Column(NamedTuple):
    name: str
    kind: str
    key_place: int  # In the primary key, from 1 on; 0: not in it.


class Database(ABC):
    kind: ClassVar[str]
    mark: ClassVar[str] = "%s"  # Stands for a parameter.
    quotes: ClassVar[str] = '"'
    begin: ClassVar[str] = "BEGIN"

    def __init__(self, connection: Any, error: type[Exception]) -> None:
        self._connection = connection
        self._error = error  # What the driver's errors have in common.

    @abstractmethod
    def is_passing(self, error: Exception) -> bool: ...

    @abstractmethod
    def columns(self, table: str) -> list[Column]:
        """None, when there is no such table."""

    @abstractmethod
    def upsert(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str: ...

    @abstractmethod
    def install(self, log_table: str, tables: Sequence[str], *, snapshot: bool) -> None:
        """The change log and its triggers, as far as they are not there."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._words() as cursor:
            cursor.execute(statement, *([tuple(parameters)] if parameters else []))
            return list(cursor.fetchall()) if cursor.description else []

    def change(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """How many rows it touched."""
        with self._words() as cursor:
            cursor.execute(statement, *([tuple(parameters)] if parameters else []))
            return int(cursor.rowcount)

    def change_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._words() as cursor:
            cursor.executemany(statement, rows)

    def select(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns' names, and the rows."""
        with self._words() as cursor:
            cursor.execute(statement, *([tuple(parameters)] if parameters else []))
            return [column[0] for column in cursor.description], list(cursor.fetchall())

    def known_columns(self, table: str) -> list[Column]:
        found = self.columns(table)
        if not found:
            raise ConnectError(f"{self.kind}: there is no table {table}")
        return found

    def quote(self, name: str) -> str:
        """`sales.orders` has two parts; a quote in a name is doubled."""
        mark = self.quotes
        return ".".join(mark + part.replace(mark, mark * 2) + mark for part in name.split("."))

    def marks(self, count: int) -> str:
        return ", ".join([self.mark] * count)

    def escape(self, statement: str) -> str:
        """A statement of somebody else's, made safe for parameters."""
        return statement if self.mark == "?" else statement.replace("%", "%%")

    def close(self) -> None:
        with suppress(self._error):  # Of a connection that is lost already.
            self._connection.close()

    @contextmanager
    def _words(self) -> Iterator[Any]:
        """A cursor. What goes wrong comes out as ours, if it is passing."""
        try:
            cursor = self._connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()
        except self._error as error:
            if self.is_passing(error):
                raise Unavailable(f"{self.kind}: {first_line(error)}") from None
            raise StatementError(f"{self.kind}: {first_line(error)}") from None
        except OverflowError as error:  # A number that the driver cannot say.
            raise StatementError(f"{self.kind}: {error}") from None


class StatementError(ConnectError):
    """The database refuses what it was told."""


def text(value: str) -> str:
    """As a literal. Only for names of tables and columns, in triggers."""
    return "'" + value.replace("'", "''") + "'"


def trigger_name(log_table: str, table: str, operation: str) -> str:
    """No longer than the shortest of their limits, and still one of a kind."""
    name = f"{log_table}_{table}_{operation}".replace(".", "_")
    if len(name) <= NAME_SIZE_MAX:
        return name
    return f"{name[: NAME_SIZE_MAX - 9]}_{crc32c(name.encode()):08x}"


def first_line(error: Exception) -> str:
    words = error.args[-1] if error.args else error
    return str(words).strip().partition("\n")[0]
