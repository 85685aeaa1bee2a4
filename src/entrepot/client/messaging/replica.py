"""A state that follows from one partition of a topic: the same for all who read it.

Each client reads the records in their order and applies them to a state of its own. To change the
state is to append a record, and to wait until it has been applied here: what it did then depends
on what stood before it in the log, and everybody comes to the same result. No lock is needed, and a
client that dies leaves nothing undone. A record that was sent again after a connection broke is
there once.

The topic is compacted where that is possible, so a state may be as old as it likes: records with a
key that was written again, or deleted, go some time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.topics import FIRST, Entry, TopicReader, TopicVerbs

if TYPE_CHECKING:
    from entrepot.core.record import Record

BATCH_MAX = 1_000  # Records that are appended at once.
POLL_S = 5.0
PAUSE_S = 0.2

logger = logging.getLogger("entrepot.client")

Apply = Callable[[Entry], object]
Late = Callable[[object], None]
COMPACTED = MappingProxyType({"cleanup.policy": "compact"})


class Replica:
    """Reads a topic from its start, and applies every record once."""

    def __init__(
        self,
        verbs: TopicVerbs,
        topic: str,
        apply: Apply,
        *,
        settings: Mapping[str, str] = COMPACTED,
        partition: int = 0,
        partitions: int = 1,
    ) -> None:
        """`settings` are the topic's, and `partitions` how many it has, if it is made here."""
        self.topic = topic
        self.failure: ClientError | None = None
        self._settings = settings
        self._partition = partition
        self._partitions = partitions
        self._verbs = verbs
        self._apply = apply
        self._reader: TopicReader | None = None
        self._follower: asyncio.Task[None] | None = None
        self._results: dict[int, asyncio.Future[object]] = {}  # By offset, of our own records.
        self._reached: list[tuple[int, asyncio.Future[None]]] = []  # Who waits for an offset.
        self._late: dict[asyncio.Future[object], Late] = {}  # Of those that were cancelled.
        self._early: dict[int, object] = {}  # Applied before we knew that they are ours.
        self._appending = 0  # How many records of ours are on their way.
        self._pending: list[tuple[Record, asyncio.Future[object]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what is there, and go on reading. Raises ClientError."""
        from entrepot.client.admin import Admin, NewTopic
        from entrepot.client.client import LATEST, TopicPartition

        client = await self._verbs.kafka()
        wanted = NewTopic(self.topic, self._partitions, settings=self._settings)
        await Admin(client).ensure_topic(wanted)
        self._reader = await self._verbs.reader(
            self.topic, FIRST, None, committed=True, partition=self._partition
        )
        part = TopicPartition(self.topic, self._partition)
        end = (await client.list_offsets({part: LATEST}))[part].offset
        while self._reader.positions[self._partition] < end:
            for entry in await self._reader.poll(POLL_S):
                self._apply(entry)
        self._follower = asyncio.create_task(self._follow())
        self._verbs.stops(self)

    async def change(self, record: Record, late: Late | None = None) -> object:
        """Append a record; return what `apply` returned for it. Raises ClientError.

        Once it is under way it happens, even if who asked is cancelled; then `late` is called with
        what `apply` returned.
        """
        if self.failure is not None:
            raise self.failure
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending.append((record, result))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        try:
            return await result
        except asyncio.CancelledError:
            if late is not None and result.cancelled():
                self._late[result] = late
            elif late is not None and result.exception() is None:
                late(result.result())
            raise

    async def reached(self, offset: int) -> None:
        """Return when everything before this offset has been applied. Raises ClientError."""
        if self.failure is not None:
            raise self.failure
        if self._position < offset:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._reached.append((offset, waiting))
            await waiting

    @property
    def _position(self) -> int:
        assert self._reader is not None
        return self._reader.positions[self._partition]

    async def stop(self) -> None:
        for task in (self._follower, self._sender):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._fail(ClientError("the client is closed"))

    # --- appending

    async def _send(self) -> None:
        """Append what is pending, many records at a time, in order."""
        while self._pending:
            some, self._pending = self._pending[:BATCH_MAX], self._pending[BATCH_MAX:]
            self._appending += 1
            try:
                records = [record for record, _ in some]
                appender = self._verbs.appender
                _, first = await appender.append(self.topic, self._partition, records)
            except ClientError as error:
                for _, result in some:
                    self._late.pop(result, None)
                    if not result.done():
                        result.set_exception(error)
                continue
            finally:
                self._appending -= 1
            for offset, (_, result) in enumerate(some, first):
                if offset in self._early:
                    self._resolve(result, self._early[offset])
                else:
                    self._results[offset] = result
            if not self._appending:
                self._early.clear()
        self._sender = None

    # --- reading

    async def _follow(self) -> None:
        assert self._reader is not None
        while True:
            try:
                entries = await self._reader.poll(POLL_S)
            except ClientError as error:
                if not error.retriable:
                    self._fail(error)
                    return
                await asyncio.sleep(PAUSE_S)
                continue
            for entry in entries:
                outcome = self._apply(entry)
                result = self._results.pop(entry.offset, None)
                if result is not None:
                    self._resolve(result, outcome)
                elif self._appending:
                    self._early[entry.offset] = outcome
            if self._reached:
                self._tell_reached()

    def _tell_reached(self) -> None:
        position, waiting = self._position, self._reached
        self._reached = [each for each in waiting if each[0] > position]
        for offset, each in waiting:
            if offset <= position and not each.done():
                each.set_result(None)

    def _resolve(self, result: asyncio.Future[object], outcome: object) -> None:
        if not result.done():
            result.set_result(outcome)
        elif (late := self._late.pop(result, None)) is not None:
            late(outcome)

    def _fail(self, failure: ClientError) -> None:
        self.failure = self.failure or failure
        waiting: list[asyncio.Future[Any]] = [
            *self._results.values(),
            *(result for _, result in self._pending),
        ]
        self._results.clear()
        self._pending.clear()
        self._late.clear()
        for each in [*waiting, *(each for _, each in self._reached)]:
            if not each.done():
                each.set_exception(failure)
        self._reached.clear()


def text_headers(entry: Entry) -> Mapping[str, str]:
    """Return the headers that are texts."""
    return {
        name: value.decode("utf-8", "replace")
        for name, value in entry.headers.items()
        if value is not None
    }
