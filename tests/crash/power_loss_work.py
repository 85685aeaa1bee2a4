"""A broker at work: clients of Kafka and AMQP, and what they are told.

There are topics and queues in tiny segments, commits to many partitions at once and to few,
retention, compaction and transactions, so that within a second or two everything happens
that changes names and bytes on the disk. Every answer is noted between the operations.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9 import request as commits
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.store import PARTITIONS as OFFSET_PARTITIONS
from entrepot.broker.consumer_group.store import TOPIC as OFFSETS
from entrepot.broker.transaction import ProducerIdentity
from entrepot.broker.transaction_coordinator import PARTITIONS as TRANSACTION_PARTITIONS
from entrepot.broker.transaction_coordinator import TOPIC as TRANSACTIONS
from entrepot.broker.virtual_host.queue_maker import LEDGERS
from entrepot.client.connection import Connection
from entrepot.config import Config, Ports, Security
from entrepot.core import batch
from entrepot.core.ports import Disk, World
from entrepot.core.record import Record
from entrepot.log.partition import Partition
from entrepot.server import Server
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, confirm, queue, tx
from entrepot.wire.amqp.properties import PERSISTENT, BasicProperties, encode
from sim import transaction_messages as messages
from sim.amqp_client import AmqpClient, Heard
from sim.clock import SimClock
from sim.entropy import SimEntropy
from sim.loop import SimLoop
from sim.net import SimNetwork
from sim.trouble import HOST, PATIENCE_S, PORT, SMALL
from tests.crash.recorder import Recorder

AMQP_PORT = 5672
# Topics: one with batches to some partitions, one with batches to all of them at once, which
# is more than a commit syncs one by one, so it goes through the journal; one that is not kept
# for long, and one for transactions.
ORDERS, WIDE, BRIEF, MONEY = "orders", "wide", "brief", "money"
PARTITIONS = 12
BRIEF_PARTITIONS = 2
QUEUES = ["q0", "q1", "q2"]
GROUP = "group"
TRANSACTION_MS = 1_000
TOPICS = {
    ORDERS: (PARTITIONS, {"segment.bytes": "700"}),
    WIDE: (PARTITIONS, {"segment.bytes": "300"}),
    BRIEF: (
        BRIEF_PARTITIONS,
        {"segment.bytes": "400", "retention.bytes": "1500", "file.delete.delay.ms": "20"},
    ),
    MONEY: (3, {"segment.bytes": "700"}),
}
_CONFIG = Config(
    host=HOST,
    ports=Ports(kafka=PORT, amqp=AMQP_PORT, http=None, sqs=None),
    security=Security(insecure=True),
)


class Node:
    """A server on a disk, in a world in which nothing else goes wrong."""

    def __init__(self, loop: SimLoop, disk: Disk) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self._network = SimNetwork(loop.random("network"))
        entropy = SimEntropy(loop.random("entropy"))
        doors = World(self.clock, entropy, disk, self._network.door(HOST))
        self.server = Server(_CONFIG, doors)

    def partition(self, topic: str, number: int) -> Partition:
        broker = self.server.broker
        return broker.served_partition(broker.topic(topic), number).partition

    @asynccontextmanager
    async def kafka(self, name: str) -> AsyncIterator[Connection]:
        net = self._network.door(name)
        connection = await Connection.open(net, HOST, PORT, client_id=name, timeout_s=PATIENCE_S)
        yield connection
        connection.close()

    async def amqp(self, name: str, heard: Heard) -> AmqpClient:
        return await AmqpClient.open(self._network.door(name), (HOST, AMQP_PORT), heard)


class Work(Node):
    """Clients that note what they are told. What they note:

    ("begun", ) when the names are there; ("record", topic, partition, offset, value);
    ("start", partition, offset) of the topic that is not kept for long; ("offset", partition,
    offset) of the group; ("message", queue, value); ("settling" and "settled", queue, value);
    ("transacting" and "transacted", [(partition, value), ...]).
    """

    def __init__(self, loop: SimLoop, recorder: Recorder, seconds: float) -> None:
        super().__init__(loop, recorder)
        self._seconds = seconds
        self._note = recorder.note
        self._end_s = 0.0
        self._numbers = 0
        self._starts = [0] * BRIEF_PARTITIONS

    async def run(self) -> int:
        """Returns how many commits went through the journal."""
        await self.server.start()
        await self._declare()
        self._note("begun")
        self._end_s = self.loop.time() + self._seconds
        watching = self.loop.create_task(self._watch_starts())
        await asyncio.gather(
            self._produce("p0", ORDERS, (1, 1, 2, PARTITIONS)),
            self._produce("p1", WIDE, (PARTITIONS,)),
            self._produce("p2", BRIEF, (1,)),
            self._commit_offsets("o0"),
            self._transact("t0"),
            self._transact("t1"),
            self._publish("a0"),
            self._consume("a1"),
        )
        watching.cancel()
        return self.server.broker._log.committer.rounds_journaled

    async def _declare(self) -> None:
        broker = self.server.broker
        internal = [(OFFSETS, OFFSET_PARTITIONS), (TRANSACTIONS, TRANSACTION_PARTITIONS)]
        for topic, count in [*internal, (LEDGERS, 1)]:
            await broker.internal_topic(topic, count, SMALL)
        for topic, (count, settings) in TOPICS.items():
            await broker.create_topic(topic, count, settings)
        client = await self.amqp("judge", _deaf)
        for name in QUEUES:
            declare = queue.Declare(0, name, durable=True, arguments={"x-retention-ms": 0})
            await client.ask(declare, queue.DeclareOk)
        await client.leave()

    def _goes_on(self) -> bool:
        return self.loop.time() < self._end_s

    def _value(self, name: str) -> str:
        self._numbers += 1
        return f"{name}:{self._numbers}"

    def _batch(self, values: Sequence[str], **producer: Any) -> bytes:
        rows = [Record(None, each.encode(), (("pad", bytes(len(each) * 9)),)) for each in values]
        return batch.build(rows, now_ms=self.clock.now_ms(), **producer)

    async def _produce(self, name: str, topic: str, counts: Sequence[int]) -> None:
        """To that many partitions at once."""
        random, partitions = self.loop.random(name), range(TOPICS[topic][0])
        async with self.kafka(name) as connection:
            while self._goes_on():
                chosen = sorted(random.sample(partitions, random.choice(counts)))
                values = {number: self._value(name) for number in chosen}
                sent = {number: self._batch([value]) for number, value in values.items()}
                request = _produce_request(topic, sent)
                answer = await connection.ask(request, messages.answer_of(request), PATIENCE_S)
                for row in answer.responses[0].partition_responses:
                    assert row.error_code == ErrorCode.none
                    self._note("record", topic, row.index, row.base_offset, values[row.index])
                await asyncio.sleep(random.uniform(0, 0.03))

    async def _watch_starts(self) -> None:
        """Retention may take what was answered: never more than it had said by then."""
        while True:
            for number in range(BRIEF_PARTITIONS):
                start = self.partition(BRIEF, number).offset_start
                if start > self._starts[number]:
                    self._starts[number] = start
                    self._note("start", number, start)
            await asyncio.sleep(0.000_1)

    async def _commit_offsets(self, name: str) -> None:
        random, offset = self.loop.random(name), 0
        async with self.kafka(name) as connection:
            while self._goes_on():
                offset += random.randint(1, 9)
                number = random.randrange(PARTITIONS)
                row = commits.OffsetCommitRequestPartition(
                    partition_index=i32(number), committed_offset=i64(offset), committed_metadata=""
                )
                topic = commits.OffsetCommitRequestTopic(name=TopicName(ORDERS), partitions=(row,))
                request = commits.OffsetCommitRequest(
                    group_id=GroupId(GROUP), member_id="", topics=(topic,)
                )
                answer = await connection.ask(request, messages.answer_of(request), PATIENCE_S)
                assert answer.topics[0].partitions[0].error_code == ErrorCode.none
                self._note("offset", number, offset)
                await asyncio.sleep(random.uniform(0, 0.05))

    # --- transactions

    async def _transact(self, name: str) -> None:
        random = self.loop.random(name)
        async with self.kafka(name) as connection:
            answer = await _call(connection, messages.init(name, TRANSACTION_MS))
            producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            sequences: Counter[int] = Counter()
            while self._goes_on():
                chosen = sorted(random.sample(range(3), random.randint(1, 3)))
                rows = [(number, self._value(name)) for number in chosen]
                self._note("transacting", rows)
                for number, value in rows:
                    data = self._batch(
                        [value],
                        producer_id=producer.id,
                        producer_epoch=producer.epoch,
                        sequence_first=sequences[number],
                        transactional=True,
                    )
                    sequences[number] += 1
                    await _call(
                        connection, messages.produce(name, TopicPartition(MONEY, number), data, 2)
                    )
                end = messages.end(name, producer, commit=True, version=2)
                answer = await _call(connection, end)
                self._note("transacted", rows)
                if (answer.producer_id, answer.producer_epoch) != producer:
                    producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
                    sequences.clear()
                await asyncio.sleep(random.uniform(0, 0.05))

    # --- queues

    async def _publish(self, name: str) -> None:
        random = self.loop.random(name)
        sent: dict[int, tuple[str, str]] = {}  # By number, those not confirmed.
        numbers = itertools.count(1)

        def heard(method: Method, _: bytes, __: bytes) -> None:
            assert isinstance(method, basic.Ack)
            last = method.delivery_tag
            for number in [n for n in sent if n == last or (method.multiple and n < last)]:
                self._note("message", *sent.pop(number))

        client = await self.amqp(name, heard)
        await client.ask(confirm.Select(), confirm.SelectOk)
        properties = encode(BasicProperties(delivery_mode=PERSISTENT))
        while self._goes_on():
            run = [(random.choice(QUEUES), self._value(name)) for _ in range(random.randint(1, 4))]
            sent.update({next(numbers): each for each in run})
            client.publish(
                [(basic.Publish(0, "", to), properties, value.encode()) for to, value in run]
            )
            await asyncio.sleep(random.uniform(0, 0.03))
        await asyncio.sleep(0.1)
        await client.leave()

    async def _consume(self, name: str) -> None:
        random = self.loop.random(name)
        found: list[str] = []
        client = await self.amqp(name, lambda _, __, body: found.append(body.decode()))
        await client.ask(tx.Select(), tx.SelectOk)
        while self._goes_on():
            chosen = random.choice(QUEUES)
            for _ in range(random.randint(1, 6)):
                await client.ask(basic.Get(0, chosen), basic.GetOk, basic.GetEmpty)
            if found:
                for value in found:
                    self._note("settling", chosen, value)
                client.say(basic.Ack(0, multiple=True))
                await client.ask(tx.Commit(), tx.CommitOk)
                for value in found:
                    self._note("settled", chosen, value)
                found.clear()
            await asyncio.sleep(random.uniform(0, 0.06))
        await client.leave()


def _deaf(method: Method, properties: bytes, body: bytes) -> None:
    raise AssertionError(method)


def _produce_request(topic: str, batches: dict[int, bytes]) -> Any:
    first, *others = (
        messages.produce("", TopicPartition(topic, n), data, 2) for n, data in batches.items()
    )
    rows = first.topic_data[0].partition_data
    for other in others:
        rows += other.topic_data[0].partition_data
    (data,) = first.topic_data
    kind = type(first)
    return kind(
        transactional_id=None,
        acks=first.acks,
        timeout=first.timeout,
        topic_data=(type(data)(name=data.name, partition_data=rows),),
    )


async def _call(connection: Connection, request: Any) -> Any:
    """The answer without an error, asked for again while it is too early."""
    for _ in range(100):
        answer = await connection.ask(request, messages.answer_of(request), PATIENCE_S)
        code = messages.code_of(answer)
        if code not in messages.TOO_EARLY:
            assert code is ErrorCode.none, code
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(code)
