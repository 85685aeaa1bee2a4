"""Transactional clients of a node that crashes, and readers who must not see it.

Writers append to several lists in one transaction, or move money within one account book,
so that its sum is 0 for a reader of committed records who has seen all there is. Two workers
with one transactional id copy a list to another, offsets and all, and fence each other. Some speak
transaction version 1, some version 2. They stall until their transactions time out, abort,
send requests twice, and old ones again much later. At the end all is healed, every open
transaction runs into its timeout, and everything is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity, Transaction
from entrepot.client.connection import Connection
from entrepot.client.errors import ClientError, Unreachable
from entrepot.config import Config, Ports, Topics
from entrepot.core import batch
from entrepot.core.errors import StorageError, UnknownTopic
from entrepot.core.marker import read_marker
from entrepot.core.ports import World
from entrepot.core.record import Record
from entrepot.log.policy import Durability
from entrepot.server import Server
from sim import transaction_messages as messages
from sim.history import Violation
from sim.loop import SimLoop
from sim.transaction_history import TransactionHistory, TransactionOutcome
from sim.trouble import HOST, PATIENCE_S, PORT, Trouble

LISTS = [TopicPartition("lists", number) for number in range(4)]
BOOKS = [TopicPartition("books", number) for number in range(2)]
SOURCE, TARGET = LISTS[0], TopicPartition("copy", 0)
GROUP = "copiers"
WRITERS = 4
TIMEOUT_MS = 2_000
_CONFIG = Config(host=HOST, ports=Ports(kafka=PORT), topics=Topics(segment_bytes=3_000))


class Result(NamedTuple):
    committed: int
    reads: int
    crashes: int
    losses: int  # Crashes that may have taken what was answered.
    faults: int
    trace: str


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


class TransactionWorld(Trouble):
    def __init__(self, loop: SimLoop, *, seconds: float, bug: str | None, **options: Any) -> None:
        machines = [f"p{number}" for number in range(WRITERS + 2)]
        super().__init__(loop, _CONFIG, machines, **options)
        self._seconds = seconds
        self._bug = bug
        self._writers: dict[str, Writer] = {}
        self._positions: dict[TopicPartition, int] = {}  # Below it, readers have read.
        self._sums: dict[tuple[str, TopicPartition], tuple[int, int]] = {}  # Position and sum.
        self._amounts: dict[str, int] = {}  # By value.
        self.seen = TransactionHistory()

    async def run(self) -> Result:
        await self._start_whole()
        await self._make_internal_topics()
        assert self._server is not None
        for topic, count in (("lists", len(LISTS)), ("books", len(BOOKS)), ("copy", 1)):
            await self._server.broker.create_topic(topic, count)
        work = self._nemeses()
        for number in range(WRITERS):
            self._writers[f"p{number}"] = Writer(f"id{number}", 1 + number % 2)
            work.append(self._client(f"p{number}", self._write))
        for number in range(2):
            self._writers[f"p{WRITERS + number}"] = Writer("copier", 1 + number)
            work.append(self._client(f"p{WRITERS + number}", self._copy))
        work += [self._client(f"r{number}", self._look) for number in range(2)]
        tasks = [self._loop.create_task(each) for each in work]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._check()
        seen = self.seen
        counts = self.crashes, self.losses, self.faults
        return Result(seen.committed, seen.reads, *counts, self.history.trace)

    async def _serve(self, doors: World) -> None:
        await super()._serve(doors)
        if self._bug is not None and self._server is not None:
            plant(self._server, self._bug)

    def _lose(self) -> None:
        self.seen.lose()
        self._positions.clear()
        self._sums.clear()

    # --- asking

    async def _ask(
        self, random: Random, connection: Connection, writer: Writer, request: Any
    ) -> Any:
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

    async def _call(
        self, random: Random, connection: Connection, writer: Writer, request: Any
    ) -> Any:
        """Ask until it is not too early. Raises Lost."""
        for _ in range(20):
            response = await self._ask(random, connection, writer, request)
            code = messages.code_of(response)
            if code is ErrorCode.none:
                return response
            if code not in messages.TOO_EARLY:
                raise Lost(code)
            await asyncio.sleep(0.05)
        raise Lost(code)

    # --- transactions

    async def _begin(
        self, random: Random, connection: Connection, writer: Writer
    ) -> ProducerIdentity:
        if writer.producer is None:
            request = messages.init(writer.transactional_id, TIMEOUT_MS)
            response = await self._call(random, connection, writer, request)
            writer.goes_on_as(ProducerIdentity(response.producer_id, response.producer_epoch))
        assert writer.producer is not None
        return writer.producer

    async def _produce(
        self,
        random: Random,
        connection: Connection,
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
        self, random: Random, connection: Connection, writer: Writer, *, commit: bool
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
        connection: Connection,
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

    async def _write(self, name: str, random: Random, connection: Connection) -> None:
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
                await self._produce(random, connection, writer, place, [value])

        commit = random.random() < 0.75
        outcome = await self._transact(random, connection, writer, body, commit=commit)
        self.seen.decide(values[0], outcome)
        _check_open(connection)
        await asyncio.sleep(random.uniform(0, 0.05))

    # --- workers

    async def _copy(self, name: str, random: Random, connection: Connection) -> None:
        """Consume, transform, produce. Who is fenced comes back after a while."""
        writer = self._writers[name]

        async def body() -> None:
            position = await self._committed_offset(connection)
            rows, following = await self._read(name, connection, SOURCE, position)
            if rows:
                await self._produce(random, connection, writer, TARGET, [v for _, v in rows])
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

    async def _committed_offset(self, connection: Connection) -> int:
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

    async def _look(self, name: str, random: Random, connection: Connection) -> None:
        place = random.choice(LISTS)
        known = self._positions.get(place, 0)
        start = random.choice((known, random.randint(0, known)))
        rows, following = await self._read(name, connection, place, start)
        for offset, value in rows:
            self.seen.read(place, offset, value)
        self._positions[place] = max(known, following)
        await self._audit(name, connection, random.choice(BOOKS))
        await asyncio.sleep(random.uniform(0, 0.05))

    async def _audit(self, name: str, connection: Connection, place: TopicPartition) -> None:
        """Where nothing is open, no money was made or lost."""
        position, total = self._sums.get((name, place), (0, 0))
        rows, following = await self._read(name, connection, place, position)
        for offset, value in rows:
            self.seen.read(place, offset, value)
            total += self._amounts[value]
        self._sums[name, place] = following, total
        if following == self.seen.settled_end(name, place) and total:
            raise Violation(f"{place}: the sum is {total} at offset {following}")

    async def _read(
        self, name: str, connection: Connection, place: TopicPartition, offset: int
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

    async def _check(self) -> None:
        """Heal, crash once more for good measure, let all that is open time out, and read."""
        await self._heal()
        await asyncio.sleep(2 * TIMEOUT_MS / 1_000)
        connection = await self._connect("judge")
        logs = {place: await self._read_all(connection, place) for place in (*LISTS, *BOOKS)}
        self.seen.check_final(logs)
        for place in BOOKS:
            if total := sum(self._amounts[value] for _, value in logs[place]):
                raise Violation(f"{place}: the sum is {total} at the end")
        if self.losses:
            return  # Source, copy and offsets may each have lost another part.
        copied = [value for _, value in await self._read_all(connection, TARGET)]
        source = [value for _, value in logs[SOURCE]]
        if copied != source[: len(copied)]:
            raise Violation(f"copied was {copied}, but there is {source}")
        position = await self._committed_offset(connection)
        if sum(offset < position for offset, _ in logs[SOURCE]) != len(copied):
            raise Violation(f"{len(copied)} were copied, but the offset is {position}")

    async def _read_all(
        self, connection: Connection, place: TopicPartition
    ) -> list[tuple[int, str]]:
        rows: list[tuple[int, str]] = []
        position = -1
        following = 0
        while following != position:
            position = following
            found, following = await self._read("judge", connection, place, position)
            rows += found
        assert self._server is not None
        broker = self._server.broker
        try:
            end = broker.served_partition(
                broker.topic(place.topic), place.partition
            ).partition.offset_end
        except UnknownTopic as error:
            raise Violation(f"{place}: {error}") from None
        if following != end:
            raise Violation(f"{place}: readers are held back at {following} of {end}")
        return rows


def _check_open(connection: Connection) -> None:
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


def plant(server: Server, bug: str) -> None:
    """A mistake that a run must find."""
    transactions = server.broker.transactions
    served_at, carry_out = transactions._served_at, transactions._carry_out

    async def hasty(prepared: Transaction) -> None:
        with contextlib.suppress(StorageError):
            await transactions._write_markers(prepared)
        await carry_out(prepared)

    if bug == "marker-left-out":
        transactions._served_at = (  # type: ignore[method-assign]
            lambda place: [] if place == LISTS[2] else served_at(place)
        )
    else:
        assert bug == "marker-before-decision", bug
        transactions._carry_out = hasty  # type: ignore[method-assign]


def transaction_world(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`."""
    return lambda loop: TransactionWorld(
        loop, seconds=seconds, bug=bug, sync_is_noop=sync_is_noop, durability=durability
    ).run()
