"""Virtual topics, as ActiveMQ has them: one publisher, and a queue for each kind of consumer."""

from collections.abc import Iterator
from typing import Any

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client as Mqtt
from tests.end_to_end.test_stomp import Client as Stomp

proton = pytest.importorskip("proton", reason="pip install python-qpid-proton for these tests")
from proton.utils import BlockingConnection  # noqa: E402

WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


def test_each_group_of_consumers_gets_each_message_once(server: Broker) -> None:
    """Proves SYS-4: STOMP, AMQP 1.0 and MQTT publish on one topic; two consumers share a queue of
    it over two protocols, another has its own, and one that is away misses nothing."""
    host, port = server.endpoints["amqp"]
    wide = Stomp(server).connect()
    wide.subscribe("/queue/Consumer.Audit.VirtualTopic.>")
    wide.connection.disconnect()  # It is away, and its queue is not.
    texts = Stomp(server).connect()
    texts.subscribe("/queue/Consumer.Billing.VirtualTopic.Orders", ack="client", prefetch_count="1")
    amqp: Any = BlockingConnection(f"amqp://{host}:{port}", timeout=WAIT_S)
    shared = amqp.create_receiver("queue://Consumer.Billing.VirtualTopic.Orders", credit=1)
    alone = amqp.create_receiver("Consumer.Stock.VirtualTopic.Orders", credit=10, name="alone")

    texts.send("/topic/VirtualTopic.Orders", "by STOMP")
    amqp.create_sender("topic://VirtualTopic.Orders").send(
        proton.Message(body=b"by AMQP 1.0", inferred=True)
    )
    with Mqtt(server.mqtt_address, "publisher") as device:
        device.publish("VirtualTopic/Orders", "by MQTT", 1)
        device.publish("VirtualTopic/Returns", "to nobody but Audit", 1)

    def take(receiver: Any, count: int) -> list[str]:
        found = []
        for _ in range(count):
            message = receiver.receive(timeout=WAIT_S)  # Its body goes with it.
            found.append(bytes(message.body).decode())
            receiver.accept()
        return found

    all_three = ["by STOMP", "by AMQP 1.0", "by MQTT"]
    assert take(alone, 3) == all_three
    frame = texts.next()  # The other consumer has another one, and the third comes to either.
    found = [frame.body, *take(shared, 1)]
    texts.ack(frame)
    texts.connection.disconnect()
    found += take(shared, 1)
    assert sorted(found) == sorted(all_three)
    amqp.close()
    again = Stomp(server).connect()
    again.subscribe("/queue/Consumer.Audit.VirtualTopic.>")
    assert [again.next().body for _ in range(4)] == [*all_three, "to nobody but Audit"]
    again.close()
