"""Do something for each message in the order of the broker's numbers, and once for each.

Messages that are sent again come late, or twice. Where the broker gives each a number as it
arrives (an offset of a topic, which share groups hand out, too), numbers repair both: what has a
number that was there before is dropped, and what is too early waits until those before it have
come. What waits is written down, with what was done, in one transaction of one database: so a
message may be acknowledged as soon as it was taken, and a crash changes nothing.

    bookings = InOrder(connection)

    @bookings
    def book(number, body):
        connection.execute("insert into bookings values (?, ?)", [number, body])

    book(1, b"second")  # []: it waits.
    book(0, b"first")  # [0, 1]: done, in this order.
    book(1, b"second")  # []: it was done before.

Numbers must not have gaps: a topic that is compacted, or written in transactions, has some.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from entrepot.once import Connection, Cursor

WAITING_MAX = 100_000


class TooFarAhead(Exception):
    """Too many messages wait for one that has not come."""


class InOrder:
    def __init__(
        self,
        connection: Connection,
        *,
        table: str = "arrived",
        placeholder: str = "?",
        first: int = 0,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """The table is made where it is missing. PostgreSQL's drivers want `%s` as placeholder.

        `first` is the number of the first message, for a table that is new.
        """
        if not table.isidentifier():
            raise ValueError(f"{table!r} is no name of a table")
        self._connection = connection
        self._waiting_max = waiting_max
        # What waits, and in one row without a body which number comes next.
        self._add = f"insert into {table} values ({placeholder}, {placeholder})"
        self._find = f"select body from {table} where number = {placeholder} and body is not null"
        self._remove = f"delete from {table} where number = {placeholder} and body is not null"
        self._advance = f"update {table} set number = {placeholder} where body is null"
        self._next = f"select number from {table} where body is null"
        self._count = f"select count(*) - 1 from {table}"
        binary = "blob" if placeholder == "?" else "bytea"
        self._run(f"create table if not exists {table} (number bigint not null, body {binary})")
        if self._value(self._next) is None:
            self._run(self._add, [first, None])
        connection.commit()

    @property
    def next(self) -> int:
        """Return the number of the message that is to be done next."""
        found = self._value(self._next)
        assert isinstance(found, int)
        return found

    def __call__(self, work: Callable[[int, bytes], object]) -> Callable[[int, bytes], list[int]]:
        """Work that uses the connection without committing. Returns the numbers that were done."""

        @wraps(work)
        def take(number: int, body: bytes) -> list[int]:
            try:
                done = self._take(work, number, body)
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise
            return done

        return take

    def _take(self, work: Callable[[int, bytes], object], number: int, body: bytes) -> list[int]:
        following = self.next
        if number > following:
            self._wait(number, body)
            return []
        done: list[int] = []
        found: bytes | None = body if number == following else None
        while found is not None:
            work(following, found)
            self._run(self._remove, [following])
            done.append(following)
            following += 1
            kept = self._value(self._find, [following])
            found = None if kept is None else bytes(kept)  # type: ignore[call-overload]
        if done:
            self._run(self._advance, [following])
        return done

    def _wait(self, number: int, body: bytes) -> None:
        if self._value(self._find, [number]) is not None:
            return
        waiting = self._value(self._count)
        assert isinstance(waiting, int)
        if waiting >= self._waiting_max:
            raise TooFarAhead(f"{waiting} messages wait for number {self.next}")
        self._run(self._add, [number, body])

    def _run(self, statement: str, *parameters: object) -> None:
        cursor: Cursor = self._connection.cursor()
        cursor.execute(statement, *parameters)

    def _value(self, statement: str, *parameters: object) -> object:
        cursor = self._connection.cursor()
        cursor.execute(statement, *parameters)
        row = cursor.fetchone()
        return None if row is None else row[0]
