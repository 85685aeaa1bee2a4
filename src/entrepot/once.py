"""Do something once for each message, however often the message comes.

At least once, and a consumer to which a second time makes no difference, is exactly once. For
that the id of a message is written down where its effect is, in the same transaction of the
same database: after a crash there are both or neither, and a message that comes again finds
its id and changes nothing.

    payments = Once(connection)

    @payments
    def pay(message_id, euros):
        connection.execute("insert into payments values (?)", [euros])

    pay("p-1", 20)  # True: done.
    pay("p-1", 20)  # False: it was done before.

What is written outside of that transaction, a mail that is sent or a message that is
published, is not covered: it may happen again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol

P = ParamSpec("P")


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...

    def execute(self, statement: str, parameters: Any = ..., /) -> Any: ...


class Connection(Protocol):
    """Of SQLite or PostgreSQL, as Python's drivers have it, with transactions of its own."""

    def cursor(self) -> Any: ...

    def commit(self) -> Any: ...

    def rollback(self) -> Any: ...


class Once:
    def __init__(
        self, connection: Connection, *, table: str = "processed", placeholder: str = "?"
    ) -> None:
        """The table is made where it is missing. PostgreSQL's drivers want `%s` as placeholder."""
        if not table.isidentifier():
            raise ValueError(f"{table!r} is no name of a table")
        self._connection = connection
        self._note = f"insert into {table} (id) values ({placeholder}) on conflict do nothing"
        self._run(
            f"create table if not exists {table} ("
            "id text primary key, at timestamp not null default current_timestamp)"
        )
        self._run(f"delete from {table} where 1 = 0")
        # A driver that commits by itself would leave the id without the effect.
        if getattr(connection, "in_transaction", True) is False:
            raise ValueError("the connection commits by itself: there is no transaction")
        connection.commit()

    def __call__(
        self, work: Callable[Concatenate[str, P], object]
    ) -> Callable[Concatenate[str, P], bool]:
        """Work that takes a message's id first, and uses the connection without committing."""

        @wraps(work)
        def do_once(message_id: str, /, *args: P.args, **kwargs: P.kwargs) -> bool:
            try:
                is_new = self._run(self._note, [message_id]) == 1
                if is_new:
                    work(message_id, *args, **kwargs)
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise
            return is_new

        return do_once

    def _run(self, statement: str, *parameters: object) -> int:
        cursor: Cursor = self._connection.cursor()
        cursor.execute(statement, *parameters)
        return cursor.rowcount
