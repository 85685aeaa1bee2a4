"""MQTT's side: conversations of all versions that make sense, and mostly end with a mistake.

The first mistake ends a connection, whatever it is, so there is one in a conversation at most,
and it comes late.
"""

import re
from random import Random

from entrepot.wire.mqtt import packets
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import V5, V31, V311, Ack, Connect, Subscription, Will, write
from entrepot.wire.mqtt.properties import PacketType, Properties, encode_raw
from entrepot.wire.mqtt.reasons import Reason
from tests.fuzz.damage import damaged
from tests.fuzz.session import Damaged, place_near_end, with_echoes

ANSWER = re.compile(rb"\xd0\x00")  # PINGRESP.

VERSIONS = (V31, V311, V311, V5, V5, V5)
NAMES = ("a", "b", "kept", "x/y", "x")  # Whoever comes with one ends the other that has it.
TOPICS = (
    "a", "a/b", "a/b/c", "/", "a//b", "orders", "work", "x.y", "$SYS/broker/x", "$queue/work",
    "é/ß", "t" * 300, "/".join("abcdefghij"), "l/" * 150 + "l",
)  # fmt: skip
SHARED = ("$share/g/a/#", "$share/g/+", "$share/h/$queue/work")
FILTERS = (
    *TOPICS, "#", "+", "+/+", "a/#", "a/+/c", "/#", "$SYS/#", "$queue/none",
)  # fmt: skip
WRONG_FILTERS = ("$share/g", "a#", "a/#/b", "+a", "")
BODIES = (b"", b"x", b"text", b"\0" * 100, b"y" * 5_000, b"z" * 200_000)
# Hundreds of sessions keep a copy of each message: large ones would only fill the disk.
WEIGHTS = (10, 10, 10, 10, 10, 1)
ACKS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
NUMBERS = (None, None, 0, 1, 2, 60, 65_535, 2**32 - 1)


def speak(random: Random) -> list[bytes]:
    version = random.choice(VERSIONS)
    frames = [connect(random, version)]
    frames += [packet(random, version) for _ in range(random.choice((1, 5, 20, 40)))]
    chance = random.random()
    if chance < 0.4:
        place = place_near_end(random, frames)
        frames[place] = damaged(random, frames[place], random.choice((0, 0, 1, 2)))
    elif chance < 0.7:
        frames.insert(max(1, place_near_end(random, frames)), Damaged(wrong(random, version)))
    frames = with_echoes(random, frames, write(packets.Pingreq(), version))
    if random.random() < 0.5:
        reasons = (Reason.SUCCESS, Reason.DISCONNECT_WITH_WILL)
        frames.append(write(packets.Disconnect(random.choice(reasons)), version))
    return frames


def connect(random: Random, version: int) -> bytes:
    will = None
    if random.random() < 0.3:
        given = (
            Properties(will_delay_interval=random.choice((None, 0, 1))) if version == V5 else None
        )
        will = Will(
            random.choice(TOPICS),
            random.choice(BODIES[:4]),
            random.randrange(3),
            random.random() < 0.5,
            given or Properties(),
        )
    properties = Properties()
    if version == V5:
        properties = Properties(
            session_expiry_interval=random.choice(NUMBERS),
            receive_maximum=random.choice((None, None, 1, 10, 65_535)),
            maximum_packet_size=random.choice((*[None] * 10, 30, 2**32 - 1)),
            topic_alias_maximum=random.choice((None, 0, 1, 65_535)),
            request_response_information=random.choice((None, 0, 1)),
            user_properties=random.choice(((), (("k", "v"),))),
        )
    is_known = random.random() < 0.1
    name = random.choice(NAMES) if is_known else f"c{random.randrange(1_000)}"
    clean = random.random() < 0.5
    return write(Connect(version, name, clean, 60, will=will, properties=properties), version)


def packet(random: Random, version: int) -> bytes:
    number = random.choice((1, 2, 3, 4, 5, random.randrange(1, 65_536)))
    match random.randrange(9):
        case 0 | 1 | 2 | 3:
            return publish(random, version, number)
        case 4 | 5:
            some = tuple(subscription(random, version) for _ in range(random.choice((1, 1, 2, 20))))
            identifier = (random.choice((1, 7, 268_435_455)),) if random.random() < 0.3 else ()
            given = (
                Properties(subscription_identifiers=identifier) if version == V5 else Properties()
            )
            return write(packets.Subscribe(number, some, given), version)
        case 6:
            filters = tuple(random.choice(FILTERS) for _ in range(random.choice((1, 3))))
            return write(packets.Unsubscribe(number, filters), version)
        case 7:
            kind, reason = random.choice(ACKS), Reason.SUCCESS
            if kind in (PacketType.PUBREL, PacketType.PUBCOMP) and random.random() < 0.3:
                reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
            return write(Ack(kind, number, reason), version)
        case _:
            return b"".join(write(Ack(random.choice(ACKS), each), version) for each in range(1, 30))


def subscription(random: Random, version: int) -> Subscription:
    is_shared = random.random() < 0.1
    return Subscription(
        random.choice(SHARED if is_shared else FILTERS),
        random.randrange(3),
        version == V5 and not is_shared and random.random() < 0.1,
        version == V5 and random.random() < 0.3,
        random.randrange(3) if version == V5 else 0,
    )


def wrong(random: Random, version: int) -> bytes:
    """A packet that can be read, and must not be sent."""
    number = random.choice((1, 2, 65_535))
    match random.randrange(6):
        case 0:
            some = (Subscription(random.choice(WRONG_FILTERS), 1),)
            return write(packets.Subscribe(number, some), version)
        case 1:
            no_local = Subscription(random.choice(SHARED), 1, version == V5)
            return write(packets.Subscribe(number, (no_local,)), version)
        case 2:
            return write(packets.Unsubscribe(number, (random.choice(WRONG_FILTERS),)), version)
        case 3:
            return connect(random, version)  # A second one.
        case 4:
            return publish(random, version, number, is_wrong=True)
        case _:
            given = Properties(session_expiry_interval=60) if version == V5 else Properties()
            return write(packets.Disconnect(Reason.SUCCESS, given), version)


def publish(random: Random, version: int, number: int, *, is_wrong: bool = False) -> bytes:
    topic, (body,) = random.choice(TOPICS), random.choices(BODIES, WEIGHTS)
    raw = None
    if version == V5:
        raw = encode_raw(
            Properties(
                topic_alias=random.choice((101, 65_535) if is_wrong else (None, None, 1, 2, 10)),
                message_expiry_interval=random.choice(NUMBERS),
                content_type=random.choice((None, "x", "é" * 100)),
                response_topic="a/#" if is_wrong else random.choice((None, None, "a/b")),
                correlation_data=random.choice((None, b"\xff", b"x" * 1_000)),
                user_properties=random.choice(((), (("k", "v"), ("k", "w")), (("", ""),) * 20)),
            )
        )
    if is_wrong:
        topic = random.choice(("", "a/#", "+", "a\0b"))
    qos = random.randrange(3)
    message = Outgoing(qos, random.random() < 0.2, topic.encode(), raw, body)
    return head(message, number, is_again=qos > 0 and random.random() < 0.2) + body
