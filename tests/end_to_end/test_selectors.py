"""Selectors with real clients: qpid-proton and stomp.py, on what each of them and pika sent."""

import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.test_stomp import Client

proton = pytest.importorskip("proton", reason="pip install python-qpid-proton for these tests")
from proton.reactor import Copy, Selector  # noqa: E402
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


def test_get_a_particular_message(client: Any, channel: Any) -> None:
    channel.queue_declare("particular", durable=True)
    for number in range(5):
        properties = pika.BasicProperties(
            message_id=f"m-{number}", correlation_id=f"c-{number}", headers={"size": number}
        )
        channel.basic_publish("", "particular", str(number).encode(), properties)
    for text, wanted in (
        ("JMSMessageID = 'm-3'", "3"),
        ("JMSCorrelationID = 'c-1'", "1"),
        ("size > 2 AND size <> 3", "4"),
    ):
        receiver = client.create_receiver("particular", 1, options=Selector(text))
        assert bodies(receiver, 1) == [wanted]
        receiver.close()
    assert channel.queue_declare("particular", passive=True).method.message_count == 2


def test_get_waits_on_an_empty_queue(client: Any, server: Broker) -> None:
    receiver = client.create_receiver("empty", credit=1)
    with pytest.raises(proton.Timeout):
        receiver.receive(timeout=0.1)

    def send() -> None:
        with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
            publish(connection.channel(), "empty", "came later")

    later = threading.Timer(0.2, send)
    later.start()
    assert bodies(receiver, 1) == ["came later"]
    later.join()


def test_a_drain_ends_when_all_of_a_long_queue_was_looked_at(client: Any, channel: Any) -> None:
    quick = channel.connection.channel()  # Without confirms; the declaration waits for all.
    quick.queue_declare("long", durable=True)
    for _ in range(3_000):
        publish(quick, "long", "no", wanted=False)
    publish(quick, "long", "yes", wanted=True)
    quick.queue_declare("long", passive=True)
    receiver = client.create_receiver("long", credit=0, options=Selector("wanted"))
    receiver.link.drain(10)
    client.wait(lambda: not receiver.link.draining() or receiver.fetcher.has_message)
    assert bodies(receiver, 1) == ["yes"]
    receiver.close()


def test_browsing(client: Any, channel: Any) -> None:
    channel.queue_declare("shelf", durable=True)
    for number in range(4):
        publish(channel, "shelf", f"m{number}", even=number % 2 == 0)
    copies = client.create_receiver("shelf", credit=10, options=Copy())
    assert bodies(copies, 4) == ["m0", "m1", "m2", "m3"]
    even = client.create_receiver("shelf", 10, name="even", options=[Copy(), Selector("even")])
    assert bodies(even, 2) == ["m0", "m2"]
    assert channel.queue_declare("shelf", passive=True).method.message_count == 4


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


def test_by_content(texts: Client, channel: Any) -> None:
    """The filter {(company, =, Telco), (price, <, 100)} takes 90 and refuses 120."""
    texts.subscribe("/topic/stocks", selector="company = 'Telco' AND price < 100")
    for price in (120, 90):
        headers = {"company": "Telco", "price": price}
        properties = pika.BasicProperties(headers=headers)
        channel.basic_publish("amq.topic", "stocks", f"at {price}".encode(), properties)
    assert texts.next().body == "at 90"


def test_what_a_subscription_does_not_select_is_dropped(texts: Client, channel: Any) -> None:
    texts.subscribe("/topic/news", x_queue_name="news", durable="true", selector="kind = 'sport'")
    for number in range(6):
        kind = "sport" if number % 3 == 0 else "weather"
        texts.send("/topic/news", str(number), kind=kind)
    assert [texts.next().body for _ in range(2)] == ["0", "3"]
    left = channel.queue_declare("news", durable=True, passive=True).method.message_count
    assert left == 0
