"""What a client of MQTT and the broker tell each other, wills with a delay, and many at once."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from entrepot.testing import Broker, broker
from entrepot.wire.mqtt.packets import (
    V5,
    V311,
    Ack,
    Disconnect,
    Subscribe,
    Subscription,
    Will,
)
from entrepot.wire.mqtt.properties import PacketType, Properties
from entrepot.wire.mqtt.reasons import Reason
from entrepot.wire.mqtt.scan import Acks, Publishes
from tests.end_to_end.mqtt_peers import Client, Raw, connected
from tests.end_to_end.test_mqtt_command_line import output

KEPT = Properties(session_expiry_interval=600)


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    settings = {
        "ports.http": 0,
        "mqtt.max_keep_alive_seconds": 50,
        "mqtt.max_session_expiry_seconds": 3_600,
        "queues.max_message_bytes": 8_000_000,
    }
    with broker(settings=settings) as started:
        yield started


@pytest.fixture
def address(server: Broker) -> tuple[str, int]:
    return server.mqtt_address


def subscribed(raw: Raw, *filters: str, qos: int = 0) -> None:
    raw.send(Subscribe(1, tuple(Subscription(each, qos) for each in filters)))
    raw.read()


def test_what_connack_says(address: tuple[str, int]) -> None:
    with Raw(address) as raw:
        asked = Properties(request_response_information=1)
        found = raw.connect("", keep_alive_s=600, properties=asked).properties
        assert found.server_keep_alive == 50
        assert found.maximum_packet_size == 8_000_000 + 256 * 1_024
        assert (found.assigned_client_identifier or "").startswith("auto-")
        assert (found.response_information or "").startswith("responses/")
        subscribed(raw, f"{found.response_information}/#")
    with Raw(address) as raw:
        found = raw.connect("named", keep_alive_s=20).properties
        assert found.server_keep_alive is None
        assert found.response_information is None
        assert found.assigned_client_identifier is None
    with Raw(address) as raw:
        assert raw.connect("quiet", keep_alive_s=0).properties.server_keep_alive == 50
    with Raw(address, V311) as raw:
        assert raw.connect("old", keep_alive_s=600).properties == Properties()


def test_a_will_waits_for_its_delay(address: tuple[str, int]) -> None:
    will = Will("wills/late", b"bye", 1, properties=Properties(will_delay_interval=1))
    with connected(address, "heir") as heir:
        subscribed(heir, "wills/#", qos=1)
        for _ in range(2):  # It comes back in time.
            with connected(address, "late", will=will, clean_start=False, properties=KEPT):
                pass
        with connected(address, "late", clean_start=False, properties=KEPT) as raw:
            raw.send(Disconnect())
            assert raw.ends() == []
        heir.socket.settimeout(1.5)
        with pytest.raises(TimeoutError):
            heir.read()
        before = time.monotonic()
        with connected(address, "late", will=will, clean_start=False, properties=KEPT):
            pass
        heir.socket.settimeout(30)
        event = heir.read()
        assert isinstance(event, Publishes)
        assert event.messages[0][1] == b"bye"
        assert time.monotonic() - before >= 0.9


def test_a_will_comes_with_the_end_of_the_session(address: tuple[str, int]) -> None:
    will = Will("wills/end", b"bye", properties=Properties(will_delay_interval=600))
    with connected(address, "heir-2") as heir:
        subscribed(heir, "wills/end")
        with connected(address, "ends", will=will):  # The session ends with the connection.
            pass
        event = heir.read()
        assert isinstance(event, Publishes)
        with connected(address, "asks", will=will) as raw:
            raw.send(Disconnect(Reason.DISCONNECT_WITH_WILL))
            raw.ends()
        assert isinstance(heir.read(), Publishes)


def test_disconnect_may_change_the_sessions_expiry(address: tuple[str, int]) -> None:
    with connected(address, "changes", clean_start=False, properties=KEPT) as raw:
        raw.send(Disconnect(properties=Properties(session_expiry_interval=0)))
        raw.ends()
    with Raw(address) as raw:
        assert not raw.connect("changes", clean_start=False).session_present
        raw.send(Disconnect(properties=Properties(session_expiry_interval=5)))
        (ended,) = raw.ends()
        assert isinstance(ended, Disconnect)
        assert ended.reason is Reason.PROTOCOL_ERROR


def test_a_session_is_not_kept_longer_than_is_allowed(server: Broker) -> None:
    def kept_s(client_id: str) -> int:
        shown = json.loads(output(server, "sessions", "show", client_id, "--json"))
        return int(shown["expiry_ms"]) // 1_000

    for asked_s, kept in ((600, None), (3_600, None), (3_601, 3_600), (2**32 - 1, 3_600)):
        with Raw(server.mqtt_address) as raw:
            properties = Properties(session_expiry_interval=asked_s)
            found = raw.connect("long", properties=properties).properties
            assert found.session_expiry_interval == kept
            assert kept_s("long") == min(asked_s, 3_600)
    with Raw(server.mqtt_address, V311) as raw:  # Which would be kept for ever.
        raw.connect("old", clean_start=False)
        assert kept_s("old") == 3_600
    with Raw(server.mqtt_address) as raw:
        raw.connect("longer", properties=KEPT)
        raw.send(Disconnect(properties=Properties(session_expiry_interval=2**32 - 1)))
        raw.ends()
        assert kept_s("longer") == 3_600


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_large_messages(address: tuple[str, int], qos: int) -> None:
    body = bytes(range(256)) * 20_000  # 5 MB.
    with Client(address, f"large-{qos}") as client:
        client.subscribe("large", qos=qos)
        client.publish("large", body, qos)
        assert client.wait_for(1) == [body]


def test_a_message_that_is_too_large(address: tuple[str, int]) -> None:
    with connected(address, "huge") as raw:
        raw.publish("huge", b"x" * 8_000_001, 1, 1)
        (ended,) = raw.ends()
        assert isinstance(ended, Disconnect)
        assert ended.reason is Reason.PACKET_TOO_LARGE


@pytest.mark.parametrize("version", [V311, V5])
def test_many_connections_with_one_message_in_flight_each(
    address: tuple[str, int], version: int
) -> None:
    connections, rounds = 100, 20
    with ExitStack() as stack:
        reader = stack.enter_context(connected(address, f"all-{version}", version))
        subscribed(reader, f"devices/{version}/+", qos=1)
        devices = [
            stack.enter_context(connected(address, f"device-{version}-{number}", version))
            for number in range(connections)
        ]
        for turn in range(rounds):
            for number, device in enumerate(devices):
                device.publish(f"devices/{version}/{number}", b"%d" % turn, 1, turn + 1)
            for device in devices:
                assert device.read() == Acks(PacketType.PUBACK, [turn + 1])
        got: dict[str, list[int]] = {}
        for _ in range(connections * rounds):
            event = reader.read()
            assert isinstance(event, Publishes)
            ((envelope, body),) = event.messages
            got.setdefault(envelope.subject, []).append(int(body))
            reader.send(Ack(PacketType.PUBACK, event.ids[0]))
    assert len(got) == connections
    assert all(turns == [*range(rounds)] for turns in got.values())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_message_for_fifty(address: tuple[str, int], qos: int) -> None:
    count = 100
    with ExitStack() as stack:
        readers = [
            stack.enter_context(connected(address, f"fan-{qos}-{n}", V5 if n % 2 else V311))
            for n in range(50)
        ]
        for reader in readers:
            subscribed(reader, f"fan/{qos}", qos=qos)
        sender = stack.enter_context(connected(address, f"fan-{qos}"))
        for number in range(count):
            sender.publish(f"fan/{qos}", b"%d" % number, qos, number + 1)
        got: Counter[Raw] = Counter()
        for reader in readers:
            while got[reader] < count:
                event = reader.read()
                if isinstance(event, Publishes):
                    assert event.qos == qos
                    assert event.messages[0][1] == b"%d" % got[reader]
                    got[reader] += 1
                    if qos:
                        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
                        reader.send(Ack(kind, event.ids[0]))
    assert set(got.values()) == {count}
