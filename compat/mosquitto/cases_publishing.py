"""PUBLISH in all QoS, with DUP, out of order, and at once."""

from packets import V5, V31, V311
from stage import Stage, only


def answers(stage: Stage) -> None:
    """what each QoS is answered, with a subscriber"""
    stage.subscriber("reader", ("a", 2))
    peer = stage.client("a")
    peer.publish("a", "m")
    stage.see("qos 0", peer.rest())
    peer.publish("a", "m", 1, 300)
    stage.see("qos 1", peer.rest())
    peer.publish("a", "m", 2, 65_535)
    stage.see("qos 2", peer.rest())
    peer.ack("PUBREL", 65_535)
    stage.see("release", peer.rest())


def nobody(stage: Stage) -> None:
    """what is answered when nobody subscribed"""
    peer = stage.client("a")
    peer.publish("nobody", "m", 1, 1)
    stage.see("qos 1", peer.rest())
    peer.publish("nobody", "m", 2, 2)
    stage.see("qos 2", peer.rest())
    peer.ack("PUBREL", 2)
    stage.see("release", peer.rest())


def twice_before_release(stage: Stage) -> None:
    """the same packet of QoS 2 again before PUBREL is published once"""
    reader = stage.subscriber("reader", ("a", 0))
    peer = stage.client("a")
    peer.publish("a", "m", 2, 5)
    stage.see("first", peer.rest())
    peer.publish("a", "m", 2, 5, dup=True)
    stage.see("again", peer.rest())
    peer.ack("PUBREL", 5)
    stage.see("release", peer.rest())
    stage.see("came", reader.rest())


def same_identifier_after_release(stage: Stage) -> None:
    """an identifier of QoS 2 is free after PUBCOMP"""
    reader = stage.subscriber("reader", ("a", 0))
    peer = stage.client("a")
    for turn in range(3):
        peer.publish("a", str(turn), 2, 5)
        peer.rest()
        peer.ack("PUBREL", 5)
        stage.see(f"turn {turn}", peer.rest())
    stage.see("came", reader.rest())


def same_identifier_of_quality_one(stage: Stage) -> None:
    """the same identifier of QoS 1, with and without DUP, is another message"""
    reader = stage.subscriber("reader", ("a", 0))
    peer = stage.client("a")
    peer.publish("a", "1", 1, 5)
    stage.see("first", peer.rest())
    peer.publish("a", "2", 1, 5, dup=True)
    stage.see("dup", peer.rest())
    peer.publish("a", "3", 1, 5)
    stage.see("third", peer.rest())
    stage.see("came", reader.rest())


def release_twice(stage: Stage) -> None:
    """PUBREL twice, and of what was never published"""
    peer = stage.subscriber("a", ("a", 0))
    peer.publish("a", "m", 2, 5)
    peer.rest()
    for turn in ("first", "second"):
        peer.ack("PUBREL", 5)
        stage.see(turn, peer.rest())
    peer.ack("PUBREL", 99)
    stage.see("unknown", peer.rest())


def several_at_once(stage: Stage) -> None:
    """several of QoS 2 at once, released in another order"""
    stage.subscriber("reader", ("a", 0))
    peer = stage.client("a")
    for number in range(1, 6):
        peer.publish("a", str(number), 2, number)
    stage.see("received", peer.rest())
    for number in (3, 1, 5, 2, 4):
        peer.ack("PUBREL", number)
    stage.see("completed", sorted(peer.rest()))


def when_quality_two_is_seen(stage: Stage) -> None:
    """a message of QoS 2 is published before or after PUBREL, but once"""
    reader = stage.subscriber("reader", ("a", 0))
    peer = stage.client("a")
    peer.publish("a", "m", 2, 5)
    peer.rest()
    peer.ack("PUBREL", 5)
    peer.rest()
    stage.see("came", reader.rest())


def received_flow(stage: Stage) -> None:
    """a subscriber of QoS 2 answers, and is released"""
    reader = stage.subscriber("reader", ("a", 2))
    peer = stage.client("a")
    peer.publish("a", "m", 2, 5)
    peer.rest()
    peer.ack("PUBREL", 5)
    peer.rest()
    stage.see("came", reader.until(1))
    reader.ack("PUBREC", 1)
    stage.see("release", reader.rest())
    reader.ack("PUBCOMP", 1)
    stage.see("nothing more", reader.rest())


def received_twice(stage: Stage) -> None:
    """PUBREC and PUBCOMP of a subscriber twice"""
    reader = stage.subscriber("reader", ("a", 2))
    peer = stage.client("a")
    peer.publish("a", "m", 2, 5)
    peer.rest()
    peer.ack("PUBREL", 5)
    peer.rest()
    reader.until(1)
    reader.ack("PUBREC", 1)
    stage.see("first", reader.rest())
    reader.ack("PUBREC", 1)
    stage.see("second", reader.rest())
    reader.ack("PUBCOMP", 1)
    stage.see("over", reader.rest())
    reader.ack("PUBCOMP", 1)
    stage.see("twice over", reader.end())


@only(V311, V5)
def wrong_acknowledgement(stage: Stage) -> None:
    """a subscriber answers QoS 1 with PUBREC, and QoS 2 with PUBACK"""
    for qos, kind in ((1, "PUBREC"), (2, "PUBACK"), (1, "PUBCOMP"), (2, "PUBCOMP")):
        reader = stage.subscriber("reader", ("a", 2))
        peer = stage.client("a")
        peer.publish("a", "m", qos, 5)
        peer.rest()
        peer.ack("PUBREL", 5)
        peer.rest()
        reader.until(1)
        reader.ack(kind, 1)
        stage.see(f"{qos} {kind}", reader.end())


@only(V5)
def refused_by_the_subscriber(stage: Stage) -> None:
    """a subscriber answers with a failure: the message is over"""
    reader = stage.kept("reader")
    reader.subscribe(("a", 2))
    reader.next()
    writer = stage.client("writer")
    for qos, kind in ((1, "PUBACK"), (2, "PUBREC")):
        writer.publish("a", "m", qos, 5)
        writer.rest()
        writer.ack("PUBREL", 5) if qos == 2 else None
        writer.rest()
        (came,) = reader.until(1)
        packet_id = int(came.split(" id ")[1].split(" ")[0])
        reader.ack(kind, packet_id, 0x80)
        stage.see(kind, reader.rest())
    reader.vanish()
    stage.see("nothing again", stage.kept("reader").rest())


def empty_payload(stage: Stage) -> None:
    """an empty payload is a message"""
    peer = stage.subscriber("a", ("a", 1))
    peer.publish("a", "", 1, 3)
    stage.see("came", sorted(peer.until(2)))


def large_payload(stage: Stage) -> None:
    """payloads around the sizes where the remaining length grows"""
    peer = stage.subscriber("a", ("a", 0))
    for size in (117, 130, 16_370, 16_400, 300_000):
        peer.publish("a", b"x" * size)
        stage.see(str(size), peer.until(1))


def payload_is_anything(stage: Stage) -> None:
    """a payload is bytes of any kind"""
    peer = stage.subscriber("a", ("a", 0))
    peer.publish("a", bytes(range(256)))
    stage.see("came", peer.until(1))


def to_oneself(stage: Stage) -> None:
    """what one publishes comes to oneself, if one subscribed"""
    peer = stage.subscriber("a", ("a", 2))
    peer.publish("a", "m", 0)
    stage.see("came", peer.until(1))


def mixed_qualities_in_order(stage: Stage) -> None:
    """QoS 0 and 1 of one topic to a connected subscriber"""
    reader = stage.subscriber("reader", ("a", 0))
    peer = stage.client("a")
    for number in range(1, 11):
        peer.publish("a", str(number), number % 2, number if number % 2 else None)
    peer.rest()
    stage.see("came", reader.until(10))


@only(V5)
def properties_cross(stage: Stage) -> None:
    """properties of a message come with it"""
    reader = stage.subscriber("reader", ("a", 1))
    peer = stage.client("a")
    given = [
        (1, 1), (3, "text/plain"), (8, "answers/here"), (9, b"abc"), (38, ("k", "v")),
        (38, ("k", "w")),
    ]  # fmt: skip
    peer.publish("a", "m", 1, 1, given=given)
    peer.rest()
    (came,) = reader.until(1)
    for each in given:
        value = each[1].decode() if isinstance(each[1], bytes) else each[1]
        stage.see(str(each[0]), f"({each[0]}, {value!r})" in came)
    stage.see("in order", came.index("'v'") < came.index("'w'"))


@only(V5)
def properties_to_an_older_version(stage: Stage) -> None:
    """a subscriber of an older version gets the message without properties"""
    for version in (V31, V311):
        reader = stage.subscriber(f"reader{version}", ("a", 1), version=version)
        peer = stage.client("a")
        peer.publish("a", "m", 1, 1, given=[(3, "text/plain"), (38, ("k", "v"))])
        peer.rest()
        stage.see(str(version), reader.until(1))


@only(V5)
def payload_format(stage: Stage) -> None:
    """a payload that is not the text it is said to be"""
    reader = stage.subscriber("reader", ("a", 1))
    peer = stage.client("a")
    peer.publish("a", b"\xff\xfe", 1, 1, given=[(1, 1)])
    stage.see("answer", peer.rest())
    stage.see("came", reader.rest())
