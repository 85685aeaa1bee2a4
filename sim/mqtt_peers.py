"""Clients of MQTT that remember, over their connections, what the specification asks them to.

A `Sender` publishes numbers, and sends again what was not answered. A `Getter` has a session and
answers what it gets; what it got is judged at once: nobody has sent it, it is out of order, or it
comes twice although it must not. At the end the world asks what is missing.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

from entrepot.wire.mqtt.packets import Ack
from entrepot.wire.mqtt.properties import PacketType
from entrepot.wire.mqtt.scan import Acks, Event, Publishes
from sim.history import Violation
from sim.mqtt_client import MqttClient

_PUBACK, _PUBREC = PacketType.PUBACK, PacketType.PUBREC
_PUBREL, _PUBCOMP = PacketType.PUBREL, PacketType.PUBCOMP
WINDOW = 8
_IDS = 40  # Few, so that they are used again soon.

Counts = defaultdict[str, dict[int, int]]  # How often, by topic and number.


class Sender:
    """Publishes 0, 1, 2… to each of its topics, in QoS 1 or 2."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self._random = random
        self.client: MqttClient | None = None
        self.sent: dict[str, int] = defaultdict(lambda: -1)  # The last number, by topic.
        self.answered: dict[tuple[str, int], None] = {}  # Topic and number.
        self.refused = 0
        self.repeated: dict[tuple[str, int], None] = {}  # Sent more than once.
        # By packet identifier: QoS, topic, number, and whether PUBREC came.
        self._open: dict[int, tuple[int, str, int, bool]] = {}
        self._last_id = 0

    @property
    def is_done(self) -> bool:
        return not self._open

    def connected(self, client: MqttClient) -> None:
        """Send again what was not answered, in its order. Raises Gone."""
        self.client = client
        for packet_id, (qos, topic, number, is_received) in self._open.items():
            if is_received:
                client.send(Ack(_PUBREL, packet_id))
            else:
                self.repeated[topic, number] = None
                client.publish(topic, b"%d" % number, qos, packet_id, is_again=True)

    def publish(self) -> None:
        """Raises Gone."""
        if len(self._open) >= WINDOW:
            return
        qos = self._random.choice((1, 2))
        topic = f"q{qos}/{self.name}/{self._random.randrange(2)}"
        number = self.sent[topic] + 1
        self.sent[topic] = number
        self._last_id = self._last_id % _IDS + 1
        while self._last_id in self._open:
            self._last_id = self._last_id % _IDS + 1
        self._open[self._last_id] = qos, topic, number, False
        assert self.client is not None
        self.client.publish(topic, b"%d" % number, qos, self._last_id)

    def repeat(self) -> None:
        """Send PUBREL again on the same connection. PUBLISH must not be: it comes again on the
        next connection. Raises Gone."""
        assert self.client is not None
        found = [packet_id for packet_id, each in self._open.items() if each[3]]
        if found:
            self.client.send(Ack(_PUBREL, self._random.choice(found)))

    def heard(self, event: Event) -> None:
        if not isinstance(event, Acks):
            raise Violation(f"{self.name} subscribed to nothing, and gets {event}")
        for packet_id in event.ids:
            self._answered(event.type, packet_id, has_failed=event.has_failed)

    def _answered(self, type: PacketType, packet_id: int, *, has_failed: bool) -> None:
        found = self._open.get(packet_id)
        if found is None:
            if type in (_PUBREC, _PUBCOMP):
                return  # The answer to what was sent twice.
            raise Violation(f"{type.name} of {packet_id}, which {self.name} never sent")
        qos, topic, number, is_received = found
        if has_failed and not is_received:  # It was perhaps stored somewhere, and is not promised.
            del self._open[packet_id]
            self.refused += 1
            return
        if type is not (_PUBACK if qos == 1 else _PUBREC) and not is_received:
            raise Violation(f"{type.name} for a message of QoS {qos}")
        self.answered[topic, number] = None
        if type is _PUBREC:
            if not is_received:
                del self._open[packet_id]  # PUBREL packets are sent in the order of PUBREC.
                self._open[packet_id] = qos, topic, number, True
            assert self.client is not None
            self.client.send(Ack(_PUBREL, packet_id))
        else:
            del self._open[packet_id]


class Getter:
    """A session that subscribed to everything, or one of a group that shares."""

    def __init__(
        self,
        name: str,
        random: Random,
        senders: list[Sender],
        *,
        group: Counts | None = None,
        is_strict: bool = True,
    ) -> None:
        """`group`: what all have got with whom it shares a subscription. `is_strict`: what was sent
        again must be in order, too."""
        self.name = name
        self._random = random
        self._senders = {each.name: each for each in senders}
        self._group = group
        self._is_strict = is_strict
        self.client: MqttClient | None = None
        self.got: Counts = defaultdict(dict)
        self.wills: dict[str, int] = defaultdict(int)  # How often, by text.
        self.deliveries = 0
        self._received: dict[int, None] = {}  # Identifiers of QoS 2, until PUBREL.

    def heard(self, event: Event) -> None:
        assert self.client is not None
        if isinstance(event, Publishes):
            for number, (envelope, body) in enumerate(event.messages):
                packet_id = event.ids[number] if event.qos else 0
                self._take(event.qos, envelope.subject, bytes(body), packet_id)
        elif isinstance(event, Acks) and event.type is _PUBREL:
            for packet_id in event.ids:
                self._received.pop(packet_id, None)
                self._answer(_PUBCOMP, packet_id)

    def _take(self, qos: int, topic: str, body: bytes, packet_id: int) -> None:
        self.deliveries += 1
        if qos == 2 and packet_id in self._received:
            self._answer(_PUBREC, packet_id)
            return
        if topic.startswith("wills/"):
            self.wills[body.decode()] += 1
        else:
            self._judge(topic, int(body))
        if qos == 2:
            self._received[packet_id] = None
            self._answer(_PUBREC, packet_id)
        elif qos == 1:
            self._answer(_PUBACK, packet_id)

    def _answer(self, type: PacketType, packet_id: int) -> None:
        """Once, twice, or not before the next connection."""
        assert self.client is not None
        roll = self._random.random()
        if not self.client.is_open or (roll < 0.03 and type is not _PUBCOMP):
            return
        self.client.send(Ack(type, packet_id))
        if roll > 0.95:
            self.client.send(Ack(type, packet_id))

    def _judge(self, topic: str, number: int) -> None:
        quality, sender, _ = topic.split("/")
        if number > self._senders[sender].sent[topic]:
            raise Violation(f"nobody sent {number} to {topic}")
        got = self.got[topic]
        times = got[number] = got.get(number, 0) + 1
        if self._group is not None:
            shared = self._group[topic]
            times = shared[number] = shared.get(number, 0) + 1
        if quality == "q2" and times > 1:
            raise Violation(f"{self.name} got {number} of {topic} again, at QoS 2")
        if self._group is not None:
            return
        was_repeated = (topic, number) in self._senders[sender].repeated
        if times == 1 and number < max(got) and (self._is_strict or not was_repeated):
            raise Violation(f"{self.name} got {number} of {topic} after {max(got)}")
