"""Packets that are malformed or come at the wrong time."""

import packets
from packets import ALIAS, V5, V31, V311
from stage import Stage, only


def _after(stage: Stage, *data: bytes) -> list[str]:
    """What a client that is connected hears of it."""
    peer = stage.client("a")
    peer.send(*data)
    return peer.end()


def before_connect(stage: Stage) -> None:
    """packets before CONNECT"""
    version = stage.version
    for what, data in {
        "publish": packets.publish(version, "t", "m"),
        "subscribe": packets.subscribe(version, ("t", 0)),
        "ping": packets.PINGREQ,
        "disconnect": packets.disconnect(version),
        "connack": b"\x20\x02\0\0",
        "pubrel": packets.ack("PUBREL", 1),
    }.items():
        peer = stage.raw()
        peer.send(data)
        stage.see(what, peer.end())


def remaining_length(stage: Stage) -> None:
    """a remaining length of five bytes"""
    stage.see("end", _after(stage, b"\x30\xff\xff\xff\xff\x01"))
    peer = stage.raw()
    peer.send(b"\x10\xff\xff\xff\xff\x01")
    stage.see("as the first", peer.end())


def long_remaining_length(stage: Stage) -> None:
    """a remaining length in more bytes than it needs"""
    stage.see("ping", _after(stage, b"\xc0\x80\0"))


def reserved_types(stage: Stage) -> None:
    """the reserved types of packets, 0 and, before version 5, 15"""
    stage.see("type 0", _after(stage, b"\0\0"))
    if not stage.is_5:
        stage.see("type 15", _after(stage, b"\xf0\0"))


def types_of_the_server(stage: Stage) -> None:
    """packets that only a server sends"""
    for what, data in {
        "connack": b"\x20\x02\0\0",
        "suback": b"\x90\x03\0\x01\0",
        "unsuback": b"\xb0\x02\0\x01",
        "pingresp": b"\xd0\0",
    }.items():
        stage.see(what, _after(stage, data))


def reserved_bits(stage: Stage) -> None:
    """reserved bits of the first byte"""
    version = stage.version
    for what, data, flags in (
        ("subscribe", packets.subscribe(version, ("t", 0)), (0x80, 0x81, 0x83)),
        ("unsubscribe", packets.unsubscribe(version, "t"), (0xA0, 0xA1, 0xA3)),
        ("puback", packets.ack("PUBACK", 1), (0x41, 0x42)),
        ("pubrel", packets.ack("PUBREL", 1), (0x60, 0x61, 0x63)),
        ("ping", packets.PINGREQ, (0xC1, 0xC8)),
        ("disconnect", packets.disconnect(version), (0xE1, 0xE8)),
    ):
        for first in flags:
            stage.see(f"{what} {first:x}", _after(stage, bytes((first,)) + data[1:]))


def quality_three(stage: Stage) -> None:
    """PUBLISH and SUBSCRIBE with QoS 3"""
    stage.see("publish", _after(stage, packets.publish(stage.version, "t", "m", 3, 1)))
    stage.see("subscribe", _after(stage, packets.subscribe(stage.version, ("t", 3))))


def dup_of_quality_zero(stage: Stage) -> None:
    """PUBLISH with QoS 0 and DUP"""
    stage.see("end", _after(stage, packets.publish(stage.version, "t", "m", dup=True)))


def packet_identifier_zero(stage: Stage) -> None:
    """packet identifier 0"""
    version = stage.version
    stage.see("publish 1", _after(stage, packets.publish(version, "t", "m", 1, 0)))
    stage.see("publish 2", _after(stage, packets.publish(version, "t", "m", 2, 0)))
    stage.see("subscribe", _after(stage, packets.subscribe(version, ("t", 0), packet_id=0)))
    stage.see("unsubscribe", _after(stage, packets.unsubscribe(version, "t", packet_id=0)))
    for kind in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
        stage.see(kind, _after(stage, packets.ack(kind, 0)))


def topic_with_wildcards(stage: Stage) -> None:
    """PUBLISH to a topic with wildcards"""
    for topic in ("a/+", "#", "a/#", "a+b", "+"):
        stage.see(topic, _after(stage, packets.publish(stage.version, topic, "m", 1, 1)))


def empty_topic(stage: Stage) -> None:
    """PUBLISH to an empty topic"""
    stage.see("end", _after(stage, packets.publish(stage.version, "", "m", 1, 1)))


def topic_not_text(stage: Stage) -> None:
    """PUBLISH to topics that are not UTF-8"""
    for topic in (b"a\xff", b"a\0b", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"):
        data = packets.publish(stage.version, topic, "m", 1, 1)
        stage.see(repr(topic), _after(stage, data))


def topic_with_controls(stage: Stage) -> None:
    """PUBLISH to topics with control characters, and with characters that are none"""
    for topic in ("a\x01b", "a\x7fb", "a\ufffe", "a\ufeffb"):
        data = packets.publish(stage.version, topic, "m", 1, 1)
        stage.see(repr(topic), _after(stage, data))


def topic_too_long(stage: Stage) -> None:
    """PUBLISH whose topic is longer than the packet"""
    for body in (b"\0\x05abc", b"\xff\xff", b"\0", b""):
        stage.see(repr(body), _after(stage, packets.packet(0x32, body)))


def publish_without_identifier(stage: Stage) -> None:
    """PUBLISH with QoS 1 that ends before its packet identifier"""
    stage.see("end", _after(stage, packets.packet(0x32, packets.text("t"))))
    stage.see("one byte", _after(stage, packets.packet(0x32, packets.text("t") + b"\0")))


def bad_filters(stage: Stage) -> None:
    """filters that are none: sport+, sport/tennis#, sport/tennis/#/ranking"""
    for text in ("sport+", "sport/tennis#", "sport/tennis/#/ranking", "#/a", "a/+b", "a/b+/c", ""):
        data = packets.subscribe(stage.version, (text, 0))
        stage.see(f"subscribe {text!r}", _after(stage, data))
        data = packets.unsubscribe(stage.version, text)
        stage.see(f"unsubscribe {text!r}", _after(stage, data))


def filters_not_text(stage: Stage) -> None:
    """filters that are not UTF-8"""
    for text in (b"a\xff", b"a\0b"):
        stage.see(f"subscribe {text!r}", _after(stage, packets.subscribe(stage.version, (text, 0))))
        stage.see(f"unsubscribe {text!r}", _after(stage, packets.unsubscribe(stage.version, text)))


def no_filters(stage: Stage) -> None:
    """SUBSCRIBE and UNSUBSCRIBE without a filter"""
    stage.see("subscribe", _after(stage, packets.subscribe(stage.version)))
    stage.see("unsubscribe", _after(stage, packets.unsubscribe(stage.version)))


def filters_cut_off(stage: Stage) -> None:
    """SUBSCRIBE and UNSUBSCRIBE that are cut off"""
    properties = packets.properties((), stage.version)
    for what, body in {
        "no options": b"\0\x01" + properties + packets.text("t"),
        "half a filter": b"\0\x01" + properties + b"\0\x05ab",
        "half an identifier": b"\0",
        "nothing": b"",
    }.items():
        stage.see(f"subscribe, {what}", _after(stage, packets.packet(0x82, body)))
        if what != "no options":
            stage.see(f"unsubscribe, {what}", _after(stage, packets.packet(0xA2, body)))


@only(V31, V311)
def options_of_a_later_version(stage: Stage) -> None:
    """subscription options that version 5 has, before it"""
    for options in (0x04, 0x08, 0x10, 0x40, 0x80):
        data = packets.subscribe(stage.version, ("t", options))
        stage.see(hex(options), _after(stage, data))


@only(V5)
def reserved_options(stage: Stage) -> None:
    """reserved subscription options, and retain handling 3"""
    for options in (0x30, 0x40, 0x80):
        stage.see(hex(options), _after(stage, packets.subscribe(V5, ("t", options))))


@only(V5)
def no_local_and_shared(stage: Stage) -> None:
    """no local for a shared subscription"""
    stage.see("end", _after(stage, packets.subscribe(V5, ("$share/g/t", 0x04))))


@only(V5)
def bad_shares(stage: Stage) -> None:
    """shared subscriptions whose names are none"""
    for text in ("$share/", "$share/g", "$share//t", "$share/g+/t", "$share/g#/t", "$share/g/"):
        stage.see(text, _after(stage, packets.subscribe(V5, (text, 0))))


def acks_cut_off(stage: Stage) -> None:
    """acknowledgements that are cut off"""
    for kind in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
        first = packets.ack(kind, 1)[0]
        for body in (b"", b"\0"):
            stage.see(f"{kind} {len(body)}", _after(stage, packets.packet(first, body)))


@only(V31, V311)
def acks_too_long(stage: Stage) -> None:
    """acknowledgements with a reason code, before version 5"""
    for kind in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
        stage.see(kind, _after(stage, packets.ack(kind, 1, 0)))


@only(V31, V311)
def content_where_none_is(stage: Stage) -> None:
    """PINGREQ and DISCONNECT with content"""
    stage.see("ping", _after(stage, b"\xc0\x01x"))
    stage.see("disconnect", _after(stage, b"\xe0\x01\0"))


@only(V5)
def content_of_ping(stage: Stage) -> None:
    """PINGREQ with content"""
    stage.see("ping", _after(stage, b"\xc0\x01x"))


@only(V5)
def reason_codes(stage: Stage) -> None:
    """reason codes that a packet cannot have"""
    for kind, reason in (("PUBACK", 0x01), ("PUBREC", 0x92), ("PUBREL", 0x87), ("PUBCOMP", 0x10)):
        stage.see(kind, _after(stage, packets.ack(kind, 1, reason)))
    stage.see("DISCONNECT", _after(stage, packets.disconnect(V5, 0x01)))


def acks_of_nothing(stage: Stage) -> None:
    """acknowledgements of what was never sent"""
    for kind in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
        stage.see(kind, _after(stage, packets.ack(kind, 77)))


@only(V5)
def aliases(stage: Stage) -> None:
    """topic alias 0, one above the maximum, and one that is not defined"""
    stage.see("0", _after(stage, packets.publish(V5, "t", "m", 1, 1, given=[(ALIAS, 0)])))
    stage.see("65535", _after(stage, packets.publish(V5, "t", "m", 1, 1, given=[(ALIAS, 65_535)])))
    stage.see("unknown", _after(stage, packets.publish(V5, "", "m", 1, 1, given=[(ALIAS, 1)])))


@only(V5)
def twice_the_same_property(stage: Stage) -> None:
    """PUBLISH, SUBSCRIBE and others with a property twice"""
    for given in ([(1, 1)] * 2, [(2, 5)] * 2, [(3, "t")] * 2, [(8, "r")] * 2, [(35, 1)] * 2):
        data = packets.publish(V5, "t", "m", 1, 1, given=given)
        stage.see(f"publish {given[0][0]}", _after(stage, data))
    stage.see("subscribe", _after(stage, packets.subscribe(V5, ("t", 0), given=[(11, 1)] * 2)))
    stage.see("disconnect", _after(stage, packets.disconnect(V5, 0, [(17, 0)] * 2)))


@only(V5)
def properties_of_others(stage: Stage) -> None:
    """PUBLISH, SUBSCRIBE and UNSUBSCRIBE with properties of other packets"""
    for given in ((17, 5), (33, 5), (18, "x"), (11, 1), (24, 1)):
        data = packets.publish(V5, "t", "m", 1, 1, given=[given])
        stage.see(f"publish {given}", _after(stage, data))
    stage.see("subscribe", _after(stage, packets.subscribe(V5, ("t", 0), given=[(2, 1)])))
    stage.see("unsubscribe", _after(stage, packets.unsubscribe(V5, "t", given=[(11, 1)])))


@only(V5)
def property_values(stage: Stage) -> None:
    """values of properties that are not allowed"""
    for given in ((1, 2), (8, "a/+"), (8, "#"), (3, b"\xff")):
        data = packets.publish(V5, "t", "m", 1, 1, given=[given])
        stage.see(f"publish {given}", _after(stage, data))
    stage.see("identifier 0", _after(stage, packets.subscribe(V5, ("t", 0), given=[(11, 0)])))


@only(V5)
def publish_properties_cut_off(stage: Stage) -> None:
    """PUBLISH whose properties are longer than it is"""
    for tail in (b"\x05\x02\0", b"\x02\x02\0", b"\xff\xff\xff\xff\x01", b""):
        body = packets.text("t") + b"\0\x01" + tail
        stage.see(repr(tail), _after(stage, packets.packet(0x32, body)))


@only(V5)
def unknown_property(stage: Stage) -> None:
    """PUBLISH with a property that there is not"""
    for kind in (0, 4, 43, 127):
        data = packets.publish(V5, "t", "m", 1, 1, given=[(kind, b"\0")])
        stage.see(str(kind), _after(stage, data))


@only(V5)
def longer_session(stage: Stage) -> None:
    """DISCONNECT with a session expiry where CONNECT had none"""
    stage.see("end", _after(stage, packets.disconnect(V5, 0, [(17, 60)])))


def garbage(stage: Stage) -> None:
    """what is no MQTT at all"""
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x16\x03\x01\x02\0\x01\0\x01\xfc"):
        peer = stage.raw()
        peer.send(data)
        stage.see(repr(data[:3]), peer.end())


def others_go_on(stage: Stage) -> None:
    """what one does wrong is not another's harm"""
    peer = stage.subscriber("good", ("goes/on", 1))
    for data in (b"\xff" * 100, b"\x30\xff\xff\xff\xff\x01", b"\x32\x01\0", bytes(100)):
        _after(stage, data)
    peer.publish("goes/on", "m", 1, 5)
    stage.see("goes on", sorted(peer.until(2)))


def cut_in_the_middle(stage: Stage) -> None:
    """a PUBLISH that is cut in the middle did not happen"""
    reader = stage.subscriber("reader", ("cut", 1))
    peer = stage.client("a")
    peer.send(packets.publish(stage.version, "cut", "half" * 100, 1, 1)[:50])
    peer.vanish()
    peer = stage.client("a")
    peer.publish("cut", "full", 1, 1)
    stage.see("answer", peer.rest())
    stage.see("came", reader.until(1))
