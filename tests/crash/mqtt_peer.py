"""MQTT's clients that keep their state: one publishes, the other gets, and both count.

They do what the specification asks of a client that connects again: PUBLISH, with DUP, and PUBREL
are sent again in the original order, and what comes again is recognised.
"""

import threading
import time
from collections import Counter
from typing import Any

from entrepot.wire.mqtt.packets import V5, Ack, Subscribe, Subscription
from entrepot.wire.mqtt.properties import PacketType, Properties
from entrepot.wire.mqtt.scan import Acks, Publishes
from tests.end_to_end.mqtt_peers import Raw

WINDOW = 100
KEPT = {"clean_start": False, "properties": Properties(session_expiry_interval=3_600)}


class Peer(threading.Thread):
    """A client with a session, which connects again whenever it is cut off."""

    def __init__(self, address: tuple[str, int], client_id: str) -> None:
        super().__init__(daemon=True)
        self.client_id = client_id
        self._address = address
        self.is_over = threading.Event()
        self.error: BaseException | None = None
        self.connections = 0

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                try:
                    with Raw(self._address, V5) as raw:
                        answer = raw.connect(self.client_id, **KEPT)
                        has_begun = self.connections > 0
                        assert answer.session_present or not has_begun, "a lost session"
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
    def __init__(
        self,
        address: tuple[str, int],
        qualities: tuple[int, ...] = (1, 2),
        count: int | None = None,
    ) -> None:
        """`count` is how many messages it publishes; None means: until it is told to stop."""
        super().__init__(address, "publisher")
        self._qualities = qualities
        self._count = count
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
        qos, body = self._qualities[number % len(self._qualities)], b"%d" % number
        if self.next_number == self._count:
            self.stops.set()
        self._open[self._id] = qos, body, False
        raw.publish(f"crash/{qos}", body, qos, self._id)

    def _answer(self, raw: Raw, event: Any) -> None:
        assert isinstance(event, Acks), event
        assert not event.has_failed or event.type is PacketType.PUBCOMP, event
        for packet_id in event.ids:
            if packet_id not in self._open:
                continue  # The answer to a packet that came twice.
            qos, body, is_received = self._open[packet_id]
            if event.type is PacketType.PUBREC:
                self.answered.add(int(body))
                if not is_received:
                    del self._open[packet_id]
                    self._open[packet_id] = qos, body, True
                raw.send(Ack(PacketType.PUBREL, packet_id))
            elif event.type is PacketType.PUBCOMP and not is_received:
                continue  # Of an earlier message with this identifier.
            else:
                self.answered.add(int(body))
                del self._open[packet_id]


class Subscriber(Peer):
    def __init__(
        self, address: tuple[str, int], client_id: str = "subscriber", filter: str = "crash/#"
    ) -> None:
        super().__init__(address, client_id)
        self._filter = filter
        self.got: dict[int, Counter[int]] = {1: Counter(), 2: Counter()}  # By QoS.
        self._received: set[int] = set()  # Identifiers of QoS 2, until PUBREL.
        self.is_subscribed = threading.Event()

    def speak(self, raw: Raw) -> None:
        if not self.is_subscribed.is_set():
            raw.send(Subscribe(1, (Subscription(self._filter, 2),)))
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
