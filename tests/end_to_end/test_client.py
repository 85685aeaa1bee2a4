"""`entrepot.Client` and `AsyncClient` on a real broker: every call, and what refuses it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import entrepot
from entrepot.client.amqp_connection import AmqpRefused
from entrepot.client.errors import ClientError, Unreachable
from entrepot.client.messaging.requests import RequestFailed
from entrepot.client.messaging.subjects import Advertisement, overlap
from entrepot.testing import Broker, broker

WAIT_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"client-{request.node.name}"


def connect(server: Broker) -> entrepot.Client:
    host, port = server.endpoints["amqp"]
    return entrepot.Client(f"{host}:{port}", server.bootstrap, patience_s=WAIT_S)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 3 * WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


# --- queues


def test_put_returns_without_a_consumer_and_get_takes_in_order(
    client: entrepot.Client, name: str
) -> None:
    for number in range(5):
        client.put(name, number)
    assert client.count(name) == 5
    assert [client.get(name, 5).value for _ in range(5)] == [0, 1, 2, 3, 4]
    assert client.poll(name) is None


def test_values_and_properties_come_as_they_went(client: entrepot.Client, name: str) -> None:
    client.put(
        name,
        {"umlaut": "ä"},
        id="m-1",
        correlation_id="c-1",
        type="order",
        headers={"price": 90, "large": 2**40, "ok": True, "text": "ä"},
        expires_s=60,
    )
    client.put(name, "text")
    client.put(name, b"\x00\xff")
    found = client.get(name, 5)
    assert found.value == {"umlaut": "ä"}
    assert (found.id, found.correlation_id, found.type) == ("m-1", "c-1", "order")
    assert dict(found.headers) == {"price": 90, "large": 2**40, "ok": True, "text": "ä"}
    assert (found.expires_s, found.content_type) == (60.0, "application/json")
    assert [client.get(name, 5).value for _ in range(2)] == ["text", b"\x00\xff"]
    with pytest.raises(ClientError, match="JSON can say"):
        client.put(name, object())


def test_get_waits_and_wakes(client: entrepot.Client, server: Broker, name: str) -> None:
    with pytest.raises(TimeoutError, match="nothing came"):
        client.get(name, timeout_s=0.05)
    later = threading.Timer(0.2, lambda: client.put(name, "came"))
    later.start()
    assert client.get(name).value == "came"
    later.join()


def test_get_a_particular_message(client: entrepot.Client, name: str) -> None:
    for number in range(6):
        client.put(name, number, id=f"m-{number}", correlation_id=f"c-{number}",
                   headers={"size": number})  # fmt: skip
    assert client.get(name, 5, id="m-3").value == 3
    assert client.get(name, 5, correlation_id="c-1").value == 1
    assert client.get(name, 5, "size > 3").value == 4
    assert client.get(name, 5, [("size", ">=", 5)]).value == 5
    assert client.poll(name, {"size": 9}) is None
    assert client.poll(name, {"size": ...}, id="m-2").value == 2  # type: ignore[union-attr]
    assert client.count(name) == 1
    with pytest.raises(TimeoutError):
        client.get(name, 0.05, "size > 3")
    later = threading.Timer(0.1, lambda: client.put(name, "new", headers={"size": 7}))
    later.start()
    assert client.get(name, WAIT_S, "size > 3").value == "new"


def test_a_filter_that_does_not_parse_is_refused_with_its_place(
    client: entrepot.Client, name: str
) -> None:
    client.put(name, "kept")
    for call in (
        lambda: client.poll(name, "price <"),
        lambda: client.get(name, 5, "price <"),
        lambda: client.notify(name, print, "price <"),
        lambda: client.subscribe("a.b", print, where="price <"),
    ):
        with pytest.raises(AmqpRefused, match="at character 8"):
            call()
    assert client.get(name, 5).value == "kept"  # Nobody else noticed.


def test_priorities_and_expiry(client: entrepot.Client, name: str) -> None:
    client.declare_queue(name, priorities=9)
    for priority in (1, 9, 5):
        client.put(name, priority, priority=priority)
    client.put(name, "gone", priority=9, expires_s=0)
    assert [client.get(name, 5).value for _ in range(3)] == [9, 5, 1]
    assert client.poll(name) is None


def test_notify_is_installed_once_and_called_for_each(client: entrepot.Client, name: str) -> None:
    found: list[Any] = []
    handler = client.notify(name, lambda message: found.append(message.value))
    for number in range(20):
        client.put(name, number)
    eventually(lambda: len(found) == 20)
    assert found == list(range(20))
    handler.stop()
    client.put(name, "later")
    assert client.get(name, 5).value == "later"
    assert len(found) == 20


def test_what_a_handler_fails_at_comes_once_more(client: entrepot.Client, name: str) -> None:
    seen: list[bool] = []

    def fail(message: entrepot.Message) -> None:
        seen.append(message.is_redelivered)
        raise ValueError("no")

    handler = client.notify(name, fail)
    client.put(name, "poison")
    eventually(lambda: len(seen) == 2)
    handler.stop()
    assert seen == [False, True]
    assert client.poll(name) is None


def test_a_handler_may_settle_itself(client: entrepot.Client, name: str) -> None:
    seen: list[bool] = []

    def handle(message: entrepot.Message) -> None:
        seen.append(message.is_redelivered)
        message.ack() if message.is_redelivered else message.requeue()

    handler = client.notify(name, handle)
    client.put(name, "x")
    eventually(lambda: seen == [False, True])
    handler.stop()
    assert client.poll(name) is None


def test_a_handler_may_call_the_client(client: entrepot.Client, name: str) -> None:
    handler = client.notify(name, lambda message: client.put(f"{name}-next", message.value + 1))
    client.put(name, 1)
    assert client.get(f"{name}-next", WAIT_S).value == 2
    handler.stop()


def test_a_lease_that_fails_gives_back(client: entrepot.Client, name: str) -> None:
    client.put(name, "a")

    def fail() -> None:
        with client.lease(name, 5) as message:
            assert client.poll(name) is None
            raise KeyError(message.text)

    with pytest.raises(KeyError):
        fail()
    with client.lease(name, 5, "TRUE") as message:
        assert message.is_redelivered
    assert client.poll(name) is None


def test_many_at_a_time(client: entrepot.Client, name: str) -> None:
    values: list[Any] = [str(number).encode() * (1 + number % 40) for number in range(12_000)]
    values[5_000] = b"x" * 300_000
    values[6_000] = b""
    values[7_000] = "a text among bytes"
    assert client.put_many(name, values) == len(values)
    found: list[Any] = []
    for batch in client.batches(name, timeout_s=1):
        found += [message.value for message in batch]
    assert found == values
    assert client.count(name) == 0
    client.put_many(name, [b"1", b"2"])
    for batch in client.batches(name, 1):
        assert batch[0].value == b"1"
        break  # It was not settled.
    assert client.get(name, 5).value == b"1"


def test_once_drops_what_has_the_same_id(client: entrepot.Client, name: str) -> None:
    for _ in range(3):
        client.put(name, "paid", id="payment-1", once=True)
    client.put(name, "paid", id="payment-2", once=True)
    assert [client.get(name, 5).id for _ in range(2)] == ["payment-1", "payment-2"]
    assert client.poll(name) is None


# --- publish/subscribe


def test_each_subscriber_gets_each_event_that_matches(
    client: entrepot.Client, server: Broker, name: str
) -> None:
    found: dict[str, list[Any]] = {"all": [], "one": [], "other": []}
    handles = {}
    with connect(server) as other:
        for key, who, pattern in (
            ("all", client, f"{name}.#"),
            ("one", client, f"{name}.a.*"),
            ("other", other, f"{name}.b.x"),
        ):
            handles[key] = who.subscribe(
                pattern, lambda handle, event, key=key: found[key].append((handle.filter, event))
            )
        for subject in ("a.x", "b.x", "c"):
            client.publish(f"{name}.{subject}", {"on": subject}, headers={"n": 1})
        eventually(lambda: sum(map(len, found.values())) == 5)
    assert [event.value["on"] for _, event in found["all"]] == ["a.x", "b.x", "c"]
    assert [(pattern, event.subject) for pattern, event in found["one"]] == [
        (f"{name}.a.*", f"{name}.a.x")
    ]
    assert [event.headers["n"] for _, event in found["other"]] == [1]


def test_unsubscribing_ends_at_once(client: entrepot.Client, name: str) -> None:
    found: list[Any] = []
    handle = client.subscribe(name, lambda _, event: found.append(event.value))
    client.publish(name, 1)
    eventually(lambda: found == [1])
    handle.unsubscribe()
    client.publish(name, 2)
    done: list[Any] = []
    client.subscribe(name, lambda _, event: done.append(event.value))
    client.publish(name, 3)
    eventually(lambda: done == [3])
    assert found == [1]


def test_a_subscription_ends_at_its_expiry(client: entrepot.Client, name: str) -> None:
    found: list[Any] = []
    handle = client.subscribe(name, lambda _, event: found.append(event.value), expiry_s=0.2)
    client.publish(name, 1)
    eventually(lambda: handle.is_over)
    client.publish(name, 2)
    assert found == [1]
    assert handle.count == 1


def test_events_are_kept_for_a_durable_subscriber(
    client: entrepot.Client, server: Broker, name: str
) -> None:
    with connect(server) as away:
        away.subscribe(f"{name}.*", lambda *_: None, durable=name)
    client.publish(f"{name}.a", "kept")
    found: list[Any] = []
    client.subscribe(f"{name}.*", lambda _, event: found.append(event.value), durable=name)
    eventually(lambda: found == ["kept"])


def test_advertisements(client: entrepot.Client, server: Broker, name: str) -> None:
    found: list[Advertisement] = []
    with connect(server) as publisher:
        publisher.advertise(f"{name}.nyse.*", {"currency": "USD"})
        client.subscribe(
            f"{name}.#", lambda *_: None, on_advertised=lambda _, what: found.append(what)
        )
        eventually(lambda: len(found) == 1)  # It was there before; now it is said again.
        publisher.advertise("elsewhere.nyse.*")
        publisher.advertise(f"{name}.lse.#")
        publisher.unadvertise(f"{name}.nyse.*")
        eventually(lambda: len(found) == 3)
        with pytest.raises(ClientError, match="was not advertised"):
            publisher.unadvertise("nothing")
    assert [(each.subjects, each.is_over) for each in found] == [
        (f"{name}.nyse.*", False),
        (f"{name}.lse.#", False),
        (f"{name}.nyse.*", True),
    ]
    assert found[0].about == {"currency": "USD"}


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a.*", "*.b", True),
        ("a.*", "b.*", False),
        ("a.#", "a.b.c", True),
        ("#", "x", True),
        ("#.z", "a.#", True),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("a/b", "a.*", True),
        ("*.*", "#.c.d", True),
        ("a.b", "a.b.#.c", False),
    ],
)
def test_filters_overlap(one: str, other: str, both: bool) -> None:
    assert overlap(one, other) is both
    assert overlap(other, one) is both


# --- requests


def test_a_request_and_its_answer(client: entrepot.Client, server: Broker, name: str) -> None:
    with connect(server) as service:
        serving = service.serve(name, lambda request: request.value * 2)
        assert client.request(name, 21, WAIT_S).value == 42
        serving.stop()
        failing = service.serve(name, lambda request: request.value["missing"])
        with pytest.raises(RequestFailed, match="TypeError"):
            client.request(name, 1, WAIT_S)
        failing.stop()


def test_a_late_answer(client: entrepot.Client, name: str) -> None:
    late: list[Any] = []
    client.inner.on_late_answer = lambda message: late.append(message.value)
    with pytest.raises(TimeoutError, match="no answer"):
        client.request(name, "quick?", 0.2, expires_s=WAIT_S)
    serving = client.serve(name, lambda request: "slow")
    eventually(lambda: client.late_answers == 1)
    assert late == ["slow"]
    serving.stop()


def test_several_answer_whom_nobody_knows(
    client: entrepot.Client, server: Broker, name: str
) -> None:
    with connect(server) as one, connect(server) as other:
        one.answer(f"{name}.*", lambda request: "one")
        other.answer(f"{name}.#", lambda request: "other")
        client.answer(f"{name}.*", lambda request: None)  # Has nothing to say.
        found = sorted(each.value for each in client.ask(f"{name}.who", "?", WAIT_S, count=2))
        assert found == ["one", "other"]
        assert [each.value for each in client.ask(f"{name}.x.y", "?", 0.3)] == ["other"]


def test_browsing_leaves_all_where_it_is(client: entrepot.Client, name: str) -> None:
    with pytest.raises(AmqpRefused, match="NOT_FOUND"):
        client.browse(name)
    client.declare_queue(name)
    assert client.browse(name) == []
    for number in range(10):
        client.put(name, number, headers={"even": number % 2 == 0}, correlation_id=f"c-{number}")
    assert [each.value for each in client.browse(name)] == [*range(10)]
    assert [each.value for each in client.browse(name, "even")] == [0, 2, 4, 6, 8]
    assert [each.value for each in client.browse(name, correlation_id="c-7")] == [7]
    assert [each.value for each in client.browse(name, count_max=3)] == [0, 1, 2]
    assert client.count(name) == 10
    assert client.get(name, 5, correlation_id="c-7").value == 7
    assert [each.value for each in client.browse(name, "NOT even")] == [1, 3, 5, 9]


# --- topics and transactions


def test_append_read_seek_commit(client: entrepot.Client, name: str) -> None:
    topic = client.topic(name, partitions=2)
    place = topic.append({"n": 1}, key="k", headers={"h": "x"})
    again = topic.append({"n": 2}, key="k")
    assert (again.partition, again.offset) == (place.partition, place.offset + 1)
    reader = topic.read(group=name)
    found = read(reader, 2)
    assert [entry.value for entry in found] == [{"n": 1}, {"n": 2}]
    assert (found[0].key, found[0].headers["h"]) == (b"k", b"x")
    reader.commit()
    topic.append_many([b"3", b"4"], partition=place.partition)
    assert [entry.body for entry in read(topic.read(group=name), 2)] == [b"3", b"4"]
    reader.seek(1, place.partition)
    assert [entry.offset for entry in read(reader, 3)] == [1, 2, 3]
    with pytest.raises(ClientError, match="no partition 7"):
        reader.seek(0, 7)
    with pytest.raises(ClientError, match="with a group"):
        topic.read().commit()


def read(reader: Any, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += reader.poll(1)
    return found


def test_records_and_positions_are_committed_together(client: entrepot.Client, name: str) -> None:
    orders, bills = client.topic(f"{name}-orders", partitions=1), client.topic(name, partitions=1)
    orders.append("one")
    reader = orders.read(group=name)
    assert len(read(reader, 1)) == 1

    def fail() -> None:
        with client.topic_transaction(name) as transaction:
            transaction.append(name, "bill")
            transaction.commit_position(reader)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert bills.read().poll(0.1) == []
    assert orders.read(group=name).positions == {0: 0}
    with client.topic_transaction(name) as transaction:
        transaction.append(name, "bill")
        transaction.commit_position(reader)
    assert [entry.value for entry in read(bills.read(), 1)] == ["bill"]
    assert orders.read(group=name).positions == {0: 1}


def test_a_transaction_of_topics_without_anything(client: entrepot.Client, name: str) -> None:
    topic = client.topic(name, partitions=1)
    with client.topic_transaction(name) as transaction:
        transaction.append_many(name, [])
    with pytest.raises(KeyError), client.topic_transaction(name):
        raise KeyError
    with client.topic_transaction(name) as transaction:
        transaction.append(name, "bill")
    assert [entry.value for entry in read(topic.read(), 1)] == ["bill"]


def test_a_transaction_of_queues(client: entrepot.Client, name: str) -> None:
    client.put(name, "in")

    def fail() -> None:
        with client.transaction() as transaction:
            assert transaction.get(name, 5).value == "in"
            transaction.put(f"{name}-out", "never")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    events: list[Any] = []
    client.subscribe(f"{name}.done", lambda _, event: events.append(event.value))
    with client.transaction() as transaction:
        assert transaction.get(name, 5, "TRUE").value == "in"
        transaction.put(f"{name}-out", "out")
        transaction.publish(f"{name}.done", 1)
        assert client.poll(f"{name}-out") is None
    assert client.get(f"{name}-out", 5).value == "out"
    assert client.poll(name) is None
    eventually(lambda: events == [1])


# --- the client itself


def test_what_cannot_be_reached_is_said(server: Broker) -> None:
    with (
        pytest.raises(Unreachable, match="nobody listens"),
        entrepot.Client("127.0.0.1:1", patience_s=0.1),
    ):
        pass
    host, port = server.endpoints["amqp"]
    with pytest.raises(ClientError), entrepot.Client(f"{host}:{port}", password="wrong"):
        pass
    with entrepot.Client(f"127.0.0.1:1,{host}:{port}") as other:  # The second one answers.
        other.put("reached", 1)


def test_it_is_imported_when_it_is_used() -> None:
    code = (
        "import sys, entrepot\n"
        "assert len([m for m in sys.modules if m.startswith('entrepot')]) == 1, sys.modules\n"
        "assert 'asyncio' not in sys.modules\n"
        "entrepot.Client\n"
        "assert 'entrepot.client.client' not in sys.modules\n"  # Kafka's part comes later.
    )
    subprocess.run([sys.executable, "-c", code], check=True)
