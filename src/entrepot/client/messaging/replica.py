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
from typing import TYPE_CHECKING

from entrepot.client.errors import ClientError
from entrepot.client.messaging.topics import FIRST, Entry, TopicReader, TopicVerbs

if TYPE_CHECKING:
    from entrepot.core.record import Record

BATCH_MAX = 1_000  # Records that are appended at once.
POLL_S = 5.0
PAUSE_S = 0.2

logger = logging.getLogger("entrepot.client")

Apply = Callable[[Entry], object]
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

    async def change(self, record: Record) -> object:
        """Append a record; return what `apply` returned for it. Raises ClientError."""
        if self.failure is not None:
            raise self.failure
        result: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending.append((record, result))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        return await result

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
                    if not result.done():
                        result.set_exception(error)
                continue
            finally:
                self._appending -= 1
            for offset, (_, result) in enumerate(some, first):
                if offset in self._early:
                    _resolve(result, self._early[offset])
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
                    _resolve(result, outcome)
                elif self._appending:
                    self._early[entry.offset] = outcome

    def _fail(self, failure: ClientError) -> None:
        self.failure = self.failure or failure
        waiting = [*self._results.values(), *(result for _, result in self._pending)]
        self._results.clear()
        self._pending.clear()
        for each in waiting:
            if not each.done():
                each.set_exception(failure)


def _resolve(result: asyncio.Future[object], outcome: object) -> None:
    if not result.done():
        result.set_result(outcome)


def text_headers(entry: Entry) -> Mapping[str, str]:
    """Return the headers that are texts."""
    return {
        name: value.decode("utf-8", "replace")
        for name, value in entry.headers.items()
        if value is not None
    }
