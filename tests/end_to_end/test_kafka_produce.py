"""What a producer is promised: no duplicates, and what an answer means.

Idempotence is tried with bare frames, which say exactly what is repeated, and with a real
client that loses its answers.
"""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from entrepot.core.batch import Codec, walk
from entrepot.testing import Broker, broker
from entrepot.wire.kafka.api import Api
from tests.end_to_end.bare import (
    BareClient,
    batch_of,
    fetch_request,
    now_ms,
    produce_frame,
    values_of,
)
from tests.end_to_end.clients import CODECS, Confluent, Message
from tests.end_to_end.proxy import Proxy

WAIT_S = 30


# --- idempotence


def numbered(producer: int, sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    return batch_of(*values, producer_id=producer, producer_epoch=epoch, sequence_first=sequence)


def test_duplicates_are_dropped_and_gaps_refused(client: BareClient) -> None:
    """By producer id, epoch and sequence number. Proves N-03."""
    client.create("once")
    producer = client.new_producer_id()
    first = client.produce("once", numbered(producer, 0, b"a", b"b"))
    assert (first.error_code, first.offset_first) == (0, 0)
    assert client.produce("once", numbered(producer, 0, b"a", b"b")) == first
    assert client.produce("once", numbered(producer, 2, b"c")).offset_first == 2
    assert client.produce("once", numbered(producer, 0, b"a", b"b")) == first
    for data, code in (
        (numbered(producer, 5, b"gap"), ErrorCode.out_of_order_sequence_number),
        (numbered(producer, 1, b"part"), ErrorCode.duplicate_sequence_number),
        (numbered(producer, 7, b"epoch", epoch=1), ErrorCode.out_of_order_sequence_number),
    ):
        assert client.produce("once", data).error_code == code
    assert client.produce("once", numbered(producer, 0, b"d", epoch=1)).offset_first == 3
    late = client.produce("once", numbered(producer, 3, b"late"))
    assert late.error_code == ErrorCode.invalid_producer_epoch
    assert values_of(client.read("once")) == [b"a", b"b", b"c", b"d"]


def test_only_within_the_life_of_a_producer(client: BareClient) -> None:
    """A producer that asks for a new id is a new one: what it repeats is written twice."""
    client.create("twice")
    for _ in range(2):
        client.produce("twice", numbered(client.new_producer_id(), 0, b"a"))
    assert values_of(client.read("twice")) == [b"a", b"a"]


@pytest.mark.usefixtures("every_durability")
def test_who_wrote_what_survives_a_restart_and_a_kill() -> None:
    with broker() as server:
        with BareClient(server) as client:
            client.create("kept")
            producer = client.new_producer_id()
            sent = [numbered(producer, number, b"%d" % number) for number in range(3)]
            answers = [client.produce("kept", data) for data in sent]
        server.restart()
        with BareClient(server) as client:
            assert client.produce("kept", sent[2]) == answers[2]
            sent.append(numbered(producer, 3, b"3"))
            answers.append(client.produce("kept", sent[3]))
        server.kill()
        server.start()
        with BareClient(server) as client:
            assert [client.produce("kept", data) for data in sent] == answers
            gap = client.produce("kept", numbered(producer, 9, b"gap"))
            assert gap.error_code == ErrorCode.out_of_order_sequence_number
            assert client.produce("kept", numbered(producer, 4, b"4")).offset_first == 4
            assert client.new_producer_id() > producer
            assert values_of(client.read("kept")) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.fixture(scope="module")
def disturbed() -> Iterator[tuple[Proxy, BareClient]]:
    """A broker whose clients come through a proxy; and a client that does not."""
    with Proxy() as proxy, broker(settings={"advertised.kafka_port": proxy.port}) as server:
        proxy.broker = server.endpoints["kafka"]
        with BareClient(server) as client:
            yield proxy, client


def producer_through(proxy: Proxy, **settings: Any) -> confluent_kafka.Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return confluent_kafka.Producer(
        {"bootstrap.servers": proxy.bootstrap, "reconnect.backoff.ms": 10, "linger.ms": 0, **named}
    )


def test_a_real_producer_that_loses_its_answers_writes_once(
    disturbed: tuple[Proxy, BareClient],
) -> None:
    """Three answers are lost on the way; the client repeats, the broker does not."""
    proxy, client = disturbed
    client.create("once")
    producer = producer_through(proxy, enable_idempotence=True, retry_backoff_ms=10)
    before = len(proxy.seen(Api.PRODUCE))
    sent = [b"%d" % number for number in range(20)]
    for number, value in enumerate(sent):
        if number % 7 == 3:
            proxy.lose_answers(Api.PRODUCE, 1)
        producer.produce("once", value)
        assert producer.flush(WAIT_S) == 0
    assert len(proxy.seen(Api.PRODUCE)) - before >= len(sent) + 3, "nothing was repeated"
    assert values_of(client.read("once")) == sent


@pytest.mark.parametrize(
    ("idempotence", "stored"),
    [(True, [b"a", b"b", b"c"]), (False, [b"a", b"a", b"b", b"c"])],
    ids=["idempotent", "plain"],
)
def test_a_lost_answer_stores_twice_without_idempotence(
    disturbed: tuple[Proxy, BareClient], idempotence: bool, stored: list[bytes]
) -> None:
    proxy, client = disturbed
    topic = f"lost-answer-{idempotence}"
    client.create(topic)
    producer = producer_through(proxy, enable_idempotence=idempotence, retry_backoff_ms=10)
    proxy.lose_answers(Api.PRODUCE, 1)
    for value in (b"a", b"b", b"c"):
        producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0
    assert values_of(client.read(topic)) == stored


@pytest.mark.parametrize(
    ("idempotence", "stored"),
    [(True, [b"a", b"b"]), (False, [b"b", b"a"])],
    ids=["idempotent", "plain"],
)
def test_a_refusal_reorders_without_idempotence(
    disturbed: tuple[Proxy, BareClient], idempotence: bool, stored: list[bytes]
) -> None:
    """The first of two requests under way is refused, and comes again after the other."""
    proxy, client = disturbed
    found: list[list[bytes]] = []
    while [b"before", *stored] not in found and len(found) < (1 if idempotence else 10):
        topic = f"refused-{idempotence}-{len(found)}"
        client.create(topic)
        producer = producer_through(
            proxy, enable_idempotence=idempotence, retry_backoff_ms=500, batch_num_messages=1
        )
        producer.produce(topic, b"before")
        assert producer.flush(WAIT_S) == 0
        proxy.refuse_produces(1)
        for value in (b"a", b"b"):  # On a busy machine the first may be refused too soon.
            producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0
        found.append(values_of(client.read(topic)))
    assert found[-1] == [b"before", *stored]


# --- acks


def test_what_acks_mean(client: BareClient) -> None:
    """0: no answer. 1 and all: it is committed, so everybody can read it. Proves M-07."""
    client.create("acks")
    client.send(produce_frame("acks", batch_of(b"0"), acks=0))
    first = client.produce("acks", batch_of(b"1"), acks=1)
    assert (first.error_code, first.offset_first) == (0, 1)
    assert values_of(client.read("acks")) == [b"0", b"1"]
    second = client.produce("acks", batch_of(b"all"), acks=-1)
    assert (second.error_code, second.offset_first) == (0, 2)
    assert values_of(client.read("acks"))[-1] == b"all"
    refused = client.produce("acks", batch_of(b"2"), acks=2)
    assert refused.error_code == ErrorCode.invalid_required_acks


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_with_a_real_client(server: Broker, client: BareClient, acks: str) -> None:
    topic = f"acks-{acks}"
    client.create(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "acks": acks})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    expected = [b"%d" % number for number in range(100)]
    values: list[bytes | None] = []
    while len(values) < len(expected):  # With acks=0 they may still be on their way.
        values += values_of(client.read(topic, len(values)))
    assert values == expected


def test_many_requests_ahead_of_their_answers(client: BareClient) -> None:
    """More than the broker holds answers for; each is answered, in order."""
    client.create("ahead")
    count = 3_000
    frames = [produce_frame("ahead", batch_of(b"%d" % number)) for number in range(count)]
    client.send(b"".join(frames))
    assert [client.produced().offset_first for _ in range(count)] == list(range(count))


# --- what a topic asks for


@pytest.mark.parametrize("stored", CODECS)
def test_a_topics_codec(server: Broker, client: BareClient, stored: str) -> None:
    """Whatever producers send, it is stored and delivered as the topic says."""
    topic = f"stored-{stored}"
    setting = "uncompressed" if stored == "none" else stored
    client.create(topic, settings={"compression.type": setting})
    sent = []
    for codec in Codec:
        value = codec.name.encode() * 100
        assert client.produce(topic, batch_of(value, value, codec=codec)).error_code == 0
        sent += [value, value]
    (found,) = client.fetch(fetch_request(topic)).topics[0].partitions
    assert {header.codec for _, header in walk(found.records)} == {Codec[stored.upper()]}
    assert values_of(client.read(topic)) == sent
    read = Confluent(server.bootstrap).read(topic, len(sent), offset=0)
    assert [message.value for message in read] == sent


def test_whose_clock_counts(server: Broker, client: BareClient) -> None:
    client.create("theirs")
    client.create("ours", settings={"message.timestamp.type": "LogAppendTime"})
    before, long_ago = now_ms(), now_ms() - 3_600_000
    messages = [Message(b"k", b"v", (), long_ago)]
    for topic in ("theirs", "ours"):
        Confluent(server.bootstrap).write(topic, "lz4", messages)
    assert [record.timestamp_ms for record in client.read("theirs")] == [long_ago]
    (record,) = client.read("ours")
    assert before <= record.timestamp_ms <= now_ms()
    result = client.produce("ours", batch_of(b"x"))
    assert before <= result.append_time_ms <= now_ms()
    assert (
        Confluent(server.bootstrap).read("ours", 1, offset=0)[0].timestamp_ms == record.timestamp_ms
    )


def test_the_largest_batch(server: Broker, client: BareClient) -> None:
    fits = batch_of(b"x" * 1_000)
    client.create("small", settings={"max.message.bytes": str(len(fits))})
    assert client.produce("small", fits).error_code == 0
    refused = client.produce("small", batch_of(b"x" * 1_001))
    assert refused.error_code == ErrorCode.message_too_large
    failures = []
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("small", b"x" * 2_000, on_delivery=lambda error, _: failures.append(error))
    producer.flush(WAIT_S)
    assert [error.name() for error in failures] == ["MSG_SIZE_TOO_LARGE"]
    assert len(client.read("small")) == 1
