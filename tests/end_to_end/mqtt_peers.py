"""MQTT's clients for tests: paho's, and one that sends any packet and shows every packet."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, Self

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import V5, Connack, Connect, Packet, write
from entrepot.wire.mqtt.properties import Properties, encode_raw
from entrepot.wire.mqtt.scan import Acks, Event, PacketBuffer, Publishes, Scanner

WAIT_S = 30.0
VERSIONS = {"3.1": paho.MQTTv31, "3.1.1": paho.MQTTv311, "5": paho.MQTTv5}


def eventually(is_so: Callable[[], object], seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.01)


class Client:
    """paho-mqtt, which collects what it gets."""

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str = "",
        version: str = "5",
        transport: Literal["tcp", "websockets"] = "tcp",
        *,
        clean: bool = True,
        expiry_s: int = 0,
        user: tuple[str, str] | None = None,
        will: dict[str, Any] | None = None,
        acknowledges: bool = True,
        **options: Any,
    ) -> None:
        self.version = version
        clean_session = None if version == "5" else clean
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=clean_session,
            protocol=VERSIONS[version],
            transport=transport,
            manual_ack=not acknowledges,
        )
        self.paho.max_inflight_messages_set(100)
        self.got: list[paho.MQTTMessage] = []
        self.connected: Any = None  # The reason code of CONNACK.
        self.flags: Any = None
        self.disconnected: Any = None
        self.answers: dict[int, Any] = {}  # To subscriptions, by message id.
        self.published: dict[int, Any] = {}  # Reason codes, by message id.
        self._changed = threading.Condition()
        self.paho.on_message = self._on_message
        self.paho.on_connect = self._on_connect
        self.paho.on_disconnect = self._on_disconnect
        self.paho.on_subscribe = self._on_subscribe
        self.paho.on_unsubscribe = self._on_subscribe
        self.paho.on_publish = self._on_publish
        if transport == "tcp":  # Else each small packet after another waits for 40 ms.
            self.paho.on_socket_open = self._on_socket_open
        if user is not None:
            self.paho.username_pw_set(*user)
        if will is not None:
            self.paho.will_set(**will)
        self._address = address
        self._options = options
        if version == "5":
            properties = PahoProperties(PacketTypes.CONNECT)
            if expiry_s:
                properties.SessionExpiryInterval = expiry_s
            for name, value in options.pop("properties", {}).items():
                setattr(properties, name, value)
            options |= {"clean_start": clean, "properties": properties}

    def connect(self, *, keep_alive_s: int = 60) -> Self:
        self.paho.connect(*self._address, keepalive=keep_alive_s, **self._options)
        self.paho.loop_start()
        self.until(lambda: self.connected is not None)
        return self

    def __enter__(self) -> Self:
        return self.connect()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def vanish(self) -> None:
        """End without DISCONNECT."""
        self.paho.loop_stop()
        sock = self.paho.socket()
        if sock is not None:
            sock.close()

    def until(self, is_so: Callable[[], object], seconds: float = WAIT_S) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, seconds), f"it did not become so: {self.texts}"

    def wait_for(self, count: int) -> list[bytes]:
        """Wait for so many messages; return the payloads of all."""
        self.until(lambda: len(self.got) >= count)
        return self.payloads

    @property
    def payloads(self) -> list[bytes]:
        return [bytes(each.payload) for each in self.got]

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(each.topic, each.payload.decode("utf-8", "replace")) for each in self.got]

    def subscribe(self, *filters: str, qos: int = 0, **options: Any) -> list[Any]:
        """Subscribe and wait; return the reason codes."""
        properties = None
        if "identifier" in options:
            properties = PahoProperties(PacketTypes.SUBSCRIBE)
            properties.SubscriptionIdentifier = options.pop("identifier")
        if self.version == "5":
            wanted: Any = [(each, SubscribeOptions(qos, **options)) for each in filters]
        else:
            wanted = [(each, qos) for each in filters]
        _, number = self.paho.subscribe(wanted, properties=properties)
        assert number is not None
        self.until(lambda: number in self.answers)
        return [each.value for each in self.answers.pop(number)]

    def unsubscribe(self, *filters: str) -> list[Any]:
        _, number = self.paho.unsubscribe([*filters])
        assert number is not None
        self.until(lambda: number in self.answers)
        return [each.value for each in self.answers.pop(number)]

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        **properties: Any,
    ) -> Any:
        """Publish and wait until it is answered; return the reason code."""
        given = None
        if self.version == "5":
            given = PahoProperties(PacketTypes.PUBLISH)
            for name, value in properties.items():
                setattr(given, name, value)
        sent = self.paho.publish(topic, payload, qos, retain, given)
        self.until(lambda: sent.mid in self.published)
        reason = self.published.pop(sent.mid)
        return reason.value if qos else 0

    # --- called by paho's thread

    def _told(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _on_socket_open(self, _: object, __: object, connected: Any) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _on_message(self, _: Any, __: Any, message: paho.MQTTMessage) -> None:
        self._told(lambda: self.got.append(message))

    def _on_connect(self, _: Any, __: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.flags, self.properties = flags, properties
        self._told(lambda: setattr(self, "connected", reason.value))

    def _on_disconnect(self, _: Any, __: Any, flags: Any, reason: Any, properties: Any) -> None:
        self._told(lambda: setattr(self, "disconnected", reason.value))

    def _on_subscribe(self, _: Any, __: Any, mid: int, reasons: Any, properties: Any) -> None:
        self._told(lambda: self.answers.update({mid: reasons}))

    def _on_publish(self, _: Any, __: Any, mid: int, reason: Any, properties: Any) -> None:
        self._told(lambda: self.published.update({mid: reason}))


class Raw:
    """A client that sends what it is told, and returns each packet as it comes."""

    def __init__(self, address: tuple[str, int], version: int = V5) -> None:
        self.version = version
        self.socket = socket.create_connection(address, timeout=WAIT_S)
        self._codec = PacketBuffer(Scanner(is_client=True, version=version))
        self._events: list[Event] = []
        self.is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *packets: Packet | bytes) -> None:
        data = b"".join(
            each if isinstance(each, bytes) else write(each, self.version) for each in packets
        )
        self.socket.sendall(data)

    def publish(
        self,
        topic: str,
        body: bytes = b"",
        qos: int = 0,
        packet_id: int = 0,
        properties: Properties | None = None,
        *,
        retain: bool = False,
        is_again: bool = False,
    ) -> None:
        how: dict[str, Any] = {"retain": retain, "is_again": is_again, "version": self.version}
        self.send(publish(topic, body, qos, packet_id, properties, **how))

    def connect(self, client_id: str = "", **options: Any) -> Connack:
        self.send(Connect(self.version, client_id, **options))
        answer = self.read()
        assert isinstance(answer, Connack), answer
        self._codec.accept(topic_aliases_max=100)
        return answer

    def read(self) -> Event:
        """Return the next packet; runs come one by one. Raises EOFError at the end."""
        while not self._events:
            area = self._codec.writable()
            size = self.socket.recv_into(area)
            if not size:
                self.is_over = True
                raise EOFError
            for event in self._codec.received(size):
                self._events += _one_by_one(event)
        return self._events.pop(0)

    def ends(self) -> list[Event]:
        """Return all packets until the server closes the connection."""
        found = []
        try:
            while True:
                found.append(self.read())
        except (EOFError, ConnectionResetError):
            return found


def publish(
    topic: str,
    body: bytes = b"",
    qos: int = 0,
    packet_id: int = 0,
    properties: Properties | None = None,
    *,
    retain: bool = False,
    is_again: bool = False,
    version: int = V5,
) -> bytes:
    """Return a PUBLISH."""
    raw = encode_raw(properties or Properties()) if version == V5 else None
    message = Outgoing(qos, retain, topic.encode(), raw, body)
    return head(message, packet_id, is_again=is_again) + body


def _one_by_one(event: Event) -> Iterator[Event]:
    if isinstance(event, Publishes):
        ids: list[list[int]] = [[each] for each in event.ids] or [[]] * len(event.messages)
        for message, some in zip(event.messages, ids, strict=True):
            first = event.is_repeated << 3 | event.qos << 1 | event.is_retained
            one = Publishes(first, event.version, b"", 0)
            one.messages, one.ids = [message], some
            yield one
    elif isinstance(event, Acks):
        for each in event.ids:
            yield event._replace(ids=[each])
    else:
        yield event


@contextmanager
def connected(
    address: tuple[str, int], client_id: str = "", version: int = V5, **options: Any
) -> Iterator[Raw]:
    with Raw(address, version) as raw:
        raw.connect(client_id, **options)
        yield raw
