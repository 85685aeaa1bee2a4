"""The client's side of MQTT, packet by packet, and what it remembers between connections."""

import pytest

from entrepot.client.mqtt_protocol import Arrived, ClientProtocol, ClientSession, Published
from entrepot.core.ports import Buffer
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import (
    V5,
    V311,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    write,
)
from entrepot.wire.mqtt.properties import PacketType, Properties, encode_raw
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.scan import Acks, Event, PacketBuffer, Publishes, Scanner

PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)


class Wire:
    """A client, and the server's codec at its other end."""

    def __init__(
        self,
        session: ClientSession | None = None,
        *,
        version: int = V5,
        connack: Connack | None = None,
    ) -> None:
        self.client = ClientProtocol(Connect(version, "c", clean_start=session is None), session)
        self._server = PacketBuffer(Scanner())
        self._server.accept(topic_aliases_max=0)
        self.version = version
        (connect,) = self.said()
        assert isinstance(connect, Connect)
        if connack is not None:
            self.hears(connack)

    def said(self) -> list[Event]:
        """Return what the client has sent, in a server's eyes."""
        found: list[Event] = []
        for chunk in self.client.take_output():
            rest = memoryview(chunk)
            while rest:
                area = self._server.writable()
                size = min(len(area), len(rest))
                area[:size] = rest[:size]
                rest = rest[size:]
                found += self._server.received(size)
        return found

    def hears(self, *packets: Packet | bytes) -> list[object]:
        data = b"".join(
            each if isinstance(each, bytes) else write(each, self.version) for each in packets
        )
        found: list[object] = []
        while data:
            area = self.client.writable()
            size = min(len(area), len(data))
            area[:size] = data[:size]
            data = data[size:]
            found += self.client.received(size)
        return found


def message(qos: int, packet_id: int, body: Buffer = b"hi", *, is_again: bool = False) -> bytes:
    raw = encode_raw(Properties(content_type="text/plain"))
    outgoing = Outgoing(qos, False, b"a/b", raw, body)
    return head(outgoing, packet_id, is_again=is_again) + body


def ids(events: list[Event]) -> list[tuple[str, int, bool]]:
    """Return type, packet identifier and DUP of the packets."""
    found = []
    for each in events:
        assert isinstance(each, Acks | Publishes), each
        name = each.type.name if isinstance(each, Acks) else "PUBLISH"
        is_again = isinstance(each, Publishes) and each.is_repeated
        found += [(name, number, is_again) for number in each.ids]
    return found


def test_messages_of_each_quality_go_out_and_are_answered() -> None:
    wire = Wire(connack=Connack())
    assert wire.client.publish("a/b", b"0") == 0
    one, two = wire.client.publish("a/b", b"1", 1), wire.client.publish("a/b", b"2", 2)
    assert ids(wire.said()) == [("PUBLISH", one, False), ("PUBLISH", two, False)]
    no_matching = Reason.NO_MATCHING_SUBSCRIBERS
    assert wire.hears(Ack(PUBACK, one, no_matching)) == [Published(one, no_matching)]
    assert wire.hears(Ack(PUBREC, two)) == []
    assert ids(wire.said()) == [("PUBREL", two, False)]
    assert wire.hears(Ack(PUBCOMP, two)) == [Published(two, Reason.SUCCESS)]
    assert wire.client.session.sent == {}


def test_a_refusal_of_either_quality_is_final() -> None:
    wire = Wire(connack=Connack())
    one, two = wire.client.publish("a/b", b"1", 1), wire.client.publish("a/b", b"2", 2)
    wire.said()
    refusals = wire.hears(
        Ack(PUBACK, one, Reason.NOT_AUTHORIZED), Ack(PUBREC, two, Reason.QUOTA_EXCEEDED)
    )
    assert refusals == [
        Published(one, Reason.NOT_AUTHORIZED),
        Published(two, Reason.QUOTA_EXCEEDED),
    ]
    assert wire.said() == []
    assert all(isinstance(each, Published) and each.is_refused for each in refusals)


def test_what_came_is_acknowledged_by_who_got_it() -> None:
    wire = Wire(connack=Connack())
    first, second, third = wire.hears(message(0, 0), message(1, 7), message(2, 8))
    assert isinstance(first, Arrived)
    assert (first.topic, bytes(first.payload), first.qos, first.packet_id) == ("a/b", b"hi", 0, 0)
    assert first.decoded().content_type == "text/plain"
    assert wire.said() == []
    for each in (first, second, third):
        assert isinstance(each, Arrived)
        wire.client.acknowledge(each)
        wire.client.acknowledge(each)  # The second time is none.
    assert ids(wire.said()) == [("PUBACK", 7, False), ("PUBREC", 8, False)]
    assert wire.hears(Ack(PUBREL, 8)) == []
    assert ids(wire.said()) == [("PUBCOMP", 8, False)]
    assert wire.client.session.came == {}


def test_exactly_once_is_passed_on_once() -> None:
    session = ClientSession()
    wire = Wire(session, connack=Connack())
    (came,) = wire.hears(message(2, 5))
    assert isinstance(came, Arrived)
    again = Wire(session, connack=Connack(session_present=True))
    assert again.hears(message(2, 5, is_again=True)) == []
    assert again.said() == []  # It is not known to be safe yet.
    again.client.acknowledge(came)
    assert ids(again.said()) == [("PUBREC", 5, False)]
    assert again.hears(message(2, 5, is_again=True)) == []
    assert ids(again.said()) == [("PUBREC", 5, False)]
    again.hears(Ack(PUBREL, 5), Ack(PUBREL, 5))
    answers = again.said()
    assert ids(answers) == [("PUBCOMP", 5, False)] * 2
    assert [each.reason for each in answers if isinstance(each, Acks)] == [
        Reason.SUCCESS,
        Reason.PACKET_IDENTIFIER_NOT_FOUND,
    ]


def test_a_message_of_an_earlier_connection_is_acknowledged_when_it_came_again() -> None:
    session = ClientSession()
    (came,) = Wire(session, connack=Connack()).hears(message(1, 5))
    again = Wire(session, connack=Connack(session_present=True))
    assert isinstance(came, Arrived)
    again.client.acknowledge(came)
    assert again.said() == []
    (second,) = again.hears(message(1, 5, is_again=True))
    assert isinstance(second, Arrived)
    assert second.is_repeated
    again.client.acknowledge(came)  # It is not the one that came now.
    assert again.said() == []
    again.client.acknowledge(second)
    assert ids(again.said()) == [("PUBACK", 5, False)]


@pytest.mark.parametrize("is_present", [True, False])
def test_what_was_not_answered_is_sent_again_in_order(is_present: bool) -> None:
    session = ClientSession()
    wire = Wire(session, connack=Connack())
    numbers = [wire.client.publish("a/b", b"%d" % each, 1 + each % 2) for each in range(4)]
    wire.hears(Ack(PUBACK, numbers[0]), Ack(PUBREC, numbers[3]))
    again = Wire(session, connack=Connack(session_present=is_present))
    expected = [("PUBLISH", number, is_present) for number in numbers[1:3]]
    if is_present:
        expected.append(("PUBREL", numbers[3], False))
    assert ids(again.said()) == expected
    assert [*session.sent] == [number for _, number, _ in expected]


def test_no_more_than_the_server_accepts() -> None:
    wire = Wire(connack=Connack(properties=Properties(receive_maximum=2)))
    assert wire.client.room == 2
    numbers = [wire.client.publish("a", b"", 1) for _ in range(2)]
    assert wire.client.room == 0
    wire.hears(Ack(PUBACK, numbers[1]))
    assert wire.client.room == 1
    assert wire.client.publish("a", b"", 1) not in numbers[:1]


def test_packet_identifiers_start_again_and_are_not_given_twice() -> None:
    wire = Wire(connack=Connack())
    wire.client.session.last_id = 65_534
    found = [wire.client.publish("a", b"", 1) for _ in range(3)]
    wire.client.session.last_id = 65_534
    found.append(wire.client.subscribe([Subscription("#")]))
    assert found == [65_535, 1, 2, 3]


def test_subscribing_and_unsubscribing() -> None:
    wire = Wire(connack=Connack())
    packet_id = wire.client.subscribe([Subscription("a/#", 1), Subscription("b", 2)])
    (asked,) = wire.said()
    assert isinstance(asked, Subscribe)
    assert [each.filter for each in asked.subscriptions] == ["a/#", "b"]
    suback = Suback(packet_id, (Reason.GRANTED_QOS_1, Reason.NOT_AUTHORIZED))
    assert wire.hears(suback) == [suback]
    number = wire.client.unsubscribe(["a/#"])
    unsuback = Unsuback(number, (Reason.SUCCESS,))
    assert wire.hears(unsuback, Pingresp()) == [unsuback, Pingresp()]
    (error,) = wire.hears(suback)
    assert isinstance(error, MqttError)
    assert wire.client.is_over


def test_a_refused_login() -> None:
    wire = Wire(version=V311)
    refusal = Connack(reason=Reason.NOT_AUTHORIZED)
    assert wire.hears(refusal) == [refusal]
    assert wire.client.is_over


def test_an_end_by_the_server_and_a_large_message_in_the_read_of_connack() -> None:
    wire = Wire()
    large = bytes(200_000)
    connack, came, end = wire.hears(Connack(), message(0, 0, large), Disconnect())
    assert isinstance(came, Arrived)
    assert (connack, len(came.payload), end) == (Connack(), len(large), Disconnect())
    assert wire.client.is_over


def test_bytes_that_are_not_mqtt_are_one_error() -> None:
    wire = Wire()
    (error,) = wire.hears(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert isinstance(error, MqttError)
    assert wire.client.is_over
