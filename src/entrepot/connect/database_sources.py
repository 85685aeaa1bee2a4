"""Tables into topics: what a query finds, or every change.

A query is asked again and again for rows after the last one, by a column that grows; it
sees new rows, and changed ones if a timestamp says so, but no deletions. A row whose number
was taken before that of another, but which is committed after it, is passed over: where
writers work at the same time, take the change log.

The change log holds each change until it is in the topic. The rows of a batch are deleted
after the transaction that wrote them, whose position names them; after a crash in between
they are deleted first. No row is asked for by its number alone, so it does not matter in
which order writers commit.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from entrepot.connect.database import Database
from entrepot.connect.formats import Misfit, to_json
from entrepot.connect.interface import (
    ConnectError,
    Context,
    Polled,
    Position,
    Rejected,
    Source,
    SourceRecord,
)
from entrepot.connect.mysql import MysqlOptions
from entrepot.connect.postgresql import PostgresqlOptions
from entrepot.connect.sqlite import SqliteOptions
from entrepot.connect.threads import OneThread


class DatabaseSource(Source):
    """What both kinds share: a connection, and a thread for it."""

    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        self.database: Database
        self._thread = OneThread(context.name)
        self._is_open = False

    async def open(self, position: Position | None) -> None:
        await self._thread.run(self._open, position)

    async def poll(self, count_max: int) -> Polled | None:
        return await self._thread.run(self.read, count_max)

    async def committed(self, position: Position) -> None:
        await self._thread.run(self.forget, position)

    async def close(self) -> None:
        if self._is_open:
            await self._thread.run(self.database.close)
        self._thread.close()

    def _open(self, position: Position | None) -> None:
        self.database = self.options.connect()
        self._is_open = True
        self.prepare(position)

    @abstractmethod
    def prepare(self, position: Position | None) -> None:
        """What is to be done once, when it is connected."""

    @abstractmethod
    def read(self, count_max: int) -> Polled | None:
        """As `poll`, in the thread."""

    def forget(self, position: Position) -> None:
        """What need not be kept any more."""
        return None


# --- by query


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    incrementing: str  # A column that is unique and grows.
    timestamp: str | None = None  # One that is set with every change.
    table: str | None = None  # Or instead:
    query: str | None = None
    key: tuple[str, ...] = ()  # Columns that make up the record's key.

    def problem(self) -> str | None:
        if (self.table is None) == (self.query is None):
            return "table: the table's name, or a query instead; not both"
        return None


class QuerySource(DatabaseSource):
    def prepare(self, position: Position | None) -> None:
        self._position = position
        if self.options.table is not None:
            self.database.known_columns(self.options.table)

    def read(self, count_max: int) -> Polled | None:
        statement, parameters = self._statement()
        names, rows = self.database.select(statement, [*parameters, count_max])
        if not rows:
            return None
        wanted = [self.options.incrementing, self.options.timestamp, *self.options.key]
        for name in wanted:
            if name is not None and name not in names:
                raise ConnectError(f"options: the rows have no column {name}")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        records = [self._record(row) for row in found]
        last = {"incrementing": found[-1][self.options.incrementing]}
        if self.options.timestamp is not None:
            last["timestamp"] = found[-1][self.options.timestamp]
        self._position = msgspec.json.decode(to_json(last))
        return Polled(records, self._position)

    def _record(self, row: dict[str, Any]) -> SourceRecord | Rejected:
        try:
            return SourceRecord(to_json(row), key=row_key(row, self.options.key))
        except Misfit as error:
            number = row[self.options.incrementing]
            where = f"{self.options.table or 'the query'}, {self.options.incrementing} {number}"
            return Rejected(repr(row).encode(), where, str(error))

    def _statement(self) -> tuple[str, list[Any]]:
        """All but the parameter of its limit."""
        database, mark = self.database, self.database.mark
        number = database.quote(self.options.incrementing)
        rows = (
            database.quote(self.options.table)
            if self.options.table is not None
            else f"({database.escape(self.options.query)}) AS entrepot_rows"
        )
        where, order, parameters = f"{number} IS NOT NULL", number, []
        if self.options.timestamp is None:
            if self._position is not None:
                where = f"{number} > {mark}"
                parameters = [self._position["incrementing"]]
        else:
            time = database.quote(self.options.timestamp)
            where, order = f"{where} AND {time} IS NOT NULL", f"{time}, {number}"
            if self._position is not None:
                later = f"({time} > {mark} OR ({time} = {mark} AND {number} > {mark}))"
                where = f"{number} IS NOT NULL AND {later}"
                at = self._position["timestamp"]
                parameters = [at, at, self._position["incrementing"]]
        statement = f"SELECT * FROM {rows} WHERE {where} ORDER BY {order} LIMIT {mark}"
        return statement, parameters


def row_key(row: dict[str, Any], columns: Sequence[str]) -> bytes | None:
    """One column's value as text; of several, a JSON object."""
    if not columns:
        return None
    if len(columns) > 1:
        return to_json({name: row.get(name) for name in columns})
    value = row.get(columns[0])
    return value.encode() if isinstance(value, str) else to_json(value)


# --- by change log


@dataclass(frozen=True, kw_only=True)
class ChangesOptions:
    tables: tuple[str, ...]
    log_table: str = "entrepot_changes"
    install: bool = False  # Make the change log and its triggers, where they are missing.
    snapshot: bool = False  # And begin it with the rows that are there.
    tombstones: bool = False  # After a deletion, a record without a value.

    def problem(self) -> str | None:
        if not self.tables:
            return "tables: the names of the tables"
        if self.snapshot and not self.install:
            return "snapshot: it is taken when the triggers are made: install = true"
        return None


class ChangesSource(DatabaseSource):
    def prepare(self, position: Position | None) -> None:
        database, options = self.database, self.options
        if options.install:
            database.install(options.log_table, options.tables, snapshot=options.snapshot)
        if not database.columns(options.log_table):
            raise ConnectError(
                f"{database.kind}: there is no change log {options.log_table}; "
                "options.install = true makes it"
            )
        self._keys: dict[str, list[str]] = {}
        for table in options.tables:
            columns = [each for each in database.known_columns(table) if each.key_place]
            columns.sort(key=lambda column: column.key_place)
            self._keys[table] = [column.name for column in columns]
        if position is not None:
            self.forget(position)

    def read(self, count_max: int) -> Polled | None:
        database, options = self.database, self.options
        rows = database.execute(
            "SELECT id, table_name, operation, at, before_row, after_row "
            f"FROM {database.quote(options.log_table)} "
            f"WHERE table_name IN ({database.marks(len(options.tables))}) "
            f"ORDER BY id LIMIT {database.mark}",
            [*options.tables, count_max],
        )
        if not rows:
            return None
        records = [record for row in rows for record in self._records(*row)]
        return Polled(records, {"taken": ranges([row[0] for row in rows])})

    def forget(self, position: Position) -> None:
        database = self.database
        for first, last in position["taken"]:
            tables = database.marks(len(self.options.tables))
            database.change(
                f"DELETE FROM {database.quote(self.options.log_table)} "
                f"WHERE id BETWEEN {database.mark} AND {database.mark} "
                f"AND table_name IN ({tables})",
                [first, last, *self.options.tables],
            )

    def _records(
        self, number: int, table: str, operation: str, at: Any, before: str | None,
        after: str | None,
    ) -> Iterator[SourceRecord]:  # fmt: skip
        old, new = self._key(table, before), self._key(table, after)
        if operation == "update" and old != new:  # To those who go by keys, two rows.
            yield from self._records(number, table, "delete", at, before, None)
            yield from self._records(number, table, "insert", at, None, after)
            return
        value = {
            "op": operation,
            "table": table,
            "id": number,
            "at": at if isinstance(at, str) else at.isoformat(),
            "before": _raw(before),
            "after": _raw(after),
        }
        key = old if operation == "delete" else new
        yield SourceRecord(msgspec.json.encode(value), key=key)
        if operation == "delete" and self.options.tombstones and key is not None:
            yield SourceRecord(None, key=key)

    def _key(self, table: str, row: str | None) -> bytes | None:
        return None if row is None else row_key(msgspec.json.decode(row), self._keys[table])


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Of growing numbers, runs as first and last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _raw(row: str | None) -> msgspec.Raw | None:
    """JSON that stays as it is, digits and all."""
    return None if row is None else msgspec.Raw(row.encode())


# --- of each database


@dataclass(frozen=True, kw_only=True)
class SqliteQueryOptions(SqliteOptions, QueryOptions):
    pass


@dataclass(frozen=True, kw_only=True)
class SqliteChangesOptions(SqliteOptions, ChangesOptions):
    pass


class SqliteSource(QuerySource):
    Options: ClassVar[type[Any] | None] = SqliteQueryOptions


class SqliteChanges(ChangesSource):
    Options: ClassVar[type[Any] | None] = SqliteChangesOptions


@dataclass(frozen=True, kw_only=True)
class PostgresqlQueryOptions(PostgresqlOptions, QueryOptions):
    pass


@dataclass(frozen=True, kw_only=True)
class PostgresqlChangesOptions(PostgresqlOptions, ChangesOptions):
    pass


class PostgresqlSource(QuerySource):
    Options: ClassVar[type[Any] | None] = PostgresqlQueryOptions


class PostgresqlChanges(ChangesSource):
    Options: ClassVar[type[Any] | None] = PostgresqlChangesOptions


@dataclass(frozen=True, kw_only=True)
class MysqlQueryOptions(MysqlOptions, QueryOptions):
    pass


@dataclass(frozen=True, kw_only=True)
class MysqlChangesOptions(MysqlOptions, ChangesOptions):
    pass


class MysqlSource(QuerySource):
    Options: ClassVar[type[Any] | None] = MysqlQueryOptions


class MysqlChanges(ChangesSource):
    Options: ClassVar[type[Any] | None] = MysqlChangesOptions
