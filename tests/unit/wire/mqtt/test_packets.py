"""Every vector is read as the specification says, and written as it was read."""

import pytest

from entrepot.wire.mqtt import packets
from entrepot.wire.mqtt.packets import V5, V31, V311, Connack, Suback, write
from entrepot.wire.mqtt.properties import PacketType, Properties
from entrepot.wire.mqtt.reader import Reader
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.scan import Publishes
from entrepot.wire.mqtt.topics import check_filter, check_name, shared_filter
from tests.unit.wire.mqtt.oracle import Vector, feed, flat, vectors

VECTORS = vectors()
named = pytest.mark.parametrize("vector", VECTORS, ids=[each.name for each in VECTORS])


def test_there_is_a_vector_for_every_packet_type() -> None:
    assert {each.data[0] >> 4 for each in VECTORS} == set(range(16))
    assert len(VECTORS) > 70


@named
def test_a_packet_is_read_as_the_specification_says(vector: Vector) -> None:
    found = flat(feed(vector.codec(), vector.data))
    assert found == [vector.expected.removeprefix("= ")]


@named
def test_every_split_is_read_alike(vector: Vector) -> None:
    for cut in range(1, len(vector.data)):
        found = flat(feed(vector.codec(), vector.data, [cut]))
        assert found == [vector.expected.removeprefix("= ")]


@named
def test_what_was_read_is_written_again(vector: Vector) -> None:
    (event,) = feed(vector.codec(), vector.data)
    if isinstance(event, MqttError | Publishes) or type(event).__name__ == "Acks":
        return
    assert write(event, vector.version) == vector.data  # type: ignore[arg-type]


def test_before_version_5_there_are_few_return_codes() -> None:
    refused = Connack(reason=Reason.BAD_USER_NAME_OR_PASSWORD)
    assert write(refused, V311) == bytes.fromhex("2002 0004")
    suback = Suback(1, (Reason.GRANTED_QOS_1, Reason.NOT_AUTHORIZED))
    assert write(suback, V311) == bytes.fromhex("9004 0001 01 80")
    assert write(suback, V5) == bytes.fromhex("9005 0001 00 01 87")


def test_version_3_1_has_no_session_present() -> None:
    """The first byte of its CONNACK is reserved."""
    assert write(Connack(session_present=True), V31) == bytes.fromhex("2002 0000")
    assert write(Connack(session_present=True), V311) == bytes.fromhex("2002 0100")


def test_version_3_1_does_not_look_at_flags_of_a_will_that_there_is_not() -> None:
    for flags in (0x0A, 0x12, 0x22):
        connect = bytes.fromhex(f"00064d514973647003 {flags:02x} 0000 000161")
        found = packets.read_connect(Reader(connect, 0, len(connect)))
        assert found.will is None
        assert found.clean_start
    connect = bytes.fromhex("00044d51545404 0a 0000 000161")
    with pytest.raises(MqttError):
        packets.read_connect(Reader(connect, 0, len(connect)))


def test_what_may_be_left_out_is_left_out() -> None:
    assert write(packets.Ack(PacketType.PUBACK, 7), V5) == bytes.fromhex("4002 0007")
    quota = packets.Ack(PacketType.PUBREC, 7, Reason.QUOTA_EXCEEDED)
    assert write(quota, V5) == bytes.fromhex("5003 0007 97")
    assert write(quota, V311) == bytes.fromhex("5002 0007")
    assert write(packets.Disconnect(), V5) == bytes.fromhex("e000")
    given = packets.Disconnect(Reason.SUCCESS, Properties(reason_string="no"))
    assert write(given, V5) == bytes.fromhex("e007 00 05 1f 0002 6e6f")


@pytest.mark.parametrize("name", ["a", "/", "a//b", "$SYS/x", "ä b", "/finance"])
def test_topic_names(name: str) -> None:
    check_name(name)
    check_filter(name)


@pytest.mark.parametrize("name", ["", "+", "a/+", "#", "a#", "/" * 300])
def test_no_topic_names(name: str) -> None:
    with pytest.raises(MqttError) as caught:
        check_name(name)
    assert caught.value.reason is Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize("text", ["+", "#", "+/tennis/#", "sport/#", "/+", "+/+", "$share/g/#"])
def test_topic_filters(text: str) -> None:
    check_filter(text)


@pytest.mark.parametrize(
    "text", ["", "sport+", "sport/tennis#", "sport/tennis/#/ranking", "#/a", "a/+b", "$share/g",
             "$share//a", "$share/+/a", "$share/g/", "$share/g/a#"]
)  # fmt: skip
def test_no_topic_filters(text: str) -> None:
    with pytest.raises(MqttError) as caught:
        check_filter(text)
    assert caught.value.reason is Reason.TOPIC_FILTER_INVALID


def test_shared_filters() -> None:
    assert shared_filter("$share/g/a/b") == ("g", "a/b")
    assert shared_filter("$shared/g/a") is None
    assert shared_filter("a/$share/b") is None
