"""Transactions of a tuple space: what is written and taken in one happens at once, or not at all.

A transaction gathers: nobody sees what it writes, and what it takes stays for all others, but for
takers of the same client. When it is committed, its records are appended as a transaction of the
topic, which nobody sees before its end. The topic shows no record behind an open transaction; so
when this client has applied all that it is shown, it knows what there is exactly where its own
records stand, and nothing can come between. If all is still there that was read and taken, the
transaction is committed. Otherwise it is aborted: somebody else was faster.

So there are no locks, and a client that dies leaves none. One that dies in the middle of a commit
has the others wait until the broker aborts the transaction, `TIMEOUT_MS` later.

In a space of several partitions records are appended to one after the other, always in the same
order, each time waiting for those before: so no two transactions wait for each other. Where a
transaction has only read, it appends a record that says nothing, and so has its turn there, too:
until it is over, nobody can take what it has read, and the whole of it happens at one moment. One
that has read in a single partition and done nothing else needs none: what is known of a partition
was so at some moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.templates import Held, Tuple, Written, matches
from entrepot.core.record import Record

if TYPE_CHECKING:
    from entrepot.client.messaging.spaces import Space
    from entrepot.client.transaction_writer import TransactionWriter

TIMEOUT_MS = 10_000
OPERATIONS_MAX = 10_000  # Of one transaction.


class Conflict(ClientError):
    """Somebody else has taken what a transaction has read or taken: nothing of it has happened.

    It may be tried again.
    """


class SpaceTransaction:
    """Operations on a space that wait for the commit. Made by `Space.transaction`."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._written: dict[str, tuple[Held, Record]] = {}
        self._taken: dict[str, Held] = {}
        self._read: dict[str, Held] = {}
        self._is_over = False

    async def write(self, *fields: Any, lease_s: float | None = None) -> Written:
        """Put a tuple into the space, when the transaction is committed. See `Space.write`."""
        self._check()
        held, record = self._space.made(fields, lease_s)
        held.value = tuple(json.loads(bytes(record.value or b"")))  # As it will be read.
        self._written[held.id] = held, record
        return Written(held.id, fields)

    async def read(self, *template: Any, timeout_s: float | None = None) -> Tuple:
        """Return a tuple that matches, also one that was written here. See `Space.read`."""
        self._check()
        for held, _ in self._written.values():
            if matches(template, held.value):
                return held.value
        held = await self._space.found(template, timeout_s)
        self._read[held.id] = held
        return held.value

    async def take(self, *template: Any, timeout_s: float | None = None) -> Tuple:
        """Take a tuple that matches, also one that was written here. See `Space.take`."""
        self._check()
        for held, _ in self._written.values():
            if matches(template, held.value):
                del self._written[held.id]
                return held.value
        held = await self._space.found(template, timeout_s)
        self._space.unfile(held)  # Nobody else here shall take it.
        self._taken[held.id] = held
        return held.value

    def _check(self) -> None:
        if self._is_over:
            raise ClientError("the transaction is over")
        if len(self._written) + len(self._taken) + len(self._read) >= OPERATIONS_MAX:
            raise ClientError(f"a transaction has at most {OPERATIONS_MAX} operations")

    async def commit(self) -> None:
        """Let everything happen. Raises Conflict, and ClientError if it cannot be said whether it
        happened."""
        self._is_over = True
        records = self._records()
        if len(records) <= 1 and not (self._taken or self._written):
            self._check_there(self._read.values())
            return
        writer = await self._space.writer()
        try:
            ends = await self._append(writer, records)
            await writer.commit()
        except BaseException:
            with suppress(ClientError):  # Else it is aborted when its time is over.
                await writer.abort()
            raise
        self._space.writers.append(writer)
        for place, end in ends.items():
            await self._space.replica(place).reached(end)

    def _records(self) -> dict[int, list[Record]]:
        """Return what is to be appended, by partition."""
        found: dict[int, list[Record]] = {}
        for held in self._taken.values():
            found.setdefault(held.place, []).extend(self._space.takes(held))
        for held, record in self._written.values():
            found.setdefault(held.place, []).append(record)
        for held in self._read.values():
            found.setdefault(held.place, [self._space.nothing()])
        return dict(sorted(found.items()))

    async def _append(
        self, writer: TransactionWriter, records: dict[int, list[Record]]
    ) -> dict[int, int]:
        """Append all records; return the ends of each partition's. Raises Conflict."""
        from entrepot.client.client import TopicPartition

        await self._space.read_up([*records])
        wanted, ends = [*self._taken.values(), *self._read.values()], {}
        for place, some in records.items():
            part = TopicPartition(self._space.topic, place)
            first = (await writer.write({part: some}))[part]
            await self._space.replica(place).reached(first)
            self._check_there(held for held in wanted if held.place == place)
            ends[place] = first + len(some)
        return ends

    def _check_there(self, wanted: Iterable[Held]) -> None:
        for held in wanted:
            if not self._space.has(held):
                raise Conflict(f"{held.value} was taken by somebody else")

    def end(self) -> None:
        """Give back what was taken and is still there: the transaction was not committed."""
        self._is_over = True
        for held in self._taken.values():
            self._space.file_again(held)
