"""Transactional clients, and readers who must not see what is not committed.

Writers append to several lists in one transaction, or move money within one account book, so that
its sum is 0 for a reader of committed records who has seen all there is. Two workers with one
transactional id copy a list to another, offsets and all, and fence each other. Some speak
transaction version 1, some version 2. They stall until their transactions time out, abort, send
requests twice, and old ones again much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.client.errors import ClientError, Unreachable
from entrepot.core import batch
from entrepot.core.marker import read_marker
from entrepot.core.record import Record
from sim import transaction_messages as messages
from sim.clock import SimClock
from sim.history import History, Violation
from sim.loop import SimLoop
from sim.transaction_history import TransactionHistory, TransactionOutcome

PATIENCE_S = 1.5
LISTS = [TopicPartition("lists", number) for number in range(4)]
BOOKS = [TopicPartition("books", number) for number in range(2)]
SOURCE, TARGET = LISTS[0], TopicPartition("copy", 0)
GROUP = "copiers"
WRITERS = 4
TIMEOUT_MS = 2_000


class Asked(Protocol):
    """Who is asked: a node on a connection, or a cluster."""

    @property
    def is_open(self) -> bool: ...

    async def ask(self, request: Any, answer: type[Any], timeout_s: float) -> Any: ...

    def close(self) -> None: ...


class Lost(Exception):
    """The transaction cannot go on; its producer begins anew."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Writer:
    transactional_id: str
    version: int
    producer: ProducerIdentity | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)  # The next, in this epoch.
    sent: list[Any] = field(default_factory=list)  # Requests of the past.

    def goes_on_as(self, producer: ProducerIdentity) -> None:
        if producer != self.producer:
            self.producer = producer
            self.sequences.clear()


class TransactionClients:
    """The world provides the rest."""

    tries = 20  # When it is too early.
    _loop: SimLoop
    _clock: SimClock
    history: History

    def __init__(self) -> None:
        self._writers: dict[str, Writer] = {}
        self._positions: dict[TopicPartition, int] = {}  # Below it, readers have read.
        self._sums: dict[tuple[str, TopicPartition], tuple[int, int]] = {}  # Position and sum.
        self._amounts: dict[str, int] = {}  # By value.
        self.seen = TransactionHistory()

    async def _connect(self, name: str) -> Asked:
        raise NotImplementedError

    def _work(self) -> list[tuple[str, Callable[[str, Random, Asked], Coroutine[Any, Any, None]]]]:
        """Return the names of clients, and what each does over and over."""
        work: list[tuple[str, Any]] = []
        for number in range(WRITERS):
            self._writers[f"p{number}"] = Writer(f"id{number}", 1 + number % 2)
            work.append((f"p{number}", self._write))
        for number in range(2):
            self._writers[f"p{WRITERS + number}"] = Writer("copier", 1 + number)
            work.append((f"p{WRITERS + number}", self._copy))
        return work + [(f"r{number}", self._look) for number in range(2)]

    # --- asking

    async def _ask(self, random: Random, connection: Asked, writer: Writer, request: Any) -> Any:
        """Sometimes twice, as when the first answer got lost; sometimes after an old request."""
        if writer.sent and random.random() < 0.1:
            old = random.choice(writer.sent)
            if writer.version == 2 or not messages.belongs_to_any(old):
                await connection.ask(old, messages.answer_of(old), PATIENCE_S)
        writer.sent.append(request)
        del writer.sent[:-20]
        if random.random() < 0.1:
            await connection.ask(request, messages.answer_of(request), PATIENCE_S)
        response = await connection.ask(request, messages.answer_of(request), PATIENCE_S)
        self.history.note(self._loop.time(), type(request).__name__, messages.code_of(response))
        return response

    async def _call(self, random: Random, connection: Asked, writer: Writer, request: Any) -> Any:
        """Ask until it is not too early. Raises Lost."""
        for _ in range(self.tries):
            response = await self._ask(random, connection, writer, request)
            code = messages.code_of(response)
            if code is ErrorCode.none:
                return response
            if code not in messages.TOO_EARLY:
                raise Lost(code)
            await asyncio.sleep(0.05)
        raise Lost(code)

    # --- transactions

    async def _begin(self, random: Random, connection: Asked, writer: Writer) -> ProducerIdentity:
        if writer.producer is None:
            request = messages.init(writer.transactional_id, TIMEOUT_MS)
            response = await self._call(random, connection, writer, request)
            writer.goes_on_as(ProducerIdentity(response.producer_id, response.producer_epoch))
        assert writer.producer is not None
        return writer.producer

    async def _produce_in(
        self,
        random: Random,
        connection: Asked,
        writer: Writer,
        place: TopicPartition,
        values: list[str],
    ) -> None:
        assert writer.producer is not None
        sequence = writer.sequences.get(place, 0)
        data = batch.build(
            [Record(None, value.encode()) for value in values],
            now_ms=self._clock.now_ms(),
            producer_id=writer.producer.id,
            producer_epoch=writer.producer.epoch,
            sequence_first=sequence,
            transactional=True,
        )
        if writer.version == 1:
            request = messages.add(writer.transactional_id, writer.producer, place)
            await self._call(random, connection, writer, request)
        produce = messages.produce(writer.transactional_id, place, data, writer.version)
        await self._call(random, connection, writer, produce)
        writer.sequences[place] = sequence + len(values)

    async def _end(
        self, random: Random, connection: Asked, writer: Writer, *, commit: bool
    ) -> None:
        assert writer.producer is not None
        request = messages.end(
            writer.transactional_id, writer.producer, commit=commit, version=writer.version
        )
        response = await self._call(random, connection, writer, request)
        if writer.version == 2:
            writer.goes_on_as(ProducerIdentity(response.producer_id, response.producer_epoch))

    async def _transact(
        self,
        random: Random,
        connection: Asked,
        writer: Writer,
        body: Callable[[], Coroutine[Any, Any, None]],
        *,
        commit: bool = True,
    ) -> TransactionOutcome:
        """Whatever goes wrong, the producer begins anew: that aborts what it left open.

        Only one that sent its commit does not know what became of it.
        """
        is_sent = False
        try:
            await self._begin(random, connection, writer)
            await body()
            if random.random() < 0.03:
                await asyncio.sleep(TIMEOUT_MS / 1_000 * 1.5)
            is_sent = commit
            await self._end(random, connection, writer, commit=commit)
            return TransactionOutcome.COMMITTED if commit else TransactionOutcome.NEVER
        except Lost as lost:
            self.history.note(self._loop.time(), writer.transactional_id, lost.code)
        except ClientError:
            if is_sent and random.random() < 0.5:
                return await self._end_again(random, writer)
        writer.producer = None
        return TransactionOutcome.UNKNOWN if is_sent else TransactionOutcome.NEVER

    async def _end_again(self, random: Random, writer: Writer) -> TransactionOutcome:
        """The answer to the commit got lost: ask on another connection."""
        try:
            connection = await self._connect("again")
            await self._end(random, connection, writer, commit=True)
            connection.close()
            return TransactionOutcome.COMMITTED
        except (Lost, ClientError):
            writer.producer = None
            return TransactionOutcome.UNKNOWN

    # --- writers

    async def _write(self, name: str, random: Random, connection: Asked) -> None:
        if random.random() < 0.3:
            place = random.choice(BOOKS)
            places = [place, place]
        else:
            places = sorted(random.sample(LISTS, random.randint(1, 3)))
        values = self.seen.begin(name, places)
        amount = random.randint(1, 100)
        for value, sign in zip(values, (-1, 1), strict=False):
            self._amounts[value] = sign * amount if places[0] in BOOKS else 0
        writer = self._writers[name]

        async def body() -> None:
            for place, value in zip(places, values, strict=True):
                await self._produce_in(random, connection, writer, place, [value])

        commit = random.random() < 0.75
        outcome = await self._transact(random, connection, writer, body, commit=commit)
        self.seen.decide(values[0], outcome)
        _check_open(connection)
        await asyncio.sleep(random.uniform(0, 0.05))

    # --- workers

    async def _copy(self, name: str, random: Random, connection: Asked) -> None:
        """Consume, transform, produce. Who is fenced comes back after a while."""
        writer = self._writers[name]

        async def body() -> None:
            position = await self._committed_offset(connection)
            rows, following = await self._read_committed(name, connection, SOURCE, position)
            if rows:
                await self._produce_in(random, connection, writer, TARGET, [v for _, v in rows])
            if following == position:
                return
            assert writer.producer is not None
            if writer.version == 1:
                request = messages.add_offsets(writer.transactional_id, writer.producer, GROUP)
                await self._call(random, connection, writer, request)
            commit = messages.commit_offset(
                writer.transactional_id,
                writer.producer,
                GROUP,
                SOURCE,
                following,
                version=writer.version,
            )
            await self._call(random, connection, writer, commit)

        if (
            await self._transact(random, connection, writer, body)
            is not TransactionOutcome.COMMITTED
        ):
            await asyncio.sleep(random.uniform(0, 0.5))
        _check_open(connection)
        await asyncio.sleep(random.uniform(0, 0.1))

    async def _committed_offset(self, connection: Asked) -> int:
        request = messages.fetch_offset(GROUP, SOURCE)
        response = await connection.ask(request, messages.answer_of(request), PATIENCE_S)
        (group,) = response.groups
        if group.error_code:
            raise Lost(group.error_code)
        ((found,),) = (topic.partitions for topic in group.topics)
        if found.error_code:
            raise Lost(found.error_code)
        return max(0, int(found.committed_offset))

    # --- readers

    async def _look(self, name: str, random: Random, connection: Asked) -> None:
        place = random.choice(LISTS)
        known = self._positions.get(place, 0)
        start = random.choice((known, random.randint(0, known)))
        rows, following = await self._read_committed(name, connection, place, start)
        for offset, value in rows:
            self.seen.read(place, offset, value)
        self._positions[place] = max(known, following)
        await self._audit(name, connection, random.choice(BOOKS))
        await asyncio.sleep(random.uniform(0, 0.05))

    async def _audit(self, name: str, connection: Asked, place: TopicPartition) -> None:
        """Where nothing is open, no money was made or lost."""
        position, total = self._sums.get((name, place), (0, 0))
        rows, following = await self._read_committed(name, connection, place, position)
        for offset, value in rows:
            self.seen.read(place, offset, value)
            total += self._amounts[value]
        self._sums[name, place] = following, total
        if following == self.seen.settled_end(name, place) and total:
            raise Violation(f"{place}: the sum is {total} at offset {following}")

    async def _read_committed(
        self, name: str, connection: Asked, place: TopicPartition, offset: int
    ) -> tuple[list[tuple[int, str]], int]:
        """Committed records from there on, and where to go on."""
        request = messages.fetch(place, offset)
        response = await connection.ask(request, messages.answer_of(request), PATIENCE_S)
        ((found,),) = (topic.partitions for topic in response.responses)
        if found.error_code:
            self.history.note(self._loop.time(), place, found.error_code)
            return [], offset
        self.seen.ends(name, place, found.last_stable_offset, found.high_watermark)
        aborted = [(each.first_offset, each.producer_id) for each in found.aborted_transactions]
        return _committed(found.records or b"", offset, sorted(aborted))

    # --- the end

    async def _check_logs(self, connection: Asked, *, is_lossy: bool) -> None:
        """Read everything. Nothing is open any more."""
        logs = {place: await self._read_all(connection, place) for place in (*LISTS, *BOOKS)}
        self.seen.check_final(logs)
        for place in BOOKS:
            if total := sum(self._amounts[value] for _, value in logs[place]):
                raise Violation(f"{place}: the sum is {total} at the end")
        if is_lossy:
            return  # Source, copy and offsets may each have lost another part.
        copied = [value for _, value in await self._read_all(connection, TARGET)]
        source = [value for _, value in logs[SOURCE]]
        if copied != source[: len(copied)]:
            raise Violation(f"copied was {copied}, but there is {source}")
        position = await self._committed_offset(connection)
        if sum(offset < position for offset, _ in logs[SOURCE]) != len(copied):
            raise Violation(f"{len(copied)} were copied, but the offset is {position}")

    async def _read_all(self, connection: Asked, place: TopicPartition) -> list[tuple[int, str]]:
        rows: list[tuple[int, str]] = []
        position = -1
        following = 0
        while following != position:
            position = following
            found, following = await self._read_committed("judge", connection, place, position)
            rows += found
        end = self._end_of(place)
        if following != end:
            raise Violation(f"{place}: readers are held back at {following} of {end}")
        return rows

    def _end_of(self, place: TopicPartition) -> int:
        """Return where the log ends, committed or not."""
        raise NotImplementedError


def _check_open(connection: Asked) -> None:
    """Raises Unreachable: the client then connects anew."""
    if not connection.is_open:
        raise Unreachable("the connection was lost on the way")


def _committed(
    data: bytes, offset: int, aborted: list[tuple[int, int]]
) -> tuple[list[tuple[int, str]], int]:
    """As a consumer does it: leave out what belongs to an aborted transaction."""
    rows: list[tuple[int, str]] = []
    skipped: dict[int, None] = {}
    for position, header in batch.walk(data):
        whole = data[position : position + header.size]
        batch.check(whole)
        while aborted and aborted[0][0] <= header.offset_last:
            skipped[aborted.pop(0)[1]] = None
        if header.is_control:
            marker = read_marker(whole)
            if marker is not None and not marker.committed:
                skipped.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in skipped):
            for record in batch.records(whole):
                if record.offset >= offset:
                    rows.append((record.offset, (record.value or b"").decode()))
        offset = max(offset, header.offset_end)
    return rows, offset
