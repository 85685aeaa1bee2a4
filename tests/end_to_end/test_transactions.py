"""Transactions with the clients people use, on a broker that is stopped and killed.

Proves N-03, N-04 and N-06; N-05 is `test_exactly_once.py`.
"""

import time
from collections.abc import Iterator

import confluent_kafka
import kafka
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.transacting import (
    CLIENTS,
    WAIT_S,
    confluent_producer,
    connected,
    create,
    read,
)

DURABILITIES = [
    "fsync",
    pytest.param("interval", marks=pytest.mark.slow),
    pytest.param("os", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=DURABILITIES)
def server(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker(durability=request.param) as started:
        yield started


@pytest.fixture(scope="module")
def clients_wrote(server: Broker) -> list[str]:
    """Each client has committed four values and aborted four, in turn, in one topic."""
    create(server.bootstrap, "interop")
    committed = []
    for name, kind in CLIENTS.items():
        client = kind(server.bootstrap)
        for turn, commit in enumerate((True, False, True, False)):
            values = [f"{name} {turn} {number}" for number in range(2)]
            client.transact(f"interop {name}", "interop", values, commit=commit)
            committed += values if commit else []
    return sorted(committed)


@pytest.mark.slow
@pytest.mark.parametrize("reader", CLIENTS)
def test_every_client_reads_what_every_client_committed(
    server: Broker, clients_wrote: list[str], reader: str
) -> None:
    """Proves N-04."""
    client = CLIENTS[reader](server.bootstrap)
    assert client.read("interop", committed=True) == clients_wrote
    everything = client.read("interop", committed=False)
    assert len(everything) == 2 * len(clients_wrote)
    assert set(everything) > set(clients_wrote)


@pytest.mark.parametrize(
    "durability", ["os", *(pytest.param(n, marks=pytest.mark.slow) for n in ("fsync", "interval"))]
)
def test_who_waits_for_records_gets_none_that_are_aborted_later(durability: str) -> None:
    """Proves N-04: a fetch that waits is answered while the transactions go on."""
    turns = 20
    with broker(durability=durability) as server:
        create(server.bootstrap, "t", 1)
        consumer = confluent_kafka.Consumer(
            {**connected(server.bootstrap), "group.id": "g", "isolation.level": "read_committed"}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        producer = confluent_producer(server.bootstrap, "pay", linger_ms=0)
        producer.init_transactions(WAIT_S)
        found: list[bytes] = []
        for turn in range(turns):
            producer.begin_transaction()
            for number in range(3):
                producer.produce("t", b"%d %d" % (turn, number), partition=0)
                assert producer.flush(WAIT_S) == 0
                found += [m.value() or b"" for m in consumer.consume(100, 0.005)]
            (producer.abort_transaction if turn % 2 else producer.commit_transaction)(WAIT_S)
        wanted = [b"%d %d" % (turn, n) for turn in range(0, turns, 2) for n in range(3)]
        deadline = time.monotonic() + WAIT_S
        while len(found) < len(wanted) and time.monotonic() < deadline:
            found += [m.value() or b"" for m in consumer.consume(100, 0.5)]
        consumer.close()
    assert found == wanted


@pytest.fixture(params=DURABILITIES)
def fragile(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of one's own, to be killed: that loses nothing, whatever the durability."""
    with broker(durability=request.param) as started:
        yield started


def restart(server: Broker, how: str) -> None:
    if how == "kill":
        server.kill()
        server.start()
    else:
        server.restart()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_in_every_state(fragile: Broker, how: str) -> None:
    """Proves N-04."""
    create(fragile.bootstrap, "t")
    producer = confluent_producer(fragile.bootstrap, "pay")
    producer.init_transactions(WAIT_S)
    restart(fragile, how)  # Empty.
    producer.begin_transaction()
    producer.produce("t", "a0", partition=0)
    assert producer.flush(WAIT_S) == 0
    restart(fragile, how)  # Ongoing.
    assert read(fragile.bootstrap, "t") == []
    assert read(fragile.bootstrap, "t", committed=False) == ["a0"]
    producer.produce("t", "a1", partition=1)
    producer.commit_transaction(WAIT_S)
    restart(fragile, how)  # Committed.
    assert read(fragile.bootstrap, "t") == ["a0", "a1"]
    producer.begin_transaction()
    producer.produce("t", "b0", partition=0)
    assert producer.flush(WAIT_S) == 0
    producer.abort_transaction(WAIT_S)
    restart(fragile, how)  # Aborted.
    assert read(fragile.bootstrap, "t") == ["a0", "a1"]
    producer.begin_transaction()
    producer.produce("t", "c0", partition=0)
    producer.commit_transaction(WAIT_S)
    assert read(fragile.bootstrap, "t") == ["a0", "a1", "c0"]
    assert read(fragile.bootstrap, "t", committed=False) == ["a0", "a1", "b0", "c0"]


@pytest.mark.slow
def test_a_killed_worker_leaves_nothing_behind(fragile: Broker) -> None:
    """Its successor takes the transactional id over, the broker's restart or not."""
    create(fragile.bootstrap, "t")
    old = confluent_producer(fragile.bootstrap, "pay")
    old.init_transactions(WAIT_S)
    old.begin_transaction()
    old.produce("t", "old", partition=0)
    assert old.flush(WAIT_S) == 0
    restart(fragile, "kill")
    new = confluent_producer(fragile.bootstrap, "pay")
    new.init_transactions(WAIT_S)
    new.begin_transaction()
    new.produce("t", "new", partition=0)
    new.commit_transaction(WAIT_S)
    assert read(fragile.bootstrap, "t") == ["new"]
    old.produce("t", "zombie", partition=0)
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        old.commit_transaction(WAIT_S)
    assert fenced.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    assert read(fragile.bootstrap, "t") == ["new"]


@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_aborted(server: Broker) -> None:
    create(server.bootstrap, "slow")
    producer = confluent_producer(
        server.bootstrap, "slow", transaction_timeout_ms=1_000, message_timeout_ms=1_000
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("slow", "late", partition=0)
    assert producer.flush(WAIT_S) == 0
    time.sleep(1.5)
    other = confluent_producer(server.bootstrap)
    other.produce("slow", "plain", partition=0)
    assert other.flush(WAIT_S) == 0
    assert read(server.bootstrap, "slow") == ["plain"]
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(WAIT_S)
    assert read(server.bootstrap, "slow") == ["plain"]


@pytest.mark.slow
def test_an_idempotent_producer_through_kills(fragile: Broker) -> None:
    """Proves N-03: its retries are written once, and in order."""
    create(fragile.bootstrap, "t", 1)
    producer = confluent_producer(
        fragile.bootstrap, enable_idempotence=True, linger_ms=1, retry_backoff_ms=10
    )
    count = 3_000
    for number in range(count):
        producer.produce("t", f"{number:06}", partition=0)
        producer.poll(0)
        if number % 600 == 300:
            restart(fragile, "kill")
    assert producer.flush(WAIT_S) == 0
    expected = [f"{number:06}" for number in range(count)]
    assert read(fragile.bootstrap, "t", partitions=1) == expected


# --- consume, transform, produce


def copier(
    bootstrap: str, group: str, *, transactional: bool
) -> tuple[confluent_kafka.Consumer, confluent_kafka.Producer]:
    consumer = confluent_kafka.Consumer(
        {
            **connected(bootstrap),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([f"{group}-in"])
    producer = confluent_producer(bootstrap, group if transactional else None)
    if transactional:
        producer.init_transactions(WAIT_S)
    return consumer, producer


def next_message(consumer: confluent_kafka.Consumer) -> confluent_kafka.Message:
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None, message.error()
    return message


def copy(bootstrap: str, group: str, count: int, *, order: str, dies_at: int = -1) -> None:
    """Copy messages one by one; die, at one of them, in the middle of it.

    The order is the switch: `save, work`, `work, save`, or `both` in one transaction.
    """
    consumer, producer = copier(bootstrap, group, transactional=order == "both")
    try:
        for number in range(count):
            message = next_message(consumer)
            if order == "save, work":
                consumer.commit(message, asynchronous=False)
                if number == dies_at:
                    return
                producer.produce(f"{group}-out", message.value())
                producer.flush(WAIT_S)
            elif order == "work, save":
                producer.produce(f"{group}-out", message.value())
                producer.flush(WAIT_S)
                if number == dies_at:
                    return
                consumer.commit(message, asynchronous=False)
            else:
                producer.begin_transaction()
                producer.produce(f"{group}-out", message.value())
                producer.flush(WAIT_S)
                if number == dies_at:
                    return
                position = consumer.position(consumer.assignment())
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(position, metadata, WAIT_S)
                producer.commit_transaction(WAIT_S)
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "first", "second", "expected"),
    [
        ("save, work", 4, 2, ["0", "1", "2", "4", "5"]),
        ("work, save", 4, 3, ["0", "1", "2", "3", "3", "4", "5"]),
        ("both", 4, 3, ["0", "1", "2", "3", "4", "5"]),
    ],
)
def test_a_crash_in_the_middle(
    server: Broker, order: str, first: int, second: int, expected: list[str]
) -> None:
    """Proves N-06: at most once, at least once or exactly once, by one switch."""
    group = order.replace(", ", "-")
    for name in ("in", "out"):
        create(server.bootstrap, f"{group}-{name}", 1)
    producer = confluent_producer(server.bootstrap)
    for number in range(6):
        producer.produce(f"{group}-in", str(number))
    assert producer.flush(WAIT_S) == 0
    copy(server.bootstrap, group, first, order=order, dies_at=3)
    copy(server.bootstrap, group, second, order=order)
    assert read(server.bootstrap, f"{group}-out", partitions=1) == expected


def test_offsets_are_a_part_of_the_transaction(server: Broker) -> None:
    """Proves N-04: an aborted one moves nothing."""
    for name in ("in", "out"):
        create(server.bootstrap, f"offsets-{name}", 1)
    producer = confluent_producer(server.bootstrap)
    producer.produce("offsets-in", "x")
    assert producer.flush(WAIT_S) == 0
    consumer, producer = copier(server.bootstrap, "offsets", transactional=True)
    message = next_message(consumer)
    place = confluent_kafka.TopicPartition("offsets-in", 0)
    for commit in (False, True):
        producer.begin_transaction()
        producer.produce("offsets-out", message.value())
        position = [confluent_kafka.TopicPartition("offsets-in", 0, message.offset() + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_S)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        (found,) = consumer.committed([place], WAIT_S)
        assert found.offset == (1 if commit else confluent_kafka.OFFSET_INVALID)
    consumer.close()
    assert read(server.bootstrap, "offsets-out", partitions=1) == ["x"]


def test_a_marker_leaves_a_gap(server: Broker) -> None:
    """Five messages at 10, 11, 12, 13 and 15, and still in order. Proves NUM-5."""
    create(server.bootstrap, "gap", 1)
    before = confluent_producer(server.bootstrap)
    for _ in range(10):
        before.produce("gap", "before")
    assert before.flush(WAIT_S) == 0
    producer = confluent_producer(server.bootstrap, "gap")
    producer.init_transactions(WAIT_S)
    for values in (("m1", "m2", "m3", "m4"), ("m5",)):
        producer.begin_transaction()
        for value in values:
            producer.produce("gap", value)
        producer.commit_transaction(WAIT_S)
    consumer = confluent_kafka.Consumer({**connected(server.bootstrap), "group.id": "gap"})
    consumer.assign([confluent_kafka.TopicPartition("gap", 0, 10)])
    found = [(m.offset(), m.value()) for m in consumer.consume(5, WAIT_S)]
    consumer.close()
    assert found == [(10, b"m1"), (11, b"m2"), (12, b"m3"), (13, b"m4"), (15, b"m5")]


def test_the_tools_see_transactions(server: Broker) -> None:
    create(server.bootstrap, "seen")
    producer = confluent_producer(server.bootstrap, "seen")
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("seen", "x", partition=1)
    assert producer.flush(WAIT_S) == 0
    admin = kafka.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        (listed,) = admin.list_transactions().values()
        assert ("seen", "Ongoing") in [(each.transactional_id, each.state.value) for each in listed]
        described = admin.describe_transactions(["seen"])["seen"]
        partition = kafka.TopicPartition("seen", 1)
        assert (described.state.value, described.topic_partitions) == ("Ongoing", {partition})
        (state,) = admin.describe_producers([partition])[partition].active_producers
        assert state.producer_id == described.producer_id
        assert state.current_transaction_start_offset == 0
    finally:
        admin.close()
    producer.abort_transaction(WAIT_S)
