"""AMQP 1.0's side: conversations over a few links, with fields that are right and that are not."""

import re
from random import Random
from typing import Any

from entrepot.wire.amqp10 import frames, message, types
from entrepot.wire.amqp10.frames import frame, sasl_frame
from entrepot.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
)
from entrepot.wire.amqp10.types import Symbol
from tests.fuzz.damage import damaged
from tests.fuzz.session import Damaged, place_near_end, with_echoes

_ECHO_CHANNEL = 7  # A session without links, on which a flow is sent for an echo only.
ANSWER = re.compile(rb"\x02\x00\x00\x07\x00\x53\x13")
_TALK_CHANNEL = 0

_NAMES = ("q1", "q2", "orders", "amq.x", "a%2Fb", "x" * 300, "", "é", "a.b", "#", "%zz", "%00")
_ADDRESSES = (
    *_NAMES,
    *[f"/queues/{name}" for name in _NAMES],
    *[f"/topics/{name}" for name in _NAMES],
    *("/exchanges/amq.fanout", "/exchanges/amq.topic/a", "/exchanges/none", "/x", "topic://t"),
)
_USUAL = ("q1", "q2", "/topics/a.b", "/exchanges/amq.fanout/k")
_NUMBERS = (0, 1, 2, 3, 100, 2_000, 2**31 - 1, 2**31, 2**32 - 1)
_BODIES = (
    b"\0\x53\x75\xa0\x01x",
    b"\0\x53\x77\xa1\x03abc",
    b"\0\x53\x77\x40",
    b"\0\x53\x76\x45",
    b"\0\x53\x75\xb0\0\0\x4e\x20" + b"x" * 20_000,
)
_STATES = (
    None,
    Accepted(),
    Released(),
    Rejected(),
    Modified(True, False),
    Modified(False, True),
    TransactionalState((1).to_bytes(8, "big"), Accepted()),
)


def speak(random: Random) -> list[bytes]:
    """A conversation with at most one mistake, which mostly ends it."""
    said = [*greeting(random), *conversation(random)]
    chance = random.random()
    if chance < 0.3:
        said.append(damaged(random, random.choice(said[1:])))
    elif chance < 0.7:
        odd = Damaged(frame(_TALK_CHANNEL, *performative(random, is_odd=True)))
        said.insert(max(2, place_near_end(random, said)), odd)
    echo = frame(_ECHO_CHANNEL, Flow(0, 100, 0, 100, echo=True))
    return [*with_echoes(random, said, echo), frame(0, Close())]


def greeting(random: Random) -> list[bytes]:
    """From the first byte to two sessions: one for talking, one for echoes."""
    size = random.choice((512, 1_000, 2**16, 2**32 - 1))
    opening = frames.AMQP_HEADER + frame(0, Open("fuzz", max_frame_size=size))
    sessions = [frame(each, Begin(None, 0, 100, 100)) for each in (_ECHO_CHANNEL, _TALK_CHANNEL)]
    if random.random() < 0.7:
        return [opening + sessions[0], sessions[1]]
    password = b"guest" if random.random() < 0.95 else b"wrong"
    init = sasl_frame(SaslInit("PLAIN", b"\0guest\0" + password))
    return [frames.SASL_HEADER + init, opening + sessions[0], sessions[1]]


def conversation(random: Random) -> list[bytes]:
    """Frames that are right also in their order."""
    said: list[bytes] = []
    attached: dict[int, str] = {}
    delivery = 0
    for _ in range(random.choice((3, 6, 12, 25))):
        handle = random.randrange(4)
        kind = attached.get(handle)
        if kind is None:
            kind = attached[handle] = random.choice(("sender", "receiver", "sender", "tx"))
            said.append(frame(_TALK_CHANNEL, attach(random, handle, kind)))
        elif random.random() < 0.1:
            del attached[handle]
            said.append(frame(_TALK_CHANNEL, Detach(handle, random.random() < 0.5)))
        elif kind == "receiver":
            flow = Flow(0, 100, delivery, 100, handle, 0, random.choice((1, 10, 100)))
            told = Disposition(True, 0, random.choice((0, 5)), True, random.choice(_STATES[1:6]))
            said.append(frame(_TALK_CHANNEL, random.choice((flow, flow, told))))
        else:
            said.append(frame(_TALK_CHANNEL, *transfer(random, handle, delivery, kind == "tx")))
            delivery += 1
    return said


def attach(random: Random, handle: int, kind: str, *, is_odd: bool = False) -> Attach:
    address: str | None = random.choice(_ADDRESSES if is_odd else _USUAL)
    is_dynamic = random.random() < 0.1
    if is_dynamic:
        address = None
    name = f"link-{handle}-{random.randrange(1_000)}"
    if kind == "tx":
        return Attach(name, handle, source=Source(), target=Coordinator())
    if kind == "sender":
        return Attach(name, handle, target=Target(address, dynamic=is_dynamic))
    is_kept = random.random() < 0.2
    source = Source(
        address,
        2 if is_kept else 0,
        "never" if is_kept else None,
        dynamic=is_dynamic,
        filter={Symbol("x"): 1} if is_odd and random.random() < 0.3 else None,
    )
    return Attach(name, handle, True, random.choice((0, 1, 2)), source=source, target=Target())


def transfer(
    random: Random, handle: int, delivery: int, is_coordinator: bool, *, is_odd: bool = False
) -> tuple[Transfer, bytes]:
    state = random.choice(_STATES) if is_odd else None
    told = Transfer(handle, delivery, b"%d" % delivery, 0, random.random() < 0.2, state=state)
    if is_odd and random.random() < 0.3:
        told = told._replace(more=True)
    if is_coordinator:
        chosen = random.choice((Declare(), Discharge((1).to_bytes(8, "big"), is_odd)))
        return told, types.described(message.VALUE, encode(chosen))
    return told, content(random)


def content(random: Random) -> bytes:
    """A whole message, with some of its sections."""
    ttl_ms = random.choice((None, None, 0, 1, 60_000, 2**32 - 1))
    header = message.Header(random.random() < 0.5, random.choice((None, 0, 9, 255)), ttl_ms)
    properties = message.Properties(
        message_id=random.choice((None, "id", types.ULong(7), b"\xff")),
        to=random.choice((None, *_ADDRESSES)),
        subject=random.choice((None, "k", "x" * 300)),
        content_type=Symbol("text/plain") if random.random() < 0.5 else None,
    )
    application = {"a": random.choice((1, "é", b"\0", None, 1.5)), "x" * 300: True}
    annotations = {Symbol("x-opt-delay"): random.choice((1, -1, "x", 2**40))}
    parts = [
        message.write_header(header),
        message.write_map(message.ANNOTATIONS, annotations),
        message.write_properties(properties),
        message.write_map(message.APPLICATION_PROPERTIES, application),
    ]
    kept = [part for part in parts if random.random() < 0.5]
    return b"".join(kept) + random.choice(_BODIES)


def performative(random: Random, *, is_odd: bool) -> tuple[Any, ...]:
    """One that is right in form, and mostly wrong where it comes."""
    number = random.choice(_NUMBERS)
    handle = random.choice((0, 1, 2, 3, 9, 1_999, 2_000, number))
    match random.randrange(8):
        case 0:
            return (attach(random, handle, random.choice(("sender", "receiver")), is_odd=is_odd),)
        case 1:
            fields = (random.choice(_NUMBERS) for _ in range(7))
            return (Flow(*fields, drain=random.random() < 0.5, echo=random.random() < 0.5),)
        case 2:
            return transfer(random, handle, number, random.random() < 0.2, is_odd=is_odd)
        case 3:
            last = random.choice(_NUMBERS)
            is_settled, state = random.random() < 0.5, random.choice(_STATES)
            return (Disposition(random.random() < 0.8, number, last, is_settled, state),)
        case 4:
            return (Detach(handle, random.random() < 0.5),)
        case 5:
            return (Begin(None, number, number, number),)
        case 6:
            return (End(),)
    return (Open("again"),)
