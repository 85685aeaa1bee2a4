"""How a consumer gets what it asks for: by pulling, in pieces of its choice, without polling."""

from collections.abc import Iterator

import confluent_kafka
import kafka
import pytest

from entrepot.testing import Broker, broker
from entrepot.wire.kafka import fetch
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.end_to_end.bare import BareClient, batch_of, fetch_frame, fetch_request, records_in
from tests.end_to_end.proxy import Proxy

WAIT_S = 30
WAIT_MS = 1_000 * WAIT_S


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with Proxy() as listening:
        yield listening


@pytest.fixture(scope="module")
def server(proxy: Proxy) -> Iterator[Broker]:
    with broker(settings={"advertised.kafka_port": proxy.port}) as started:
        proxy.broker = started.endpoints["kafka"]
        yield started


def values(response: fetch.FetchResponse) -> dict[int, list[bytes | None]]:
    """By partition, of those the answer speaks of."""
    return {
        each.partition_index: [record.value for record in records_in(each.records)]
        for topic in response.topics
        for each in topic.partitions
    }


# --- waiting


def test_a_fetch_waits_for_the_next_record(server: Broker, client: BareClient) -> None:
    """One request, answered by the append, not by the clock. Proves E-04 in part."""
    client.create("waiting")
    client.send(fetch_frame(fetch_request("waiting", max_wait_ms=WAIT_MS)))
    with BareClient(server) as other:
        other.produce("waiting", batch_of(b"a"))
    assert values(client.fetched()) == {0: [b"a"]}


def test_a_fetch_waits_for_enough(server: Broker, client: BareClient) -> None:
    client.create("enough")
    client.send(fetch_frame(fetch_request("enough", max_wait_ms=WAIT_MS, min_bytes=1_000)))
    sent = [b"%d" % number * 100 for number in range(10)]
    with BareClient(server) as other:
        for value in sent:
            other.produce("enough", batch_of(value))
    (found,) = values(client.fetched()).values()
    assert 5 <= len(found) <= 10, "neither the first few nor all of it"
    assert found == sent[: len(found)]


def test_a_fetch_that_waited_long_enough_is_answered_with_nothing(client: BareClient) -> None:
    client.create("patience")
    assert values(client.fetch(fetch_request("patience", max_wait_ms=50))) == {0: []}


def test_an_idle_consumer_asks_rarely(server: Broker, client: BareClient, proxy: Proxy) -> None:
    """A real client that waits five seconds per fetch: ten records, some ten requests."""
    client.create("idle")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": proxy.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5_000,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("idle", 0, 0)])
        before = len(proxy.seen(Api.FETCH))
        for number in range(10):
            client.produce("idle", batch_of(b"%d" % number))
            (message,) = consumer.consume(1, WAIT_S)
            assert message.value() == b"%d" % number
        assert 1 <= len(proxy.seen(Api.FETCH)) - before <= 12
    finally:
        consumer.close()


# --- how much


def test_a_batch_larger_than_asked_for_comes_whole(client: BareClient) -> None:
    client.create("large")
    large = b"x" * 500_000
    for value in (large, b"small"):
        client.produce("large", batch_of(value))
    response = client.fetch(fetch_request("large", max_bytes=1_000, partition_bytes=1_000))
    assert values(response) == {0: [large]}


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000])
def test_pieces_of_any_size_make_the_whole(client: BareClient, size: int) -> None:
    """The consumer says how much it takes at a time, and from where. Proves K-01."""
    topic = f"pieces-{size}"
    client.create(topic)
    sent = [b"%05d" % number * 20 for number in range(1_000)]
    for first in range(0, 1_000, 50):
        client.produce(topic, batch_of(*sent[first : first + 50]))
    found: list[bytes | None] = []
    answers = 0
    while len(found) < len(sent):
        response = client.fetch(fetch_request(topic, len(found), partition_bytes=size))
        (fetched,) = response.topics[0].partitions
        more = [each for each in records_in(fetched.records) if each.offset >= len(found)]
        found += [record.value for record in more]
        answers += 1
    assert found == sent
    assert answers >= 100_000 // (size + 6_000)


# --- sessions


def asked(*parts: tuple[int, int], session_id: int, epoch: int) -> FetchRequest:
    """Partitions with their offsets, in a session."""
    wanted = [FetchPartition(index, -1, offset, -1, -1, 1 << 20) for index, offset in parts]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 25,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic("session", None, wanted)] if wanted else [],
    )


def test_a_session_says_only_what_changed(client: BareClient) -> None:
    client.create("session", 3)
    first = client.fetch(asked((0, 0), (1, 0), (2, 0), session_id=0, epoch=0))
    assert values(first) == {0: [], 1: [], 2: []}
    session = first.session_id
    assert client.fetch(asked(session_id=session, epoch=1)).topics == []
    client.produce("session", batch_of(b"a"), partition=1)
    assert values(client.fetch(asked(session_id=session, epoch=2))) == {1: [b"a"]}
    assert client.fetch(asked((1, 1), session_id=session, epoch=3)).topics == []
    request = asked(session_id=session, epoch=4)
    request.forgotten = [ForgottenTopic("session", None, [1])]
    client.produce("session", batch_of(b"b"), partition=1)
    assert client.fetch(request).topics == []


def test_a_real_client_in_a_session_misses_nothing(
    server: Broker, client: BareClient, proxy: Proxy
) -> None:
    """kafka-python keeps one; partitions are paused, sought and given up in it."""
    client.create("incremental", 6)
    for index in range(6):
        client.produce("incremental", batch_of(b"first"), partition=index)
    consumer = kafka.KafkaConsumer(bootstrap_servers=proxy.bootstrap, fetch_max_wait_ms=50)
    partitions = [kafka.TopicPartition("incremental", index) for index in range(6)]
    try:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        assert taken(consumer, 6) == {(index, b"first") for index in range(6)}
        consumer.pause(partitions[0])
        consumer.seek(partitions[5], 0)
        assert taken(consumer, 1) == {(5, b"first")}
        for index in range(6):
            client.produce("incremental", batch_of(b"second"), partition=index)
        assert taken(consumer, 5) == {(index, b"second") for index in range(1, 6)}
        consumer.resume(partitions[0])
        assert taken(consumer, 1) == {(0, b"second")}
    finally:
        consumer.close()
    requests = [
        fetch.decode_request(each.version, each.message, 0) for each in proxy.seen(Api.FETCH)
    ]
    incremental = [each for each in requests if each.session_epoch > 0]
    assert incremental
    assert any(each.forgotten for each in incremental)


def taken(consumer: kafka.KafkaConsumer, count: int) -> set[tuple[int, bytes]]:
    records = [next(consumer) for _ in range(count)]
    return {(record.partition, record.value) for record in records}
