"""What queues and topics got through deduplicating exchanges, so that they get it once.

An id is remembered for each queue that its message went to, and not for the exchange: when a
crash comes between two queues, one has the message and the other has not, and when it is
published again only the other must get it. That also needs no record of its own: the message
in the queue's log has its id, so both are there or neither is. After a restart the ids are
found among the newest messages that the queue still keeps, settled ones too, when the first
message comes through the exchange; until they are found, it waits.

A duplicate is confirmed as if it had been taken. While the first one is on its way, the
duplicate waits for it, and fails with it: what is confirmed is permanent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import Failure, PropertyReader, Publication, Refused, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.stream_reader import StreamReader
from entrepot.broker.router.duplicate import Terms, identity, ttl_ms
from entrepot.broker.router.event import Exchange, ExchangeType
from entrepot.broker.router.router import Router
from entrepot.broker.virtual_host.topic_feed import TopicFeed
from entrepot.core import limits
from entrepot.core.errors import StorageError

Target: TypeAlias = Queue | TopicFeed
Publish = Callable[[Run, Publication | None], None]


class _Mark(NamedTuple):
    id: bytes | None
    until_ms: int


_Found = tuple[int, _Mark]  # When it came.


class _Ids:
    """Those that one queue or topic has."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._until_ms: dict[bytes, int] = {}  # The oldest first.
        # Those on their way, and who waits for them.
        self._arriving: dict[bytes, list[Publication]] = {}

    def admit(
        self, marks: Sequence[_Mark], now_ms: int, publication: Publication | None
    ) -> list[int]:
        """The places of those that are new. They are on their way now."""
        places: list[int] = []
        for place, mark in enumerate(marks):
            if mark.id is None:
                places.append(place)
            elif mark.id in self._arriving:
                if publication is not None:
                    self._arriving[mark.id].append(publication.part([place]))
            elif self._until_ms.get(mark.id, 0) <= now_ms:
                places.append(place)
                self._arriving[mark.id] = []
        return places

    def landed(self, marks: Sequence[_Mark], failure: Failure | None) -> None:
        for place, mark in enumerate(marks):
            if mark.id is not None:
                own = _of_place(failure, place)
                if own is None:
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
    """To one queue or topic."""

    run: Run
    publication: Publication | None
    publish: Publish


class Memory:
    """Of one exchange."""

    def __init__(self, exchange: Exchange, reader: PropertyReader, *, is_old: bool) -> None:
        """An exchange that is older than the process finds ids in the log."""
        self.exchange = exchange
        self._terms = Terms(exchange.settings.ids_max, exchange.settings.ids_ttl_ms)
        self._reader = reader
        self._is_old = is_old
        self._ids: WeakKeyDictionary[Target, _Ids] = WeakKeyDictionary()
        # Where ids are still looked for, and what waits for that.
        self._waiting: dict[Target, list[_Sending]] = {}

    def send(
        self, target: Target, run: Run, publication: Publication | None, publish: Publish
    ) -> None:
        """Publish what the target has not got yet. The publication ends as for the others."""
        sending = _Sending(run, publication, publish)
        ids = self._ids.get(target)
        if ids is None and not self._is_old:
            ids = self._ids[target] = _Ids(self._terms.size)
        if ids is not None:
            self._send(ids, sending)
            return
        if publication is not None:
            publication.expect()
        if target not in self._waiting:
            self._waiting[target] = []
            self._search(target, self._found(target), [])
        self._waiting[target].append(sending)

    def _send(self, ids: _Ids, sending: _Sending) -> None:
        run, publication, publish = sending
        marks = [self._mark(envelope.properties, run.time_ms) for envelope, _ in run.messages]
        places = ids.admit(marks, run.time_ms, publication)
        if not places:
            return
        marks = [marks[place] for place in places]
        told = None if publication is None else publication.part(places)

        def landed(failure: Failure | None) -> None:
            ids.landed(marks, failure)
            if told is not None:
                told.arrived(failure)

        landing = Publication(landed)
        publish(run._replace(messages=[run.messages[place] for place in places]), landing)
        landing.arrived()

    def _mark(self, properties: bytes, time_ms: int) -> _Mark:
        headers = self._reader.headers(properties)
        lasts_ms = ttl_ms(headers, self._terms)
        return _Mark(identity(headers), NEVER if lasts_ms is None else time_ms + lasts_ms)

    # --- after a restart

    def _search(self, target: Target, chunks: Iterator[list[_Found]], found: list[_Found]) -> None:
        """A little in each turn of the loop: there may be very many."""
        asyncio.get_running_loop().call_soon(self._search_on, target, chunks, found)

    def _search_on(
        self, target: Target, chunks: Iterator[list[_Found]], found: list[_Found]
    ) -> None:
        try:
            chunk = next(chunks, None)
        except StorageError as error:
            self._give_up(target, error)
            return
        except Exception:  # Ours: who waits is told, and so is the loop.
            self._give_up(target, StorageError("internal error"))
            raise
        if chunk is not None:
            found += chunk
            self._search(target, chunks, found)
            return
        ids = self._ids[target] = _Ids(self._terms.size)
        for _, mark in sorted(found, key=lambda each: each[0]):
            ids.add(mark)
        for sending in self._waiting.pop(target):
            self._send(ids, sending)
            if sending.publication is not None:
                sending.publication.arrived()

    def _give_up(self, target: Target, failure: StorageError) -> None:
        """Nothing is guessed. The next message asks again."""
        for _, publication, _ in self._waiting.pop(target):
            if publication is not None:
                publication.arrived(failure)

    def _found(self, target: Target) -> Iterator[list[_Found]]:
        """Among its newest messages."""
        if isinstance(target, Queue):
            are_all_kept = target.settings.keeps_all
            chunks = _newest_of_queue(target, self._terms.size)
        else:
            are_all_kept = True
            chunks = _newest_of_topic(target, self._terms.size, self._reader)
        for chunk in chunks:
            yield [found for _, run in chunk for found in self._marks(run, are_all_kept)]

    def _marks(self, run: Run, are_all_kept: bool) -> Iterator[_Found]:
        """Where not all are kept, transient messages did not survive."""
        for (exchange, _, properties), _ in run.messages:
            if exchange == self.exchange.name:
                mark = self._mark(properties, run.time_ms)
                is_kept = are_all_kept or self._reader.facts(properties).is_persistent
                if mark.id is not None and is_kept:
                    yield run.time_ms, mark


def _newest_of_queue(queue: Queue, count: int) -> Iterator[list[Piece]]:
    step = limits.QUEUE_TURN_MESSAGES_MAX
    for lane in queue.lanes:
        end = lane.offset_end
        for first in range(max(lane.offset_start, end - count), end, step):
            yield lane.read(range(first, min(end, first + step)))


def _newest_of_topic(feed: TopicFeed, count: int, reader: PropertyReader) -> Iterator[list[Piece]]:
    for stream in feed.streams():
        reading = StreamReader(stream, reader, max(0, stream.last_stable_offset - count))
        while reading.is_behind:
            yield reading.read(limits.QUEUE_TURN_MESSAGES_MAX)


def _of_place(failure: Failure | None, place: int) -> Failure | None:
    if isinstance(failure, Refused) and failure.places is not None:
        return Refused(str(failure)) if place in failure.places else None
    return failure


class Deduplication:
    """The memories of a virtual host's exchanges."""

    def __init__(self, router: Router, reader: PropertyReader) -> None:
        self._router = router
        self._reader = reader
        self._memories: dict[str, Memory] = {}

    def restored(self, exchanges: Iterable[Exchange]) -> None:
        """These were there before."""
        for exchange in exchanges:
            if exchange.type is ExchangeType.DEDUPLICATION:
                self._memories[exchange.name] = Memory(exchange, self._reader, is_old=True)

    def memory(self, name: str) -> Memory | None:
        """Of the exchange of that name; None when it takes messages as often as they come."""
        exchange = self._router.exchange(name)
        if exchange is None or exchange.type is not ExchangeType.DEDUPLICATION:
            return None
        memory = self._memories.get(name)
        if memory is None or memory.exchange is not exchange:
            self._memories = {  # Others may be gone by now, too.
                each: kept
                for each, kept in self._memories.items()
                if kept.exchange is self._router.exchange(each)
            }
            memory = self._memories[name] = Memory(exchange, self._reader, is_old=False)
        return memory
