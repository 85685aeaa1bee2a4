"""What is pushed to consumers of one queue, each at its own pace: four protocols, four bounds."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import pika
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client as Mqtt
from tests.end_to_end.test_stomp import Client as Stomp

proton = pytest.importorskip("proton", reason="pip install python-qpid-proton for these tests")
from proton.utils import BlockingConnection  # noqa: E402

WAIT_S = 30.0
MESSAGES = 100
PREFETCH, CREDIT, RECEIVE_MAXIMUM, STOMP_PREFETCH = 5, 7, 9, 3
BOUNDS = PREFETCH + CREDIT + RECEIVE_MAXIMUM + STOMP_PREFETCH


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


def counts(server: Broker, queue: str) -> tuple[int, int]:
    """Return how many messages are ready, and with consumers."""
    api = HTTPConnection(server.http_address, timeout=WAIT_S)
    api.request(
        "GET", f"/api/queues/%2F/{queue}", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    )
    found = json.loads(api.getresponse().read())
    api.close()
    return found["messages_ready"], found["messages_unacknowledged"]


def eventually(is_so: Callable[[], object], told: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


def test_each_consumer_has_as_much_as_it_can_take(server: Broker) -> None:
    """Proves E-01 and E-05: prefetch of AMQP 0-9-1, credit of AMQP 1.0, the receive maximum of
    MQTT and the prefetch of STOMP; who acknowledges gets more, and who does not gets no more."""
    host, port = server.endpoints["amqp"]
    with ExitStack() as stack:
        pushed = stack.enter_context(pika.BlockingConnection(pika.URLParameters(server.amqp_url)))
        channel = pushed.channel()
        channel.queue_declare("pace", durable=True)
        channel.basic_qos(prefetch_count=PREFETCH)
        held: list[int] = []
        channel.basic_consume("pace", lambda _, method, *__: held.append(method.delivery_tag))
        credited: Any = BlockingConnection(f"amqp://{host}:{port}", timeout=WAIT_S)
        stack.callback(credited.close)
        credited.create_receiver("/queues/pace", credit=CREDIT)
        device = Mqtt(
            server.mqtt_address,
            "pace",
            acknowledges=False,
            properties={"ReceiveMaximum": RECEIVE_MAXIMUM},
        )
        stack.enter_context(device)
        device.subscribe("$queue/pace", qos=1)
        texts = Stomp(server).connect()
        stack.callback(texts.close)
        texts.subscribe("/queue/pace", ack="client-individual", prefetch_count=str(STOMP_PREFETCH))
        putting = stack.enter_context(pika.BlockingConnection(pika.URLParameters(server.amqp_url)))
        sender = putting.channel()
        sender.confirm_delivery()
        for number in range(MESSAGES):
            sender.basic_publish("", "pace", str(number).encode())

        eventually(
            lambda: counts(server, "pace") == (MESSAGES - BOUNDS, BOUNDS),
            lambda: counts(server, "pace"),
        )
        device.wait_for(RECEIVE_MAXIMUM)
        pushed.process_data_events(0.5)
        assert len(held) == PREFETCH
        assert len(device.got) == RECEIVE_MAXIMUM

        channel.basic_ack(held[-1], multiple=True)  # This one is quick, the others are not.
        while len(held) < 2 * PREFETCH:
            pushed.process_data_events(1)
        pushed.process_data_events(0.5)
        assert len(held) == 2 * PREFETCH
        assert counts(server, "pace") == (MESSAGES - BOUNDS - PREFETCH, BOUNDS)
        for message in device.got[:4]:
            device.paho.ack(message.mid, message.qos)
        device.wait_for(RECEIVE_MAXIMUM + 4)
        time.sleep(0.3)  # For what would be too much.
        assert len(device.got) == RECEIVE_MAXIMUM + 4
        assert counts(server, "pace") == (MESSAGES - BOUNDS - PREFETCH - 4, BOUNDS)
