"""What the lectures say of a broker, of Kafka's topics, partitions, producers and consumers.

Real clients throughout; bare frames only where a client hides what is to be seen. Consumers
assign themselves partitions; what groups do is `test_consumer_groups`'s.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
from confluent_kafka import TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName

from entrepot.testing import Broker, broker
from tests.end_to_end.bare import BareClient, batch_of, fetch_request, now_ms, values_of
from tests.end_to_end.clients import CLIENTS, Kcat, Message

WAIT_S = 30
Offsets = dict[int, int]  # By partition: where to begin.


@contextlib.contextmanager
def consumer_of(
    server: Broker, topic: str, offsets: Offsets | None = None
) -> Iterator[confluent_kafka.Consumer]:
    settings = {"group.id": "unused", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, **settings})
    try:
        places = (offsets or {0: 0}).items()
        consumer.assign([TopicPartition(topic, index, offset) for index, offset in places])
        yield consumer
    finally:
        consumer.close()


def take(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    found = consumer.consume(count, WAIT_S)
    assert [message.error() for message in found if message.error()] == []
    assert len(found) == count
    return [message.value() for message in found]


def producer_of(server: Broker, **settings: object) -> confluent_kafka.Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, **named})


def send(server: Broker, topic: str, *values: bytes) -> None:
    """Acknowledged, and the producer is gone."""
    producer = producer_of(server)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


# --- decoupling


def test_a_consumer_born_after_the_producer_left(server: Broker, client: BareClient) -> None:
    """It gets the past and then the future. Proves A-01. Proves C-09."""
    client.create("later")
    send(server, "later", b"past 1", b"past 2")
    with consumer_of(server, "later") as late:
        assert take(late, 2) == [b"past 1", b"past 2"]
        send(server, "later", b"future")
        assert take(late, 1) == [b"future"]


def test_they_know_a_topic_and_not_each_other(server: Broker, client: BareClient) -> None:
    """Nothing that is delivered says where it comes from. Proves A-02. Proves A-12 in part."""
    client.create("space")
    producer = producer_of(server, client_id="somebody-in-particular")
    producer.produce("space", b"value", b"key")
    assert producer.flush(WAIT_S) == 0
    (fetched,) = client.fetch(fetch_request("space")).topics[0].partitions
    assert b"value" in bytes(fetched.records)
    assert b"somebody" not in bytes(fetched.records)
    assert b"127.0.0.1" not in bytes(fetched.records)


def test_neither_waits_for_the_other(server: Broker, client: BareClient) -> None:
    """Sending ends without a consumer; receiving is a callback beside other work.
    Proves A-03."""
    client.create("pace")
    send(server, "pace", b"nobody listens")

    async def work() -> None:
        received: asyncio.Queue[bytes] = asyncio.Queue()

        async def call_back(consumer: aiokafka.AIOKafkaConsumer) -> None:
            async for record in consumer:
                received.put_nowait(record.value)

        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=server.bootstrap)
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition("pace", 0)])
        await consumer.seek_to_beginning()
        listening = asyncio.create_task(call_back(consumer))
        assert await received.get() == b"nobody listens"
        other_work = 0
        while received.empty():
            other_work += 1
            if other_work == 10:
                await asyncio.to_thread(send, server, "pace", b"somebody does")
            await asyncio.sleep(0.001)
        assert other_work >= 10
        assert received.get_nowait() == b"somebody does"
        listening.cancel()
        await consumer.stop()

    asyncio.run(asyncio.wait_for(work(), WAIT_S))


@pytest.mark.usefixtures("every_durability")
def test_what_was_acknowledged_survives() -> None:
    """kill -9 and a new start. Proves A-04."""
    with broker() as server:
        send(server, "durable", *(b"%d" % number for number in range(100)))
        server.kill()
        server.start()
        with consumer_of(server, "durable") as consumer:
            assert take(consumer, 100) == [b"%d" % number for number in range(100)]


def test_consumers_come_and_go_under_traffic(server: Broker, client: BareClient) -> None:
    """Proves A-07."""
    client.create("traffic")
    sent = [b"%d" % number for number in range(400)]
    producer = producer_of(server, linger_ms=0)
    with consumer_of(server, "traffic") as steady:
        found = []
        for first in range(0, 400, 100):
            with consumer_of(server, "traffic", {0: first}) as passing:
                for value in sent[first : first + 100]:
                    producer.produce("traffic", value)
                    producer.poll(0)
                assert take(passing, 10) == sent[first : first + 10]
            found += take(steady, 100)
        assert producer.flush(WAIT_S) == 0
        assert found == sent


def test_a_burst_is_absorbed(server: Broker, client: BareClient) -> None:
    """Ten times as fast as the consumer, which then catches up. Proves A-08 in part: it is
    short, and nobody holds a watch."""
    client.create("burst")
    sent = [b"%06d" % number * 16 for number in range(20_000)]
    producer = producer_of(server, linger_ms=5)
    with consumer_of(server, "burst") as slow:
        found: list[bytes] = []
        for first in range(0, len(sent), 1_000):
            for value in sent[first : first + 1_000]:
                producer.produce("burst", value)
            assert producer.flush(WAIT_S) == 0
            found += take(slow, 100)
        assert len(found) == len(sent) // 10
        found += take(slow, len(sent) - len(found))
    assert found == sent


# --- topics and partitions


def test_nobody_one_or_many_subscribe(server: Broker, client: BareClient) -> None:
    """Each gets everything. Proves I-01. Proves A-06 in part: queues are not here yet."""
    client.create("many")
    send(server, "many", b"a", b"b")
    for count in (0, 1, 3):
        with contextlib.ExitStack() as stack:
            consumers = [stack.enter_context(consumer_of(server, "many")) for _ in range(count)]
            assert [take(each, 2) for each in consumers] == [[b"a", b"b"]] * count


def test_a_partition_is_numbered_ordered_and_immutable(client: BareClient) -> None:
    """Proves I-02. Proves I-03 in part: no gaps occur yet."""
    client.create("log", 3)
    for index in range(3):
        for number in range(4):
            result = client.produce("log", batch_of(b"%d.%d" % (index, number)), partition=index)
            assert result.offset_first == number
    before = [client.read("log", partition=index) for index in range(3)]
    client.produce("log", batch_of(b"more"), partition=1)
    after = [client.read("log", partition=index) for index in range(3)]
    assert [records[:4] for records in after] == before
    assert [[record.offset for record in records] for records in before] == [[0, 1, 2, 3]] * 3
    missing = client.produce("log", batch_of(b"x"), partition=3)
    assert missing.error_code == ErrorCode.unknown_topic_or_partition


def test_consumers_read_at_offsets_of_their_own(server: Broker, client: BareClient) -> None:
    """In any order, also backwards. Proves I-05."""
    client.create("offsets")
    send(server, "offsets", *(b"%d" % number for number in range(10)))
    with consumer_of(server, "offsets", {0: 2}) as one, consumer_of(server, "offsets") as other:
        assert take(one, 3) == [b"2", b"3", b"4"]
        assert take(other, 2) == [b"0", b"1"]
        for offset in (9, 0, 5):
            one.seek(TopicPartition("offsets", 0, offset))
            assert take(one, 1) == [b"%d" % offset]
        assert take(other, 8) == [b"%d" % number for number in range(2, 10)]


@pytest.mark.parametrize("name", CLIENTS)
def test_m1_to_m5_stay_in_order(server: Broker, client: BareClient, name: str) -> None:
    """Proves I-06."""
    if name == "kcat" and not Kcat.is_installed():
        pytest.skip("kcat is not installed")
    topic = f"order-{name}"
    client.create(topic)
    sent = [b"m%d" % number for number in range(1, 6)]
    for value in sent:  # A producer for each: nothing but the log orders them.
        message = Message(b"k", value, (), now_ms())
        CLIENTS[name](server.bootstrap).write(topic, "none", [message])
    found = CLIENTS[name](server.bootstrap).read(topic, 5, offset=0)
    assert [message.value for message in found] == sent


def test_order_by_key_and_none_across_partitions(server: Broker, client: BareClient) -> None:
    """Proves I-07."""
    client.create("keys", 4)
    producer = producer_of(server)
    sent = [(b"user %d" % (number % 20), number) for number in range(400)]
    for key, number in sent:
        producer.produce("keys", b"%d" % number, key)
    assert producer.flush(WAIT_S) == 0
    with consumer_of(server, "keys", dict.fromkeys(range(4), 0)) as consumer:
        found = [(m.key(), int(m.value())) for m in consumer.consume(400, WAIT_S)]
    assert [number for _, number in found] != list(range(400)), "in order by chance?"
    for key in {key for key, _ in sent}:
        expected = [number for other, number in sent if other == key]
        assert [number for other, number in found if other == key] == expected


def test_producers_write_one_partition_at_once(server: Broker, client: BareClient) -> None:
    """Each one's records stay in their order. Proves I-08. Proves I-04 in part: there is
    one node, and the partitions are written and read in parallel."""
    client.create("shared", 2)
    per_producer, producers = 500, 4

    def write(number: int) -> None:
        producer = producer_of(server, linger_ms=0)
        for count in range(per_producer):
            producer.produce("shared", b"%d %d" % (number, count), partition=count % 2)
        assert producer.flush(WAIT_S) == 0

    threads = [threading.Thread(target=write, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(2):
        records = client.read("shared", partition=index)
        offsets = [record.offset for record in records]
        assert offsets == list(range(producers * per_producer // 2))
        rows = [tuple(map(int, value.split())) for value in values_of(records) if value]
        for number in range(producers):
            mine = [count for other, count in rows if other == number]
            assert mine == list(range(index, per_producer, 2))


# --- producers


def test_a_key_has_one_partition_whoever_writes(server: Broker, client: BareClient) -> None:
    """By murmur2, as Kafka's own client does it. Proves J-02."""
    client.create("hashed", 5)
    keys = [b"user %d" % number for number in range(30)]
    librdkafka = producer_of(server, partitioner="murmur2_random")
    python = kafka.KafkaProducer(bootstrap_servers=server.bootstrap)
    for key in keys:
        librdkafka.produce("hashed", b"1", key)
        python.send("hashed", b"2", key)
    assert librdkafka.flush(WAIT_S) == 0
    python.close()
    places: dict[bytes | None, list[int]] = {}
    for index in range(5):
        for record in client.read("hashed", partition=index):
            places.setdefault(record.key, []).append(index)
    assert sorted(places) == sorted(keys)
    assert all(len(found) == 2 and len(set(found)) == 1 for found in places.values())
    assert len({found[0] for found in places.values()}) == 5, "all in one place"


def test_without_a_key_they_are_spread(server: Broker, client: BareClient) -> None:
    """Proves J-03."""
    client.create("spread", 4)
    producer = producer_of(server, linger_ms=0, sticky_partitioning_linger_ms=0)
    for number in range(200):
        producer.produce("spread", b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    counts = [len(client.read("spread", partition=index)) for index in range(4)]
    assert sum(counts) == 200
    assert min(counts) > 0, counts


def test_a_partitioner_of_ones_own(server: Broker, client: BareClient) -> None:
    """Proves J-04."""
    client.create("chosen", 3)

    numbers = random.Random(1).sample(range(100), 30)

    def last_digit(key: bytes, every: list[int], available: list[int]) -> int:
        return int(key[-1:]) % len(every)

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.bootstrap, partitioner=last_digit
        )
        async with producer:
            for number in numbers:
                await producer.send("chosen", b"", b"%d" % number)

    asyncio.run(asyncio.wait_for(write(), WAIT_S))
    for index in range(3):
        expected = [b"%d" % number for number in numbers if number % 10 % 3 == index]
        assert [record.key for record in client.read("chosen", partition=index)] == expected


def test_any_bootstrap_server_will_do(server: Broker, client: BareClient) -> None:
    """The first is not there. Metadata names every broker, and who leads what; producers
    go there. Proves J-05. Proves J-06. Proves J-01 in part: nobody else could lead."""
    client.create("led", 3)
    admin = confluent_kafka.admin.AdminClient(
        {"bootstrap.servers": f"127.0.0.1:1,{server.bootstrap}"}
    )
    metadata = admin.list_topics("led", WAIT_S)
    host, port = server.endpoints["kafka"]
    (node,) = metadata.brokers.values()
    assert (node.host, node.port) == (host, port)
    leaders = [each.leader for each in metadata.topics["led"].partitions.values()]
    assert leaders == [node.id] * 3
    producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:1,{server.bootstrap}"})
    producer.produce("led", b"value", partition=2)
    assert producer.flush(WAIT_S) == 0
    assert values_of(client.read("led", partition=2)) == [b"value"]


# --- topics that are not there


def described(client: BareClient, topic: str, *, create: bool) -> ErrorCode:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
    )
    (answer,) = client.ask(request).topics
    return answer.error_code


def test_topics_are_made_when_first_used_if_allowed(server: Broker, client: BareClient) -> None:
    assert described(client, "made", create=False) is ErrorCode.unknown_topic_or_partition
    send(server, "made", b"value")
    assert values_of(client.read("made")) == [b"value"]
    assert described(client, "a/b", create=True) is ErrorCode.invalid_topic_exception
    with broker(settings={"topics.auto_create": False}) as strict:
        producer = producer_of(strict, message_timeout_ms=500)
        failures = []
        producer.produce("made", b"x", on_delivery=lambda error, _: failures.append(error.name()))
        producer.flush(WAIT_S)
        assert failures[0] in ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART", "_MSG_TIMED_OUT")
        with BareClient(strict) as other:
            assert described(other, "made", create=True) is ErrorCode.unknown_topic_or_partition
            result = other.produce("made", batch_of(b"x"))
            assert result.error_code == ErrorCode.unknown_topic_or_partition
