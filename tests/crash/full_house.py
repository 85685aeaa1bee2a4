"""A data directory with something of everything, and what a broker gives back of it.

Real files, and brokers in this process: a kill is letting go of the disk. What is read back is
read as clients would: records by offset with their checksums, a queue's messages one by one
with `get`, and what was committed, settled, recorded and declared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from entrepot.broker.broker import Broker, Defaults
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.broker.permissions import Permission, permission_record
from entrepot.broker.queue.message import Publication
from entrepot.broker.router.event import Destination, DestinationKind, ExchangeType
from entrepot.broker.served_partition import committed
from entrepot.broker.share_group.group import ShareHeartbeat
from entrepot.broker.share_group.share_partition import Acknowledgement, AcknowledgeType
from entrepot.core import batch
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.errors import InvalidBatch, OffsetOutOfRange, StorageError
from entrepot.core.message import Envelope
from entrepot.core.neutral import Formats
from entrepot.core.ports import File
from entrepot.core.record import Record
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED, ExchangeDeclaration
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration
from entrepot.log.disk import FileDisk
from entrepot.wire.amqp.properties import BasicProperties, encode

EVENTS, LATEST, WIDE, QUEUE, SHARERS = "events", "latest", "wide", "jobs", "sharers"
WIDE_COUNT = 10  # More than a commit syncs one by one: these go through the journal.
GROUPS = [f"group-{number}" for number in range(6)]
TIMEOUT_S = 30.0
_PROPERTIES = encode(BasicProperties(delivery_mode=2))
_SMALL = {"segment.bytes": "500", "retention.ms": "-1"}


class Refused(NamedTuple):
    """Why something cannot be had."""

    reason: str
    by_client: bool = False  # It checked what the broker passed on as it is.


class QuickDisk(FileDisk):
    """Nobody's power fails here."""

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        return [None] * (len(files) + len(directories))


class LogLines(logging.Handler):
    """What the broker says above the level of information."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Life:
    """One broker, from its start until it is stopped or killed."""

    def __init__(self, directory: Path) -> None:
        self.disk = QuickDisk(directory)
        self.broker = Broker(
            self.disk,
            SystemClock(),
            SystemEntropy(),
            Defaults(),
            formats=Formats((AMQP,)),
            dialect=RabbitDialect(),
            predeclared=PREDECLARED,
        )


def live(directory: Path, story: Callable[[Broker], Awaitable[Any]], *, stops: bool) -> Any:
    """Start a broker, do something with it, and stop or kill it. Raises what a start raises;
    RuntimeError for a mistake of ours in the background, TimeoutError when it hangs."""
    mistakes: list[str] = []

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: mistakes.append(repr(context)))
        life = Life(directory)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await life.broker.open()
                found = await story(life.broker)
                if stops:
                    await life.broker.close()
                return found
        finally:
            life.disk.close()

    found = asyncio.run(main())
    if mistakes:
        raise RuntimeError(mistakes[0])
    return found


@contextmanager
def log_lines() -> Iterator[list[str]]:
    handler, logger = LogLines(), logging.getLogger("entrepot")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield handler.lines
    finally:
        logger.propagate = propagates
        logger.removeHandler(handler)


# --- writing


def furnish(directory: Path, *, stops: bool) -> None:
    """In two lives: what the first one wrote is known to be permanent in the second."""
    live(directory, _first_half, stops=False)
    live(directory, _second_half, stops=stops)


async def _first_half(broker: Broker) -> None:
    await broker.create_topic(EVENTS, 1, _SMALL)
    await broker.create_topic(LATEST, 1, {**_SMALL, "cleanup.policy": "compact"})
    await broker.create_topic(WIDE, WIDE_COUNT)
    vhost = broker.vhosts.default
    await vhost.declare_queue(QueueDeclaration("/", QUEUE), object())
    await vhost.declare_exchange(ExchangeDeclaration("/", "work", ExchangeType.TOPIC))
    await vhost.bind(BindingDeclaration("work", Destination(DestinationKind.QUEUE, QUEUE), "job.*"))
    await broker.change_security(permission_record("ana", "/", Permission("^a", "^b", "^c")))
    await broker.share_groups.alter_settings(SHARERS, {"share.auto.offset.reset": "earliest"})
    await _beat(broker)
    await _fill(broker, 0)
    partition = broker.served_partition(broker.topic(LATEST), 0).partition
    await broker._log.cleaner.clean(partition)


async def _second_half(broker: Broker) -> None:
    await broker.create_topic("late")
    await _fill(broker, 1)


async def _fill(broker: Broker, half: int) -> None:
    for number in range(5 * half, 5 * half + 5):
        values = [b"%d-%d" % (number, each) * 10 for each in range(3)]
        await _append(broker, EVENTS, [Record(None, value) for value in values], producer=7)
        await _append(broker, LATEST, [Record(b"key-%d" % (number % 2), v) for v in values])
        await _publish(broker, values)
        for group in GROUPS:
            offsets = {TopicPartition(EVENTS, 0): CommittedOffset(3 * number, -1, "", -1)}
            await broker.groups.commit_offsets(group, "", -1, offsets)
    rows = [broker.served_partition(broker.topic(WIDE), index) for index in range(WIDE_COUNT)]
    ends = [served.append(_batch([Record(None, b"wide-%d" % half)])).offset_end for served in rows]
    for served, end in zip(rows, ends, strict=True):
        await committed(served.partition, end)
    await broker.transactions.init_producer_id("pay", 60_000)
    await _settle(broker)
    await _share(broker)


def _batch(records: list[Record], **facts: Any) -> bytes:
    return batch.build(records, now_ms=SystemClock().now_ms(), **facts)


async def _append(broker: Broker, topic: str, records: list[Record], producer: int = -1) -> None:
    served = broker.served_partition(broker.topic(topic), 0)
    facts: dict[str, int] = {}
    if producer >= 0:
        sequence = served.partition.offset_end
        facts = {"producer_id": producer, "producer_epoch": 0, "sequence_first": sequence}
    await committed(served.partition, served.append(_batch(records, **facts)).offset_end)


async def _publish(broker: Broker, bodies: list[bytes]) -> None:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    publication = Publication(done.set_result)
    envelope = Envelope("", QUEUE, _PROPERTIES, AMQP)
    nowhere = broker.vhosts.default.publish("", [(envelope, body) for body in bodies], publication)
    publication.arrived()
    assert not nowhere
    assert await done is None


async def _settle(broker: Broker) -> None:
    """Four of the next six, out of order."""
    queue, owner = broker.vhosts.default.queue(QUEUE), object()
    taken = [queue.get(owner, auto_ack=False) for _ in range(6)]
    for place in (0, 1, 3, 5):
        got = taken[place]
        assert got is not None
        queue.settle(owner, got[0], got[1].offsets)
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    queue.when_settlements_committed(done.set_result)
    assert await done is None
    queue.release(owner)


async def _beat(broker: Broker) -> None:
    told = broker.share_groups.heartbeat(
        SHARERS, ShareHeartbeat("m", 0, None, (EVENTS,), "client", "/host")
    )
    if isinstance(told, Awaitable):
        await told


async def _share(broker: Broker) -> None:
    owner, groups = object(), broker.share_groups
    share = groups.partition(SHARERS, broker.topic(EVENTS), 0)
    found = share.acquire(owner, 4, 1 << 20, groups.now(), is_strict=True)
    assert found is not None
    told = [Acknowledgement(each.offsets, [AcknowledgeType.ACCEPT]) for each in found.acquired[:1]]
    share.acknowledge(owner, told, groups.now())
    await groups._store.kept()
    share.release(owner)


# --- reading


async def read_back(broker: Broker) -> dict[str, object]:
    """Everything by its name: what it is, or `Refused`."""
    found: dict[str, object] = {"catalog": _catalog(broker)}
    for topic in (EVENTS, LATEST):
        found[topic] = _or_refused(lambda name=topic: _records(broker, name, 0))
        found[f"{topic} by time"] = _or_refused(lambda name=topic: _by_time(broker, name))
    for index in range(WIDE_COUNT):
        found[f"{WIDE}-{index}"] = _or_refused(lambda n=index: _records(broker, WIDE, n))
    for group in GROUPS:
        found[group] = _or_refused(lambda name=group: _committed(broker, name))
    found[SHARERS] = _or_refused(lambda: _shared(broker))
    found["pay"] = _or_refused(lambda: _transaction(broker))
    found[QUEUE] = _or_refused(lambda: _messages(broker))
    return found


def _or_refused(read: Callable[[], object]) -> object:
    try:
        return read()
    except (StorageError, OSError) as error:
        return Refused(str(error))
    except OffsetOutOfRange as error:  # A client would go on somewhere else, without a word.
        return error
    except InvalidBatch as error:
        return Refused(str(error), by_client=True)


def _catalog(broker: Broker) -> object:
    topics = {name: (topic.id, topic.settings) for name, topic in broker.topics.items()}
    router = broker.vhosts.default.router
    bindings = sorted(map(repr, router.bindings()))
    return topics, dict(broker.permissions.entries), bindings, broker.cluster_id


def _records(broker: Broker, topic: str, index: int) -> list[tuple[int, bytes | None]]:
    """As a consumer gets them, which checks what it gets, and asks for what follows."""
    partition = broker.served_partition(broker.topic(topic), index).partition
    partition.check_readable(partition.offset_start)
    position, found = partition.offset_start, list[tuple[int, bytes | None]]()
    while (part := partition.read(position, 1 << 20)) is not None:
        data = part.file.read(part.position, part.size)
        before = position
        for start, header in batch.walk(data):
            whole = data[start : start + header.size]
            batch.check(whole, allow_gaps=True)
            records = [each for each in batch.records(whole) if each.offset >= position]
            found += [(each.offset, each.value) for each in records]
            position = header.offset_end
        if position <= before:
            raise StorageError(f"{part.file.path} does not go on at offset {position}")
    return found


def _by_time(broker: Broker, topic: str) -> object:
    partition = broker.served_partition(broker.topic(topic), 0).partition
    partition.check_readable(partition.offset_start)
    first = partition.offset_for_time(0)
    assert first is not None, "there are records"
    latest = partition.latest_time()
    assert latest is not None
    return first[0], latest


def _committed(broker: Broker, group: str) -> object:
    broker.groups.check_fetch(group, None, -1)
    found = broker.groups.fetch_offsets(group, None)
    return {place: each.offset for place, each in found.items() if hasattr(each, "offset")}


def _shared(broker: Broker) -> object:
    share = broker.share_groups.partition(SHARERS, broker.topic(EVENTS), 0)
    return share.ledger.offset_low, share.lag


def _transaction(broker: Broker) -> object:
    found = broker.transactions.get("pay")
    return found and found.producer


def _messages(broker: Broker) -> object:
    """How many are promised, and all of them."""
    queue, owner = broker.vhosts.default.queue(QUEUE), object()
    queue.check_up()
    promised, found = queue.ready_count, []
    while (got := queue.get(owner, auto_ack=False)) is not None:
        found.append(bytes(got[1].run.messages[0][1]))
    queue.release(owner)
    return promised, found
