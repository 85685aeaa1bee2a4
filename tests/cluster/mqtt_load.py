"""MQTT's clients in the harness: what was acknowledged at QoS 2 comes to a kept session, once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count

import paho.mqtt.client as paho

from tests.cluster.history import Found, History
from tests.cluster.load import Client

TOPIC = "harness/mqtt"
_PAUSE_S = 0.02
_SETTLED_S = 60.0

Address = Callable[[], tuple[str, int]]


class _Paho(paho.Client):  # type: ignore[misc]
    """Paho without a mistake of its own: when it connects in vain before it could say PUBREL again,
    it goes back to PUBLISH, of a message that the broker has been told to forget."""

    def _messages_reconnect_reset_out(self) -> None:
        waiting = (paho.mqtt_ms_wait_for_pubcomp, paho.mqtt_ms_resend_pubrel)
        released = [each for each in self._out_messages.values() if each.state in waiting]
        super()._messages_reconnect_reset_out()
        for each in released:
            each.state = paho.mqtt_ms_resend_pubrel


def _client(name: str, address: Address, ending: threading.Event) -> paho.Client:
    """Return a client with a kept session, which connects again by itself, for ever."""
    client = _Paho(paho.CallbackAPIVersion.VERSION2, name, clean_session=False)
    client.reconnect_delay_set(1, 1)
    while not ending.is_set():
        try:
            client.connect(*address(), keepalive=5)
            break
        except (OSError, KeyError):
            time.sleep(0.2)
    client.loop_start()
    return client


class MqttPublisher(Client):
    """A publisher of QoS 2, on one node."""

    def __init__(self, address: Address, history: History, name: str) -> None:
        super().__init__("", history, name)
        self._address = address
        self.confirmed: dict[bytes, None] = {}

    def work(self) -> None:
        client = _client(self.name, self._address, self.ending)
        answered: set[int] = set()  # `is_published` fails for what is said between connections.
        client.on_publish = lambda client, data, packet, *rest: answered.add(packet)
        for number in count():
            if self.ending.wait(_PAUSE_S):
                break
            body = f"{self.name}:{number}".encode()
            published = client.publish(TOPIC, body, qos=2)
            until_s = time.monotonic() + _SETTLED_S
            while published.mid not in answered:
                if self.ending.is_set() and time.monotonic() > until_s:
                    raise AssertionError(f"{body!r} is not answered")
                time.sleep(0.005)
            answered.clear()
            self.confirmed[body] = None
        client.disconnect()
        client.loop_stop()


class MqttSubscriber(Client):
    """A subscriber of QoS 2 on one node, with a session that is kept."""

    def __init__(self, address: Address, history: History, name: str) -> None:
        super().__init__("", history, name)
        self._address = address
        self.got: Counter[bytes] = Counter()
        self.expected: dict[bytes, None] = {}  # Set before it is asked to end.
        self._is_subscribed = threading.Event()

    def begin(self) -> None:
        """Start, and return when it is subscribed."""
        self.start()
        assert self._is_subscribed.wait(_SETTLED_S), "MQTT's subscriber is not subscribed"

    def work(self) -> None:
        client = _client(self.name, self._address, self.ending)
        client.on_message = self._message
        client.on_subscribe = lambda *_: self._is_subscribed.set()
        until_s = time.monotonic() + _SETTLED_S
        while not self._is_subscribed.wait(1.0):
            assert time.monotonic() < until_s
            client.subscribe(TOPIC, 2)
        self.ending.wait()
        until_s = time.monotonic() + _SETTLED_S
        while self.missing and time.monotonic() < until_s:
            time.sleep(0.1)
        client.disconnect()
        client.loop_stop()

    def _message(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self.got[message.payload] += 1

    @property
    def missing(self) -> list[bytes]:
        return [body for body in self.expected if body not in self.got]

    def found(self) -> list[Found]:
        lost = [Found("lost", f"{body!r}, of MQTT") for body in self.missing]
        twice = [body for body, times in self.got.items() if times > 1]
        return lost + [Found("duplicated", f"{body!r}, of MQTT") for body in twice]
