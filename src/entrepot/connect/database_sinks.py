"""Records into a table, exactly once: their offsets are kept in the same transaction.

A record's value is a JSON object whose fields are columns. It is inserted, or takes the
place of the row with its primary key; a record without a value (a tombstone) deletes that
row. What the value does not say of the primary key, the record's key must.

The offsets are moved on from the very number that was read: if another process has moved
them meanwhile, the transaction fails, and so does this sink. A record that the database
refuses is found by writing the batch again, record by record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Literal, NamedTuple

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.database import Database, StatementError
from entrepot.connect.formats import Misfit, read_json, read_object, to_json
from entrepot.connect.interface import ConnectError, Context, Sink
from entrepot.connect.mysql import MysqlOptions
from entrepot.connect.postgresql import PostgresqlOptions
from entrepot.connect.sqlite import SqliteOptions
from entrepot.connect.threads import OneThread

Refusals = list[tuple[Message, str]]


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    table: str
    primary_key: tuple[str, ...] = ()  # Without: the table's own.
    mode: Literal["upsert", "insert"] = "upsert"
    changes: bool = False  # Values are those of a change log, with op, before and after.
    ignore_unknown: bool = False  # Fields that are no columns are left out.
    offsets_table: str = "entrepot_offsets"


class _Statement(NamedTuple):
    message: Message
    text: str
    parameters: tuple[Any, ...]


class DatabaseSink(Sink):
    def __init__(self, options: Any, context: Context) -> None:
        super().__init__(options, context)
        self._database: Database
        self._thread = OneThread(context.name)
        self._is_open = False
        self._kept: dict[TopicPartition, int] = {}
        self._columns: tuple[str, ...] = ()
        self._keys: tuple[str, ...] = ()

    async def open(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        await self._thread.run(self._open)
        return dict(self._kept)

    async def write(self, messages: Sequence[Message]) -> None:
        for message, reason in await self._thread.run(self._apply, messages):
            await self.context.reject(message, reason)
        await self._thread.run(self._commit, messages)

    async def close(self) -> None:
        if self._is_open:
            await self._thread.run(self._database.close)
        self._thread.close()

    def _open(self) -> None:
        self._database = database = self.options.connect()
        self._is_open = True
        columns = database.known_columns(self.options.table)
        self._columns = tuple(column.name for column in columns)
        own = sorted((c for c in columns if c.key_place), key=lambda column: column.key_place)
        self._keys = self.options.primary_key or tuple(column.name for column in own)
        for name in self._keys:
            if name not in self._columns:
                raise ConnectError(
                    f"options.primary_key: table {self.options.table} has no column {name}"
                )
        if not self._keys and self.options.mode == "upsert":
            raise ConnectError(
                f"table {self.options.table} has no primary key: options.primary_key names "
                'a unique one, or options.mode is "insert"'
            )
        offsets = database.quote(self.options.offsets_table)
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {offsets} (connector VARCHAR(200) NOT NULL, "
            "topic VARCHAR(249) NOT NULL, partition_id INTEGER NOT NULL, "
            "next_offset BIGINT NOT NULL, PRIMARY KEY (connector, topic, partition_id))"
        )
        rows = database.execute(
            f"SELECT topic, partition_id, next_offset FROM {offsets} "
            f"WHERE connector = {database.mark}",
            [self.context.name],
        )
        self._kept = {TopicPartition(topic, part): offset for topic, part, offset in rows}

    # --- one transaction

    def _apply(self, messages: Sequence[Message]) -> Refusals:
        """All of them, in a transaction that stays open; those that cannot be, are returned."""
        refused: Refusals = []
        statements: list[_Statement] = []
        for message in messages:
            try:
                statements.append(self._statement(message))
            except Misfit as error:
                refused.append((message, str(error)))
        self._database.execute(self._database.begin)
        try:
            for text, run in groupby(statements, key=lambda statement: statement.text):
                self._database.change_many(text, [each.parameters for each in run])
        except StatementError:
            self._database.execute("ROLLBACK")
            self._database.execute(self._database.begin)
            refused += self._apply_singly(statements)
        return refused

    def _apply_singly(self, statements: Sequence[_Statement]) -> Refusals:
        refused: Refusals = []
        for statement in statements:
            self._database.execute("SAVEPOINT one")
            try:
                self._database.change(statement.text, statement.parameters)
            except StatementError as error:
                self._database.execute("ROLLBACK TO SAVEPOINT one")
                refused.append((statement.message, str(error)))
            self._database.execute("RELEASE SAVEPOINT one")
        return refused

    def _commit(self, messages: Sequence[Message]) -> None:
        ends = {message.part: message.record.offset + 1 for message in messages}
        for part, end in ends.items():
            self._move(part, end)
        self._database.execute("COMMIT")
        self._kept |= ends

    def _move(self, part: TopicPartition, end: int) -> None:
        database, mark = self._database, self._database.mark
        offsets = database.quote(self.options.offsets_table)
        where = [self.context.name, *part]
        before = self._kept.get(part)
        try:
            if before is None:
                moved = database.change(
                    f"INSERT INTO {offsets} (next_offset, connector, topic, partition_id) "
                    f"VALUES ({database.marks(4)})",
                    [end, *where],
                )
            else:
                moved = database.change(
                    f"UPDATE {offsets} SET next_offset = {mark} WHERE connector = {mark} "
                    f"AND topic = {mark} AND partition_id = {mark} AND next_offset = {mark}",
                    [end, *where, before],
                )
        except StatementError:
            moved = 0
        if moved != 1:
            raise ConnectError(f"connector {self.context.name} runs in another process, too")

    # --- what becomes of one record

    def _statement(self, message: Message) -> _Statement:
        value = message.record.value
        row = None if value is None else read_object(value)
        if row is not None and self.options.changes:
            row = self._changed(row)
        if row is None:
            return self._deletion(message)
        missing = [name for name in self._keys if name not in row]
        if missing:
            key = self._key_of(message)
            row |= {name: key[name] for name in missing if name in key}
        if self.options.ignore_unknown:
            row = {name: value for name, value in row.items() if name in self._columns}
        for name in row:
            if name not in self._columns:
                raise Misfit(f"table {self.options.table} has no column {name}")
        columns = tuple(name for name in self._columns if name in row)
        if not columns:
            raise Misfit("the value has no fields")
        parameters = tuple(_parameter(row[name]) for name in columns)
        return _Statement(message, self._insert(columns), parameters)

    def _changed(self, change: dict[str, Any]) -> dict[str, Any] | None:
        """The row after the change; None when it was deleted."""
        row = change.get("after")
        if change.get("op") not in ("insert", "update", "delete", "snapshot") or (
            row is not None and not isinstance(row, dict)
        ):
            raise Misfit("not a change with op, before and after")
        return row

    def _insert(self, columns: tuple[str, ...]) -> str:
        if self.options.mode == "upsert":
            return self._database.upsert(self.options.table, columns, self._keys)
        names = ", ".join(map(self._database.quote, columns))
        table = self._database.quote(self.options.table)
        return f"INSERT INTO {table} ({names}) VALUES ({self._database.marks(len(columns))})"

    def _deletion(self, message: Message) -> _Statement:
        if self.options.mode == "insert":
            raise Misfit('a deletion, but options.mode is "insert"')
        key = self._key_of(message)
        for name in self._keys:
            if name not in key:
                raise Misfit(f"a deletion whose key does not say {name}")
        mark = self._database.mark
        where = " AND ".join(f"{self._database.quote(name)} = {mark}" for name in self._keys)
        text = f"DELETE FROM {self._database.quote(self.options.table)} WHERE {where}"
        return _Statement(message, text, tuple(_parameter(key[name]) for name in self._keys))

    def _key_of(self, message: Message) -> dict[str, Any]:
        """A JSON object; or anything else, for a primary key of one column."""
        key = message.record.key
        if key is None:
            return {}
        try:
            found = read_json(key)
        except Misfit:
            found = None
        if isinstance(found, dict):
            return found
        if len(self._keys) != 1:
            return {}
        try:  # As text, which the database turns into what its column is.
            return {self._keys[0]: found if isinstance(found, str) else key.decode()}
        except UnicodeDecodeError:
            raise Misfit("the key is not text") from None


def _parameter(value: Any) -> Any:
    return to_json(value).decode() if isinstance(value, dict | list) else value


# --- of each database


@dataclass(frozen=True, kw_only=True)
class SqliteSinkOptions(SqliteOptions, SinkOptions):
    pass


class SqliteSink(DatabaseSink):
    Options: ClassVar[type[Any] | None] = SqliteSinkOptions


@dataclass(frozen=True, kw_only=True)
class PostgresqlSinkOptions(PostgresqlOptions, SinkOptions):
    pass


class PostgresqlSink(DatabaseSink):
    Options: ClassVar[type[Any] | None] = PostgresqlSinkOptions


@dataclass(frozen=True, kw_only=True)
class MysqlSinkOptions(MysqlOptions, SinkOptions):
    pass


class MysqlSink(DatabaseSink):
    Options: ClassVar[type[Any] | None] = MysqlSinkOptions
