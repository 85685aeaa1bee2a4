"""Selectors with real clients: qpid-proton and stomp.py, on what each of them and pika sent."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.test_stomp import Client

proton = pytest.importorskip("proton", reason="pip install python-qpid-proton for these tests")
from proton.reactor import Selector  # noqa: E402
from proton.utils import BlockingConnection  # noqa: E402

WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[Any]:
    host, port = server.endpoints["amqp"]
    url = f"amqp://guest:guest@{host}:{port}"
    connection = BlockingConnection(url, timeout=WAIT_S, allowed_mechs="PLAIN")
    yield connection
    connection.close()


@pytest.fixture
def channel(server: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened


def publish(channel: Any, queue: str, body: str, **headers: Any) -> None:
    properties = pika.BasicProperties(headers=headers, delivery_mode=2)
    channel.basic_publish("", queue, body.encode(), properties)


def bodies(receiver: Any, count: int) -> list[str]:
    found = []
    for _ in range(count):
        message = receiver.receive(timeout=WAIT_S)  # Its body is a view of what it holds.
        found.append(bytes(message.body).decode())
        receiver.accept()
    return found


def test_amqp_1_0_selects_what_amqp_0_9_1_published(client: Any, channel: Any) -> None:
    channel.queue_declare("orders", durable=True)
    for number in range(10):
        publish(channel, "orders", f"o{number}", price=number, region="eu" if number % 2 else "us")
    selector = Selector("region = 'eu' AND price BETWEEN 3 AND 8")
    receiver = client.create_receiver("orders", credit=10, options=selector)
    assert bodies(receiver, 3) == ["o3", "o5", "o7"]
    publish(channel, "orders", "o11", price=5, region="eu")
    assert bodies(receiver, 1) == ["o11"]
    receiver.close()
    others = client.create_receiver("orders", credit=10)
    assert bodies(others, 7) == ["o0", "o1", "o2", "o4", "o6", "o8", "o9"]
    others.close()


def test_a_drain_ends_when_all_of_a_long_queue_was_looked_at(client: Any, channel: Any) -> None:
    channel.queue_declare("long", durable=True)
    for _ in range(3_000):
        publish(channel, "long", "no", wanted=False)
    publish(channel, "long", "yes", wanted=True)
    receiver = client.create_receiver("long", credit=0, options=Selector("wanted"))
    receiver.link.drain(10)
    client.wait(lambda: not receiver.link.draining() or receiver.fetcher.has_message)
    assert bodies(receiver, 1) == ["yes"]
    receiver.close()


@pytest.fixture
def texts(server: Broker) -> Iterator[Client]:
    connected = Client(server).connect()
    yield connected
    connected.close()


def test_stomp_selects_on_texts(texts: Client, channel: Any) -> None:
    selector = "convert_string_expressions:price > 4 AND colour IN ('red', 'blue')"
    texts.subscribe("/queue/texts", selector=selector)
    for number in range(8):
        colour = "red" if number % 2 else "green"
        texts.send("/queue/texts", str(number), price=str(number), colour=colour)
    assert [texts.next().body for _ in range(2)] == ["5", "7"]
    left = channel.queue_declare("texts", durable=True, passive=True).method.message_count
    assert left == 6


def test_what_a_subscription_does_not_select_is_dropped(texts: Client, channel: Any) -> None:
    texts.subscribe("/topic/news", x_queue_name="news", durable="true", selector="kind = 'sport'")
    for number in range(6):
        kind = "sport" if number % 3 == 0 else "weather"
        texts.send("/topic/news", str(number), kind=kind)
    assert [texts.next().body for _ in range(2)] == ["0", "3"]
    left = channel.queue_declare("news", durable=True, passive=True).method.message_count
    assert left == 0
