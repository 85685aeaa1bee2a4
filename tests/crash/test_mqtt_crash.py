"""kill -9 under MQTT: what was answered is there, and QoS 2 comes exactly once.

A client publishes with QoS 1 and QoS 2, many at a time, and does what the specification asks of
it when it connects again: it sends PUBLISH again, with DUP, and PUBREL, in the original order.
Another has a session that it subscribed with QoS 2. In between the broker is killed, started on
the same data, and all of it goes on. Both know what they have sent and got.
"""

import threading
import time
from collections import Counter
from random import Random
from typing import Any

import pytest

from entrepot import testing
from entrepot.wire.mqtt.packets import V5, Ack, Subscribe, Subscription
from entrepot.wire.mqtt.properties import PacketType, Properties
from entrepot.wire.mqtt.scan import Acks, Publishes
from tests.end_to_end.mqtt_peers import Raw

WINDOW = 100
FINISH_S_MAX = 60.0
KEPT = {"clean_start": False, "properties": Properties(session_expiry_interval=3_600)}


class Peer(threading.Thread):
    """A client with a session, which connects again whenever it is cut off."""

    def __init__(self, broker: testing.Broker, client_id: str) -> None:
        super().__init__(daemon=True)
        self.client_id = client_id
        self._address = broker.mqtt_address
        self.is_over = threading.Event()
        self.error: BaseException | None = None
        self.connections = 0

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                try:
                    with Raw(self._address, V5) as raw:
                        answer = raw.connect(self.client_id, **KEPT)
                        assert answer.session_present == (self.connections > 0), "a lost session"
                        self.connections += 1
                        raw.socket.settimeout(0.5)
                        self.speak(raw)
                except TimeoutError:
                    if self.connections == 0:
                        raise
                except (OSError, EOFError):
                    time.sleep(0.02)
        except BaseException as error:
            self.error = error
            self.is_over.set()

    def speak(self, raw: Raw) -> None:
        raise NotImplementedError


class Publisher(Peer):
    def __init__(self, broker: testing.Broker) -> None:
        super().__init__(broker, "publisher")
        self.next_number = 0
        self.answered: set[int] = set()  # Numbers of messages that are permanent.
        self._open: dict[int, tuple[int, bytes, bool]] = {}  # QoS, body, whether PUBREC came.
        self._id = 0
        self.stops = threading.Event()  # Publish nothing new.

    @property
    def is_done(self) -> bool:
        return self.stops.is_set() and not self._open

    def speak(self, raw: Raw) -> None:
        for packet_id, (qos, body, is_received) in self._open.items():
            if is_received:
                raw.send(Ack(PacketType.PUBREL, packet_id))
            else:
                raw.publish(f"crash/{qos}", body, qos, packet_id, is_again=True)
        while not self.is_over.is_set():
            while len(self._open) < WINDOW and not self.stops.is_set():
                self._publish(raw)
            self._answer(raw, raw.read())

    def _publish(self, raw: Raw) -> None:
        number = self.next_number
        self.next_number += 1
        self._id = self._id % 65_535 + 1
        while self._id in self._open:
            self._id = self._id % 65_535 + 1
        qos, body = 1 + number % 2, b"%d" % number
        self._open[self._id] = qos, body, False
        raw.publish(f"crash/{qos}", body, qos, self._id)

    def _answer(self, raw: Raw, event: Any) -> None:
        assert isinstance(event, Acks), event
        assert not event.has_failed, event
        for packet_id in event.ids:
            qos, body, _ = self._open[packet_id]
            if event.type is PacketType.PUBREC:
                self.answered.add(int(body))
                del self._open[packet_id]
                self._open[packet_id] = qos, body, True
                raw.send(Ack(PacketType.PUBREL, packet_id))
            else:
                self.answered.add(int(body))
                del self._open[packet_id]


class Subscriber(Peer):
    def __init__(self, broker: testing.Broker) -> None:
        super().__init__(broker, "subscriber")
        self.got: dict[int, Counter[int]] = {1: Counter(), 2: Counter()}  # By QoS.
        self._received: set[int] = set()  # Identifiers of QoS 2, until PUBREL.
        self.is_subscribed = threading.Event()

    def speak(self, raw: Raw) -> None:
        if not self.is_subscribed.is_set():
            raw.send(Subscribe(1, (Subscription("crash/#", 2),)))
            raw.read()
            self.is_subscribed.set()
        while not self.is_over.is_set():
            event = raw.read()
            if isinstance(event, Publishes):
                ((_, body),), (packet_id,) = event.messages, event.ids
                if event.qos == 1:
                    self.got[1][int(body)] += 1
                    raw.send(Ack(PacketType.PUBACK, packet_id))
                    continue
                if packet_id not in self._received:
                    self._received.add(packet_id)
                    self.got[2][int(body)] += 1
                raw.send(Ack(PacketType.PUBREC, packet_id))
            elif isinstance(event, Acks):
                assert event.type is PacketType.PUBREL
                self._received.difference_update(event.ids)
                for packet_id in event.ids:
                    raw.send(Ack(PacketType.PUBCOMP, packet_id))


@pytest.mark.parametrize(
    "kills", [pytest.param(5, id="5"), pytest.param(30, id="30", marks=pytest.mark.slow)]
)
@pytest.mark.timeout(600)
def test_kill(kills: int) -> None:
    random = Random(kills)
    with testing.broker() as broker:
        publisher, subscriber = Publisher(broker), Subscriber(broker)
        subscriber.start()
        assert subscriber.is_subscribed.wait(30)
        publisher.start()
        for _ in range(kills):
            seen = publisher.next_number
            time.sleep(random.uniform(0.1, 0.6))
            broker.kill()
            broker.start()
            deadline = time.monotonic() + 30
            while publisher.next_number == seen and publisher.error is None:
                assert time.monotonic() < deadline, "nothing was published after a start"
                time.sleep(0.01)
        publisher.stops.set()
        deadline = time.monotonic() + FINISH_S_MAX

        def missing() -> set[int]:
            return publisher.answered.difference(subscriber.got[1], subscriber.got[2])

        while (missing() or not publisher.is_done) and time.monotonic() < deadline:
            assert publisher.error is None
            assert subscriber.error is None
            time.sleep(0.05)
        time.sleep(0.3)
        for peer in (publisher, subscriber):
            peer.is_over.set()
            peer.join(10)
            assert peer.error is None
    doubled = [number for number, count in subscriber.got[2].items() if count > 1]
    print(
        f"{len(publisher.answered)} answered, {kills} kills, lost {len(missing())}, "
        f"QoS 2 doubled {len(doubled)}, QoS 1 repeated "
        f"{sum(count - 1 for count in subscriber.got[1].values())}"
    )
    assert publisher.is_done
    assert len(publisher.answered) == publisher.next_number
    assert not missing()
    assert not doubled
    assert all(number % 2 == 0 for number in subscriber.got[1])
    assert publisher.connections >= 1 + kills // 2


def test_what_is_sent_again_is_not_overtaken() -> None:
    """After a crash the broker has to look whether it has a message that is sent again; what the
    client sends behind it waits for that."""
    with testing.broker() as broker:
        with Raw(broker.mqtt_address) as raw:
            raw.connect("reader", **KEPT)
            raw.send(Subscribe(1, (Subscription("order/#", 2),)))
            raw.read()
        with Raw(broker.mqtt_address) as raw:
            raw.connect("writer", **KEPT)
            for number in range(1, 500):  # There is something to look through.
                raw.publish("order/a", b"x" * 1_000, 1, number)
            for _ in range(1, 500):
                raw.read()
        broker.kill()
        broker.start()
        with Raw(broker.mqtt_address) as raw:
            raw.connect("writer", **KEPT)
            raw.publish("order/a", b"1", 2, 600, is_again=True)
            raw.publish("order/a", b"2", 2, 601)
            raw.publish("order/a", b"3", 1, 602)
            for _ in range(3):
                raw.read()
        found = []
        with Raw(broker.mqtt_address) as raw:
            raw.connect("reader", **KEPT)
            while len(found) < 3:
                event = raw.read()
                assert isinstance(event, Publishes)
                ((_, body),), (packet_id,) = event.messages, event.ids
                raw.send(Ack(PacketType.PUBACK if event.qos == 1 else PacketType.PUBREC, packet_id))
                found += [bytes(body)] if len(body) == 1 else []
        assert found == [b"1", b"2", b"3"]
