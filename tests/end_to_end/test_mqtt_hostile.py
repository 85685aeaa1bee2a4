"""MQTT's clients that make mistakes, flood, or stop reading."""

import socket
import time
from random import Random

import pytest

from entrepot.testing import Broker, broker
from entrepot.wire.mqtt import limits as mqtt_limits
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import (
    V5,
    V31,
    V311,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Will,
    write,
)
from entrepot.wire.mqtt.properties import PacketType, Properties
from entrepot.wire.mqtt.reasons import Reason
from entrepot.wire.mqtt.scan import Acks, Publishes
from tests.end_to_end.mqtt_peers import Raw, connected, eventually
from tests.unit.wire.mqtt.oracle import Vector, vectors

REFUSED = [
    each for each in vectors() if each.is_clients and each.expected[0] == "!" and each.version > V31
]


@pytest.fixture
def address(server: Broker) -> tuple[str, int]:
    return server.mqtt_address


def alive(address: tuple[str, int]) -> None:
    with connected(address) as raw:
        raw.send(Pingreq())
        assert raw.read() == Pingresp()


@pytest.mark.parametrize("vector", REFUSED, ids=[each.name for each in REFUSED])
def test_what_the_specification_forbids(address: tuple[str, int], vector: Vector) -> None:
    """Proves T-07 and T-11: each is refused with the answer that its version has."""
    with Raw(address, vector.version) as raw:
        if not vector.is_first:
            raw.connect("hostile")
        raw.send(vector.data)
        found = raw.ends()
    reason = Reason[vector.expected.removeprefix("! ")]
    if reason is Reason.UNSUPPORTED_PROTOCOL_VERSION:
        assert isinstance(found[0], Connack)
        assert found[0].reason is reason
    elif vector.is_first or vector.version != V5:
        assert found == []
    else:
        assert isinstance(found[-1], Disconnect)
        assert found[-1].reason is reason


def test_an_unknown_version_is_told_so(address: tuple[str, int]) -> None:
    with Raw(address, V311) as raw:
        raw.send(bytes.fromhex("100d 0004 4d515454 84 02 000a 0001 61"))  # Mosquitto's bridge.
        (refused,) = raw.ends()
    assert isinstance(refused, Connack)
    assert refused.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION


def test_a_client_without_a_name_that_wants_its_session_kept(address: tuple[str, int]) -> None:
    with Raw(address, V311) as raw:
        answer = raw.connect("", clean_start=False)
        assert answer.reason is Reason.CLIENT_IDENTIFIER_NOT_VALID
        assert raw.ends() == []
    with Raw(address, V31) as raw:
        assert raw.connect("").reason is Reason.CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.slow
def test_keep_alive_is_one_and_a_half_times(address: tuple[str, int]) -> None:
    """Proves T-21."""
    with Raw(address) as raw:
        raw.connect("silent", keep_alive_s=3)
        for _ in range(4):
            time.sleep(1.5)
            raw.send(Pingreq())
            assert raw.read() == Pingresp()
        before = time.monotonic()
        (ended,) = raw.ends()
        assert time.monotonic() - before >= 3.0
        assert isinstance(ended, Disconnect)
        assert ended.reason is Reason.KEEP_ALIVE_TIMEOUT


def test_more_messages_than_the_receive_maximum(address: tuple[str, int]) -> None:
    with Raw(address) as raw:
        answer = raw.connect("floods")
        count = answer.properties.receive_maximum
        assert count == mqtt_limits.RECEIVE_MAXIMUM
        message = Outgoing(2, False, b"flood", b"", b"x")
        raw.send(b"".join(head(message, number) + b"x" for number in range(1, count + 2)))
        *answers, ended = raw.ends()
        assert all(isinstance(each, Acks) for each in answers)
        assert isinstance(ended, Disconnect)
        assert ended.reason is Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_the_clients_receive_maximum_is_kept(address: tuple[str, int]) -> None:
    given = Properties(receive_maximum=3)
    with connected(address, "narrow", properties=given) as raw, connected(address) as sender:
        raw.send(Subscribe(1, (Subscription("narrow", 2),)))
        assert isinstance(raw.read(), Suback)
        for number in range(1, 11):
            sender.publish("narrow", b"%d" % number, 1 + number % 2, number)
            answer = sender.read()
            assert isinstance(answer, Acks)
            if answer.type is PacketType.PUBREC:
                sender.send(Ack(PacketType.PUBREL, number))
                sender.read()
        in_flight: dict[int, int] = {}  # Identifier -> QoS.
        bodies = []
        while len(bodies) < 10 or in_flight:
            raw.socket.settimeout(10 if len(in_flight) < min(3, 10 - len(bodies)) else 0.2)
            try:
                event = raw.read()
            except TimeoutError:  # It waits for us.
                packet_id, qos = next(iter(in_flight.items()))
                kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
                raw.send(Ack(kind, packet_id))
                if qos == 1:
                    del in_flight[packet_id]
                continue
            if isinstance(event, Publishes):
                bodies.append(bytes(event.messages[0][1]))
                in_flight[event.ids[0]] = event.qos
                assert len(in_flight) <= 3
            else:
                assert isinstance(event, Acks)
                assert event.type is PacketType.PUBREL
                raw.send(Ack(PacketType.PUBCOMP, event.ids[0]))
                in_flight.pop(event.ids[0], None)
        assert bodies == [b"%d" % number for number in range(1, 11)]


def test_the_clients_maximum_packet_size_is_kept(address: tuple[str, int]) -> None:
    given = Properties(maximum_packet_size=60)
    with connected(address, "small", properties=given) as raw, connected(address) as sender:
        raw.send(Subscribe(1, (Subscription("small", 1),)))
        raw.read()
        sender.publish("small", b"x" * 100, 1, 1)
        sender.publish("small", b"fits", 1, 2)
        event = raw.read()
        assert isinstance(event, Publishes)
        assert event.messages[0][1] == b"fits"


def test_topic_aliases_for_the_client(address: tuple[str, int]) -> None:
    given = Properties(topic_alias_maximum=2)
    with connected(address, "aliases", properties=given) as raw, connected(address) as sender:
        raw.send(Subscribe(1, (Subscription("a/#", 0),)))
        raw.read()
        topics = ["a/long/topic", "a/b", "a/long/topic", "a/third", "a/b", "a/third"]
        for topic in topics:
            sender.publish(topic, topic.encode())
        sizes = {}
        for topic in topics:
            event = raw.read()
            assert isinstance(event, Publishes)
            assert event.messages[0][0].subject == topic
            assert event.messages[0][1] == topic.encode()
            sizes[topic] = len(event.messages[0][0].head)
        assert raw._codec._scanner._aliases == {1: "a/long/topic", 2: "a/b"}


def test_publishing_to_the_brokers_own_topics(address: tuple[str, int]) -> None:
    """Proves T-12: clients are kept from publishing to $-topics."""
    with connected(address, "dollar") as raw:
        raw.publish("$SYS/broker/uptime", b"x", 1, 1)
        raw.publish("$queue/x", b"x", 2, 2)
        raw.publish("$SYS/broker/uptime", b"x")
        assert raw.read() == Acks(PacketType.PUBACK, [1], Reason.NOT_AUTHORIZED)
        assert raw.read() == Acks(PacketType.PUBREC, [2], Reason.NOT_AUTHORIZED)
        raw.send(Pingreq())
        assert raw.read() == Pingresp()
    with connected(address, "dollar", V311) as raw:
        raw.send(Subscribe(1, (Subscription("$SYS/mine", 1),)))
        raw.read()
        raw.publish("$SYS/mine", b"x", 1, 1)
        assert raw.read() == Acks(PacketType.PUBACK, [1])
        raw.send(Pingreq())
        assert raw.read() == Pingresp()


def test_answers_come_in_the_order_of_the_messages(address: tuple[str, int]) -> None:
    with connected(address, "order") as raw:
        raw.send(Subscribe(1, (Subscription("order/kept", 1),)))
        raw.read()
        for number in range(1, 201):
            raw.publish("order/kept" if number % 3 else "order/nobody", b"x", 1, number)
        answers = []
        while len(answers) < 200:
            event = raw.read()
            if isinstance(event, Acks):
                answers += event.ids
        assert answers == [*range(1, 201)]


def test_the_same_packet_of_quality_2_is_published_once(address: tuple[str, int]) -> None:
    """Proves T-16."""
    with connected(address, "twice") as raw, connected(address) as reader:
        reader.send(Subscribe(1, (Subscription("twice", 0),)))
        reader.read()
        for is_again in (False, True, True):
            raw.publish("twice", b"one", 2, 7, is_again=is_again)
            assert raw.read() == Acks(PacketType.PUBREC, [7])
        raw.send(Ack(PacketType.PUBREL, 7))
        assert raw.read() == Acks(PacketType.PUBCOMP, [7])
        raw.publish("twice", b"two", 2, 7)
        assert raw.read() == Acks(PacketType.PUBREC, [7])
        for body in (b"one", b"two"):
            event = reader.read()
            assert isinstance(event, Publishes)
            assert event.messages[0][1] == body
        raw.send(Ack(PacketType.PUBREL, 9))
        assert raw.read() == Acks(PacketType.PUBCOMP, [9], Reason.PACKET_IDENTIFIER_NOT_FOUND)


def test_pubrel_is_sent_again_when_the_session_resumes(address: tuple[str, int]) -> None:
    """Proves T-23: in the original order, and the message is not."""
    options = {"clean_start": False, "properties": Properties(session_expiry_interval=600)}
    with connected(address, "resumes", **options) as raw:
        raw.send(Subscribe(1, (Subscription("resumes", 2),)))
        raw.read()
        with connected(address) as sender:
            for number in (1, 2, 3):
                sender.publish("resumes", b"%d" % number, 2, number)
                sender.read()
        ids = []
        for _ in range(3):
            event = raw.read()
            assert isinstance(event, Publishes)
            ids += event.ids
        for packet_id in (ids[1], ids[0]):
            raw.send(Ack(PacketType.PUBREC, packet_id))
            assert raw.read() == Acks(PacketType.PUBREL, [packet_id])
    with connected(address, "resumes", **options) as raw:
        assert [raw.read() for _ in range(2)] == [
            Acks(PacketType.PUBREL, [ids[0]]),
            Acks(PacketType.PUBREL, [ids[1]]),
        ]
        again = raw.read()
        assert isinstance(again, Publishes)
        assert (again.ids, again.is_repeated, again.qos) == ([ids[2]], True, 2)


def test_pipelined_packets_before_connack(address: tuple[str, int]) -> None:
    with Raw(address, V311) as raw:
        message = Outgoing(1, False, b"early", None, b"x")
        raw.send(
            Connect(V311, "early"),
            Subscribe(1, (Subscription("early", 1),)),
            head(message, 5) + b"x",
            Pingreq(),
        )
        kinds = [type(raw.read()).__name__ for _ in range(5)]
        assert kinds[:2] == ["Connack", "Suback"]
        assert sorted(kinds[2:]) == ["Acks", "Pingresp", "Publishes"]


def test_a_will_on_the_brokers_own_topics_is_not_published(address: tuple[str, int]) -> None:
    with connected(address) as reader:
        reader.send(Subscribe(1, (Subscription("$SYS/will/#", 0),)))
        reader.read()
        with connected(address, "w", will=Will("$SYS/will/x", b"x")):
            pass
        reader.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            reader.read()


def test_enhanced_authentication_is_refused_where_nobody_is_asked(
    address: tuple[str, int],
) -> None:
    with Raw(address) as raw:
        given = Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"n,,n=a,r=b")
        answer = raw.connect("a", properties=given)
        assert answer.reason is Reason.BAD_AUTHENTICATION_METHOD
    with connected(address, "b") as raw:
        raw.send(Auth(Reason.REAUTHENTICATE, Properties(authentication_method="x")))
        (ended,) = raw.ends()
        assert isinstance(ended, Disconnect)
        assert ended.reason is Reason.PROTOCOL_ERROR


def test_damaged_conversations(address: tuple[str, int]) -> None:
    random = Random(7)
    stream = write(Connect(V5, "damaged"), V5) + b"".join(
        each.data for each in vectors() if each.version == V5 and each.is_clients
    )
    for _ in range(60):
        data = bytearray(stream)
        for _ in range(random.randrange(1, 6)):
            data[random.randrange(len(data))] = random.randrange(256)
        with socket.create_connection(address, timeout=10) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65_536):
                pass
    alive(address)


def test_one_that_says_nothing_and_one_that_begins(address: tuple[str, int]) -> None:
    with socket.create_connection(address), socket.create_connection(address) as begun:
        begun.sendall(b"\x10\xff")
        alive(address)


@pytest.fixture
def own() -> Broker:
    with broker() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_that_stops_reading_is_bounded_and_holds_up_nobody(
    own: Broker, qos: int
) -> None:
    address = own.mqtt_address
    with (
        connected(address, "stalled") as stalled,
        connected(address, "reads") as reader,
        connected(address, "sends") as sender,
    ):
        for each in (stalled, reader):
            each.send(Subscribe(1, (Subscription("load", qos),)))
            each.read()
        body = b"x" * 10_000
        before = memory_of(own)
        total = 5_000  # 50 MB.
        got = 0
        for number in range(total):
            sender.publish("load", body, qos, number % 1_000 + 1)
            if qos:
                sender.read()
            event = reader.read()
            assert isinstance(event, Publishes)
            if qos:
                reader.send(Ack(PacketType.PUBACK, event.ids[0]))
            got += 1
        assert got == total
        bound = 40_000_000 if qos == 0 else 160_000_000  # Those of QoS 1 wait in the session.
        assert memory_of(own) - before < bound
        stalled.send(Pingreq())
        while not isinstance(stalled.read(), Pingresp):
            pass
    alive(address)


def memory_of(own: Broker) -> int:
    with open(f"/proc/{own.pid}/status") as status:
        (line,) = (each for each in status if each.startswith("VmRSS"))
    return int(line.split()[1]) * 1_024


def test_a_client_that_publishes_and_never_reads_is_not_read_from(own: Broker) -> None:
    address = own.mqtt_address
    with connected(address, "deaf", V311) as deaf:
        deaf.socket.settimeout(2)
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.send(Subscribe(1, (Subscription("echo", 0),)))
        ping = write(Pingreq(), V311) * 10_000
        before = memory_of(own)
        sent = 0
        try:
            while sent < 200_000_000:
                sent += deaf.socket.send(ping)
        except TimeoutError:
            pass
        assert sent < 200_000_000
        assert memory_of(own) - before < 60_000_000
        alive(address)
    eventually(lambda: alive(address) is None)
