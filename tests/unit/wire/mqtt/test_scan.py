"""Runs, topic aliases, and the bounds of what a peer may send."""

import pytest

from entrepot.core import limits as core_limits
from entrepot.core.message import Envelope
from entrepot.wire.mqtt import limits
from entrepot.wire.mqtt.deliver import Outgoing, encode_alike, encode_run, head
from entrepot.wire.mqtt.envelopes import Envelopes, plain_envelope
from entrepot.wire.mqtt.packets import V5, V311, Connect, Disconnect, Pingreq, write
from entrepot.wire.mqtt.properties import PacketType, Properties, encode_raw
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.scan import (
    AREA_BYTES_MAX,
    Acks,
    Event,
    PacketBuffer,
    Publishes,
    Scanner,
    Scratch,
)
from tests.unit.wire.mqtt.oracle import feed, flat, opened


def publish(
    topic: str,
    body: bytes = b"",
    qos: int = 0,
    packet_id: int = 0,
    properties: Properties | None = None,
    *,
    is_retained: bool = False,
) -> bytes:
    raw = None if properties is None else encode_raw(properties)
    return head(Outgoing(qos, is_retained, topic.encode(), raw, body), packet_id) + body


def test_publishes_of_one_read_are_one_run() -> None:
    data = b"".join(publish("a/b", b"%d" % each, 1, each) for each in range(1, 40))
    (run,) = feed(opened(V311), data)
    assert isinstance(run, Publishes)
    assert run.ids == [*range(1, 40)]
    assert [body for _, body in run.messages] == [b"%d" % each for each in range(1, 40)]
    assert len({id(envelope) for envelope, _ in run.messages}) == 1  # Checked once, shared by all.


def test_a_run_ends_where_qos_or_retain_changes_and_at_other_packets() -> None:
    data = b"".join(
        (
            publish("a", b"1"),
            publish("b", b"2"),
            publish("a", b"3", is_retained=True),
            write(Pingreq(), V311),
            publish("a", b"4"),
        )
    )
    first, retained, ping, last = feed(opened(V311), data)
    assert isinstance(first, Publishes)
    assert isinstance(retained, Publishes)
    assert [envelope.subject for envelope, _ in first.messages] == ["a", "b"]
    assert retained.is_retained
    assert len(retained.messages) == 1
    assert ping == Pingreq()
    assert isinstance(last, Publishes)
    assert last.messages[0][0] is first.messages[0][0]


def test_acknowledgements_are_runs() -> None:
    data = bytes.fromhex("40020001 40020002 50020003 4003000491 40020005")
    assert feed(opened(V5), data) == [
        Acks(PacketType.PUBACK, [1, 2]),
        Acks(PacketType.PUBREC, [3]),
        Acks(PacketType.PUBACK, [4], Reason.PACKET_IDENTIFIER_IN_USE),
        Acks(PacketType.PUBACK, [5]),
    ]


@pytest.mark.parametrize("kind", ["40", "50", "62", "70"])
@pytest.mark.parametrize("size", ["8200", "828000", "82808000"])
def test_an_acknowledgement_whose_size_takes_more_bytes_than_it_needs(kind: str, size: str) -> None:
    """Before version 5 nothing forbids that; it was read again and again, for ever."""
    data = bytes.fromhex(f"{kind}{size}0007 {kind}020008")
    found = [each for each in feed(opened(V311), data) if isinstance(each, Acks)]
    assert [packet_id for each in found for packet_id in each.ids] == [7, 8]


def test_a_topic_alias_stands_for_the_topic_that_was_last_defined() -> None:
    codec = opened(V5)
    alias = Properties(topic_alias=3)
    topics = []
    for topic in ("one", "", "two", "", "one", "", "one", "two", ""):
        (run,) = feed(codec, publish(topic, properties=alias))
        assert isinstance(run, Publishes)
        topics.append(run.messages[0][0].subject)
        assert run.messages[0][0].head == b"\0"  # The alias is of this connection alone.
    assert topics == ["one", "one", "two", "two", "one", "one", "one", "two", "two"]


def test_a_mistake_in_a_run_leaves_those_before_it() -> None:
    data = publish("a", b"1", 1, 1) + publish("a/+", b"2", 1, 2) + publish("a", b"3", 1, 3)
    run, error = feed(opened(V311), data)
    assert isinstance(run, Publishes)
    assert run.ids == [1]
    assert len(run.messages) == 1
    assert isinstance(error, MqttError)
    assert error.reason is Reason.TOPIC_NAME_INVALID


def test_nothing_is_read_after_an_error_or_a_disconnect() -> None:
    codec = opened(V5)
    assert flat(feed(codec, b"\xf1\x00" + write(Pingreq(), V5))) == ["! MALFORMED_PACKET"]
    assert feed(codec, write(Pingreq(), V5)) == []
    codec = opened(V5)
    assert feed(codec, write(Disconnect(), V5) + write(Pingreq(), V5)) == [Disconnect()]
    assert feed(codec, write(Pingreq(), V5)) == []


def test_a_large_packet_is_refused_when_it_is_announced() -> None:
    codec = PacketBuffer(Scanner(message_bytes_max=1_000))
    feed(codec, write(Connect(V5, "x"), V5))
    codec.accept(topic_aliases_max=0)
    (error,) = feed(codec, b"\x30\xff\xff\xff\x7f")
    assert isinstance(error, MqttError)
    assert error.reason is Reason.PACKET_TOO_LARGE
    codec = opened(V5)
    (error,) = feed(codec, b"\x82\xff\xff\xff\x7f")
    assert isinstance(error, MqttError)
    assert error.reason is Reason.PACKET_TOO_LARGE


def test_before_the_login_packets_are_small() -> None:
    codec = PacketBuffer(Scanner())
    connect = Connect(V311, "x", user="u", password=b"p" * 65_535)
    (error,) = feed(codec, write(connect, V311))
    assert isinstance(error, MqttError)
    assert error.reason is Reason.PACKET_TOO_LARGE
    assert len(codec.writable()) <= AREA_BYTES_MAX
    assert core_limits.LOGIN_FRAME_BYTES_MAX == 64 * core_limits.KIB


def test_a_message_above_the_limit_is_refused() -> None:
    codec = PacketBuffer(Scanner(message_bytes_max=1_000))
    feed(codec, write(Connect(V311, "x"), V311))
    codec.accept(topic_aliases_max=0)
    assert len(feed(codec, publish("a", b"x" * 1_000))) == 1
    (error,) = feed(codec, publish("a", b"x" * 1_001))
    assert isinstance(error, MqttError)
    assert error.reason is Reason.PACKET_TOO_LARGE


def test_many_topics_are_not_all_remembered() -> None:
    codec = opened(V311)
    for number in range(3 * limits.ENVELOPES_CACHED_MAX):
        feed(codec, publish(f"topic/{number}"))
    assert codec._scanner._envelopes.count <= limits.ENVELOPES_CACHED_MAX


@pytest.mark.parametrize("size", [0, 1, 512, 513, 100_000, 1_000_000])
def test_payloads_of_any_size_come_whole(size: int) -> None:
    codec = opened(V5)
    body = bytes(range(256)) * (size // 256 + 1)
    data = publish("a", body[:size], 2, 9, Properties(content_type="x"))
    (run,) = feed(codec, data, range(0, len(data), 10_007))
    assert isinstance(run, Publishes)
    assert bytes(run.messages[0][1]) == body[:size]
    assert codec.unfinished_bytes == 0


def test_a_padded_remaining_length_is_accepted_before_version_5() -> None:
    assert feed(opened(V311), b"\xc0\x80\x00") == [Pingreq()]
    (error,) = feed(opened(V5), b"\xc0\x80\x00")
    assert isinstance(error, MqttError)
    assert error.reason is Reason.MALFORMED_PACKET


def test_a_run_is_encoded_once_and_gets_the_ids_of_each_receiver() -> None:
    for properties in (None, b"", encode_raw(Properties(content_type="x" * 200))):
        messages = [
            Outgoing(1, False, b"a/b", properties, b"x" * size) for size in (0, 5, 130, 20_000)
        ]
        run = encode_run(messages)
        for ids in ([1, 2, 3, 4], [65_535, 7, 8, 9]):
            expected = b"".join(
                head(message, packet_id) + bytes(message.body)
                for message, packet_id in zip(messages, ids, strict=True)
            )
            assert bytes(run.with_ids(ids)) == expected
    plain = Outgoing(0, True, b"a", None, b"hi")
    assert encode_run([plain, plain]).data == bytes.fromhex("3105 0001 61 6869") * 2
    assert head(plain._replace(qos=1), 5, is_again=True)[0] == 0x3B


# Packets that begin alike, and what is handed on as it came.


def only(events: list[Event]) -> Publishes:
    (run,) = events
    assert isinstance(run, Publishes)
    return run


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("size", [0, 1, 200, 3_000])
def test_packets_that_begin_alike_come_one_by_one(version: int, qos: int, size: int) -> None:
    properties = Properties(content_type="text/plain") if version == V5 else None
    bodies = [bytes((each,)) * size for each in range(10)]
    packets = [publish("a/b", body, qos, 7 + i, properties) for i, body in enumerate(bodies)]
    run = only(feed(opened(version), b"".join(packets)))
    assert [bytes(body) for _, body in run.messages] == bodies
    assert run.ids == ([*range(7, 17)] if qos else [])
    assert run.packets() == b"".join(packets)


def test_properties_behind_the_identifier_are_compared() -> None:
    one, other = (Properties(content_type=each) for each in ("one", "two"))
    given = [one, one, one, other, other, one]
    data = b"".join(publish("a", b"x", 1, i + 1, each) for i, each in enumerate(given))
    run = only(feed(opened(V5), data))
    heads = [envelope.head for envelope, _ in run.messages]
    assert heads == [b"\2" + encode_raw(each) for each in given]


def test_an_identifier_0_among_packets_that_begin_alike_is_refused() -> None:
    data = b"".join(publish("a", b"x", 1, each) for each in (1, 2, 3, 0, 4))
    run, error = feed(opened(V311), data)
    assert isinstance(run, Publishes)
    assert run.ids == [1, 2, 3]
    assert run.packets() is None
    assert isinstance(error, MqttError)


def test_an_identifier_0_among_acknowledgements_is_refused() -> None:
    events = feed(opened(V311), bytes.fromhex("40020001 40020000 40020002"))
    assert isinstance(events[-1], MqttError)


def test_what_only_this_connection_understands_is_not_handed_on() -> None:
    codec = opened(V5)
    plain = publish("a", b"1", properties=Properties())
    assert only(feed(codec, plain * 2)).packets() == plain * 2
    aliased = publish("a", b"2", properties=Properties(topic_alias=1))
    assert only(feed(codec, plain + aliased)).packets() is None
    known = publish("", b"3", properties=Properties(topic_alias=1))
    assert only(feed(codec, known * 3)).packets() is None


def test_a_message_that_gets_another_topic_is_not_handed_on() -> None:
    def make(topic: str, head: bytes) -> Envelope:
        envelope = plain_envelope(topic.replace("old", "new"), head)
        envelope.path = envelope.subject.encode()
        return envelope

    codec = PacketBuffer(Scanner(envelopes=Envelopes(make)))
    feed(codec, write(Connect(V311, "x"), V311))
    codec.accept(topic_aliases_max=0)
    same, old = publish("same", b"1"), publish("old", b"2")
    assert only(feed(codec, same * 3)).packets() == same * 3
    for _ in range(2):
        run = only(feed(codec, same + old * 3))
        assert run.messages[-1][0].subject == "new"
        assert run.packets() is None


def test_a_length_in_more_bytes_than_it_needs_is_not_handed_on() -> None:
    plain = publish("a", b"1")
    odd = plain[:1] + bytes((plain[1] | 0x80, 0)) + plain[2:]
    assert only(feed(opened(V311), plain * 3)).packets() == plain * 3
    assert only(feed(opened(V311), plain + odd)).packets() is None
    assert only(feed(opened(V311), odd + plain)).packets() is None


def test_connections_that_share_a_scratch_do_not_mix() -> None:
    scratch, envelopes = Scratch(), Envelopes()
    codecs = [PacketBuffer(Scanner(envelopes=envelopes), scratch) for _ in range(3)]
    for codec in codecs:
        feed(codec, write(Connect(V311, "x"), V311))
        codec.accept(topic_aliases_max=0)
    sizes = (3, 1_000, 4_096, 5_000, 300_000)
    packets = [
        b"".join(publish(f"t/{i}", bytes((65 + i,)) * size, 1, 1 + i) for size in sizes)
        for i in range(3)
    ]
    found: list[list[bytes]] = [[], [], []]
    for start in range(0, len(packets[0]), 997):
        for i, codec in enumerate(codecs):
            for event in feed(codec, packets[i][start : start + 997]):
                assert isinstance(event, Publishes)
                found[i] += [bytes(body) for _, body in event.messages]
    for i, bodies in enumerate(found):
        assert bodies == [bytes((65 + i,)) * size for size in sizes]
        assert codecs[i].unfinished_bytes == 0


def test_a_connection_holds_what_came_of_a_packet_and_little_more() -> None:
    codec = opened(V311)
    feed(codec, b"\x30\xff\xff\x3f" + b"x" * 10)  # A megabyte is announced.
    assert codec.unfinished_bytes == 14
    assert codec._area is None
    feed(codec, b"x" * 10_000)
    assert codec._area is not None
    assert len(codec._area) <= 2 * codec.unfinished_bytes


def test_identifiers_are_written_into_packets_of_any_size() -> None:
    for version in (V311, V5):
        raw = b"" if version == V5 else None
        for sizes in ([5, 5, 5, 5], [5, 6, 5, 200], [5]):
            messages = [Outgoing(1, False, b"a", raw, b"x" * size) for size in sizes]
            ids = [*range(500, 500 + len(sizes))]
            expected = b"".join(
                head(each, number) + each.body for each, number in zip(messages, ids, strict=True)
            )
            assert encode_run(messages).with_ids(ids) == expected
            if len(set(sizes)) == 1:
                bodies = [each.body for each in messages]
                assert encode_alike(messages[0], bodies).with_ids(ids) == expected
