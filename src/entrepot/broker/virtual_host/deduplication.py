"""Deduplicating exchanges: each queue or topic gets a message with the same id once.

Ids are remembered for each queue and not for the exchange: after a crash one queue may have the
message and another not, and when it is published again only the other one must get it. Ids are
not stored separately: the stored message contains its id. After a restart, when the first
message comes through the exchange, the ids are read from the newest messages that the queue
still keeps, settled ones included; until that is done, the message waits.

A duplicate is confirmed as if it had been published. If the first message is not committed yet,
the duplicate is confirmed or refused together with it: what is confirmed is permanent. In a cluster
a message may be refused because it is on too few nodes, and be there nevertheless: its duplicates
are not appended, and confirmed as soon as enough nodes are in sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import Failure, Publication, Refused, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.stream_reader import StreamReader
from entrepot.broker.router.event import Exchange, ExchangeType
from entrepot.broker.router.router import Router
from entrepot.broker.virtual_host.topic_feed import TopicFeed
from entrepot.core import limits
from entrepot.core.errors import NotEnoughReplicasAfterAppend, StorageError
from entrepot.core.message import Envelope
from entrepot.core.neutral import Formats

_TARGETS_MIN = 10

Target: TypeAlias = Queue | TopicFeed
Publish = Callable[[Run, Publication | None], object]


class _Mark(NamedTuple):
    """The deduplication id of a message, if it has one, and until when it is remembered."""

    id: bytes | None
    until_ms: int


_Found = tuple[int, _Mark]  # When the message was published, and its id.


class _Ids:
    """The ids of the newest messages of one queue or topic."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._until_ms: dict[bytes, int] = {}  # When each id expires; the oldest id first.
        # Ids of messages that are not committed yet, and the duplicates that wait for them.
        self._arriving: dict[bytes, list[Publication]] = {}
        self.searched: dict[int, int] = {}  # By lane: below which offset ids were looked for.

    def admit(
        self, marks: Sequence[_Mark], now_ms: int, publication: Publication | None
    ) -> tuple[list[int], list[int]]:
        """Return the places of the messages that are no duplicates, which are to be published, and
        of those that are stored.

        The publication of any other is answered together with the message it duplicates.
        """
        places: list[int] = []
        stored: list[int] = []
        for place, mark in enumerate(marks):
            if mark.id is None:
                places.append(place)
            elif mark.id in self._arriving:
                if publication is not None:
                    self._arriving[mark.id].append(publication.part([place]))
            elif self._until_ms.get(mark.id, 0) <= now_ms:
                places.append(place)
                self._arriving[mark.id] = []
            else:
                stored.append(place)
        return places, stored

    def arrived(self, marks: Sequence[_Mark], failure: Failure | None) -> None:
        """Remember the ids of messages that are committed, and answer their duplicates."""
        for place, mark in enumerate(marks):
            if mark.id is not None:
                own = _of_place(failure, place)
                if own is None or isinstance(own, NotEnoughReplicasAfterAppend):
                    self.add(mark)
                for waiting in self._arriving.pop(mark.id):
                    waiting.arrived(own)

    def add(self, mark: _Mark) -> None:
        assert mark.id is not None
        self._until_ms.pop(mark.id, None)
        self._until_ms[mark.id] = mark.until_ms
        if len(self._until_ms) > self._size:
            del self._until_ms[next(iter(self._until_ms))]


class _Sending(NamedTuple):
    """A run that is to be published to one queue or topic."""

    run: Run
    publication: Publication | None
    publish: Publish


class Memory:
    """The ids that the queues and topics behind one exchange have got through it."""

    def __init__(self, exchange: Exchange, formats: Formats, *, is_old: bool) -> None:
        """Start without ids. If the exchange `is_old`, from before the start, they are read
        from the stored messages of each target when it is first used, and again from those that
        are newer when it is used after `look_again`."""
        self.exchange = exchange
        self._ids_max = exchange.settings.ids_max
        self._ids_ttl_ms = exchange.settings.ids_ttl_ms
        self._formats = formats
        self._is_old = is_old
        self._ids: dict[Target, _Ids] = {}  # Deleted targets are removed now and then.
        self._targets_max = _TARGETS_MIN  # When there are so many, deleted targets are removed.
        # Targets whose ids are still being read, and the runs that wait for that.
        self._waiting: dict[Target, list[_Sending]] = {}
        self._doubted: dict[Target, None] = {}  # Targets that may have got other messages since.

    def look_again(self) -> None:
        """Note that targets may have got messages past this memory."""
        self._doubted |= dict.fromkeys((*self._ids, *self._waiting))

    def send(
        self, target: Target, run: Run, publication: Publication | None, publish: Publish
    ) -> None:
        """Publish to the target the messages that it has not got yet.

        The publication is answered for duplicates, too.
        """
        sending = _Sending(run, publication, publish)
        ids = self._ids.get(target)
        if ids is None and not self._is_old:
            ids = self._begin(target)
        if ids is not None and target not in self._doubted and target not in self._waiting:
            self._send(target, ids, sending)
            return
        if publication is not None:
            publication.expect()
        if target not in self._waiting:
            self._waiting[target] = []
            self._begin_search(target)
        self._waiting[target].append(sending)

    def _send(self, target: Target, ids: _Ids, sending: _Sending) -> None:
        run, publication, publish = sending
        marks = [self._mark(envelope, run.time_ms) for envelope, _ in run.messages]
        places, stored = ids.admit(marks, run.time_ms, publication)
        if stored and publication is not None and isinstance(target, Queue):
            target.when_safe(publication.part(stored).arrived)
        if not places:
            return
        marks = [marks[place] for place in places]
        part = None if publication is None else publication.part(places)

        def arrived(failure: Failure | None) -> None:
            ids.arrived(marks, failure)
            if part is not None:
                part.arrived(failure)

        inner = Publication(arrived)
        publish(run._replace(messages=[run.messages[place] for place in places]), inner)
        inner.arrived()

    def _begin(self, target: Target) -> _Ids:
        """Begin to remember a target's ids; now and then remove those of deleted targets."""
        if len(self._ids) >= self._targets_max:
            self._ids = {each: ids for each, ids in self._ids.items() if not each.is_gone}
            self._doubted = {each: None for each in self._doubted if not each.is_gone}
            self._targets_max = max(_TARGETS_MIN, 2 * len(self._ids))
        ids = self._ids[target] = _Ids(self._ids_max)
        return ids

    def _mark(self, envelope: Envelope, time_ms: int) -> _Mark:
        handling = envelope.handling
        ttl_ms = handling.deduplication_ttl_ms
        if ttl_ms is None:
            ttl_ms = self._ids_ttl_ms
        until_ms = NEVER if ttl_ms is None else time_ms + ttl_ms
        return _Mark(handling.deduplication_id, until_ms)

    # --- after a restart, or a failure

    def _begin_search(self, target: Target) -> None:
        self._doubted.pop(target, None)
        ids = self._ids.get(target)
        searched = {} if ids is None else ids.searched.copy()
        self._search(target, self._found(target, searched), [], searched)

    def _search(
        self,
        target: Target,
        chunks: Iterator[list[_Found]],
        found: list[_Found],
        searched: dict[int, int],
    ) -> None:
        """Read the next chunk of the target's ids in the next turn of the loop.

        There may be very many ids, so all of them at once would take too long.
        """
        asyncio.get_running_loop().call_soon(self._search_on, target, chunks, found, searched)

    def _search_on(
        self,
        target: Target,
        chunks: Iterator[list[_Found]],
        found: list[_Found],
        searched: dict[int, int],
    ) -> None:
        try:
            chunk = next(chunks, None)
        except StorageError as error:
            self._give_up(target, error)
            return
        except Exception:  # A bug: the publishers that wait get an answer, the loop the error.
            self._give_up(target, StorageError("internal error"))
            raise
        if chunk is not None:
            found += chunk
            self._search(target, chunks, found, searched)
            return
        ids = self._ids.get(target) or self._begin(target)
        ids.searched = searched
        for _, mark in sorted(found, key=lambda each: each[0]):
            ids.add(mark)
        if target in self._doubted:  # More may have come meanwhile.
            self._begin_search(target)
            return
        for sending in self._waiting.pop(target):
            self._send(target, ids, sending)
            if sending.publication is not None:
                sending.publication.arrived()

    def _give_up(self, target: Target, failure: StorageError) -> None:
        """Fail the publications that wait. The next message starts the search again."""
        self._doubted[target] = None
        for _, publication, _ in self._waiting.pop(target):
            if publication is not None:
                publication.arrived(failure)

    def _found(self, target: Target, searched: dict[int, int]) -> Iterator[list[_Found]]:
        """Yield the ids of the target's newest messages, in chunks; of a queue only those that
        were not `searched`, which is brought up to date."""
        if isinstance(target, Queue):
            are_all_kept = target.settings.keeps_all
            chunks = _newest_of_queue(target, self._ids_max, searched)
        else:
            are_all_kept = True
            chunks = _newest_of_topic(target, self._ids_max, self._formats)
        for chunk in chunks:
            yield [found for _, run in chunk for found in self._marks(run, are_all_kept)]

    def _marks(self, run: Run, are_all_kept: bool) -> Iterator[_Found]:
        """Yield the ids of a run's messages that came through this exchange.

        Unless the target keeps all messages, transient ones did not survive the restart, and
        may be published again.
        """
        for envelope, _ in run.messages:
            if envelope.exchange == self.exchange.name:
                mark = self._mark(envelope, run.time_ms)
                is_kept = are_all_kept or envelope.handling.is_persistent
                if mark.id is not None and is_kept:
                    yield run.time_ms, mark


def _newest_of_queue(queue: Queue, count: int, searched: dict[int, int]) -> Iterator[list[Piece]]:
    step = limits.QUEUE_TURN_MESSAGES_MAX
    for number, lane in enumerate(queue.lanes):
        end = lane.offset_end
        start = max(lane.offset_start, end - count, searched.get(number, 0))
        for first in range(start, end, step):
            yield lane.read(range(first, min(end, first + step)))
        searched[number] = end


def _newest_of_topic(feed: TopicFeed, count: int, formats: Formats) -> Iterator[list[Piece]]:
    for served in feed.served_partitions():
        reading = StreamReader(served, formats, max(0, served.last_stable_offset - count))
        while reading.is_behind:
            yield reading.read(limits.QUEUE_TURN_MESSAGES_MAX)


def _of_place(failure: Failure | None, place: int) -> Failure | None:
    """Return the failure of the message at that place, or None if it did not fail."""
    if isinstance(failure, Refused) and failure.places is not None:
        return Refused(str(failure)) if place in failure.places else None
    return failure


class Deduplication:
    """The memories of a virtual host's deduplicating exchanges, made when they are first used."""

    def __init__(self, router: Router, formats: Formats) -> None:
        self._router = router
        self._formats = formats
        self._memories: dict[str, Memory] = {}

    def restored(self, exchanges: Iterable[Exchange]) -> None:
        """Add a memory for each of the exchanges that were declared before the start."""
        for exchange in exchanges:
            if exchange.type is ExchangeType.DEDUPLICATION:
                self._memories[exchange.name] = Memory(exchange, self._formats, is_old=True)

    def memory(self, name: str) -> Memory | None:
        """Return the memory of that exchange. None means: it does not deduplicate."""
        exchange = self._router.exchange(name)
        if exchange is None or exchange.type is not ExchangeType.DEDUPLICATION:
            return None
        memory = self._memories.get(name)
        if memory is None or memory.exchange is not exchange:
            self._memories = {  # Removes those of exchanges that were deleted meanwhile.
                each: kept
                for each, kept in self._memories.items()
                if kept.exchange is self._router.exchange(each)
            }
            memory = self._memories[name] = Memory(exchange, self._formats, is_old=False)
        return memory
