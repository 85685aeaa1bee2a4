"""Frames out of a stream of bytes, in whatever pieces they come; performatives; messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from entrepot.wire.amqp10 import frames, limits, message, types
from entrepot.wire.amqp10.errors import Amqp10Error, Condition
from entrepot.wire.amqp10.frames import Frame, FrameBuffer, ProtocolHeader, Transfers, frame
from entrepot.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
    Disposition,
    Error,
    Flow,
    Open,
    Rejected,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
    read,
)
from entrepot.wire.amqp10.types import Described, Symbol, ULong

PERFORMATIVES = [
    Open("me", "vhost:/", 1_000, 3, 5_000, offered_capabilities=("a", "b")),
    Begin(3, 1, 2, 3, 4, properties={Symbol("k"): "v"}),
    Attach("link", 7, True, 1, 0, Source("q", 2, "never"), Target("z", capabilities=("queue",))),
    Attach("tx", 1, target=Coordinator(("amqp:local-transactions",))),
    # What no standard names is read, and may have to be written again in an answer.
    Attach("odd", 2, source=Described(ULong(0x99), [ULong(1)]), target=b"\xff"),
    Attach("odd", 3, source=Source("q", default_outcome=Described(Symbol("x"), "y"))),
    Flow(1, 2, 3, 4, 5, 6, 7, drain=True),
    Disposition(True, 5, 9, True, Rejected(Error("amqp:not-found", "gone"))),
    Disposition(True, 5, state=TransactionalState(b"tx", Accepted())),
    Declared(b"1"),
    Close(Error("amqp:internal-error", "what")),
    SaslInit("PLAIN", b"\0a\0b"),
]


def feed(buffer: FrameBuffer, data: bytes, step: int) -> list[frames.Event]:
    events: list[frames.Event] = []
    at = 0
    while at < len(data):
        view = buffer.writable()
        part = data[at : at + min(step, len(view))]
        view[: len(part)] = part
        del view
        events += buffer.received(len(part))
        at += len(part)
    return events


@pytest.mark.parametrize("performative", PERFORMATIVES)
def test_performatives_round_trip(performative: Any) -> None:
    assert read(types.decode(encode(performative))) == performative


def test_golden() -> None:
    """An Open as qpid-proton 0.40 writes it: only a container id and a host."""
    data = bytes.fromhex("0000001c 02 00 0000 00 53 10 c0 0f 02 a1 02 6d 65 a1 08 6c6f63616c686f73")
    size = len(data).to_bytes(4, "big")
    buffer = FrameBuffer()
    events = feed(buffer, frames.AMQP_HEADER + size + data[4:], 1_000)
    assert events == [
        ProtocolHeader(frames.AMQP_HEADER),
        Frame(0, Open("me", "localhos")),
    ]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 100_000])
def test_every_split_gives_the_same(step: int) -> None:
    buffer = FrameBuffer()
    data = frames.AMQP_HEADER + b"".join(frame(1, each) for each in PERFORMATIVES)
    data += frames.EMPTY_FRAME + frame(1, Transfer(0, 1, b"t"), b"x" * 9_000)
    events = feed(buffer, data, step)
    assert events[1:-1] == [*(Frame(1, each) for each in PERFORMATIVES), Frame(0, None)]
    assert events[-1] == Transfers(1, [(Transfer(0, 1, b"t"), b"x" * 9_000)])
    assert buffer.unfinished_bytes == 0


def test_transfers_of_one_link_are_one_event() -> None:
    transfers = [Transfer(0, number, b"t") for number in range(3)]
    data = b"".join(frame(1, each, b"m") for each in transfers)
    data += frame(1, Transfer(1, 3, b"t"), b"m") + frame(2, Transfer(1, 4, b"t"), b"m")
    events = feed(FrameBuffer(), frames.AMQP_HEADER + data, 100_000)[1:]
    counts = [len(each.transfers) for each in events if isinstance(each, Transfers)]
    assert counts == [3, 1, 1]


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        ("00000007 02 00 0000", Condition.FRAMING_ERROR),
        ("7fffffff 02 00 0000", Condition.FRAMING_ERROR),
        ("0000000c 01 00 0000 00000000", Condition.FRAMING_ERROR),
        ("0000000c 04 00 0000 00000000", Condition.FRAMING_ERROR),
        ("0000000c 02 07 0000 00000000", Condition.FRAMING_ERROR),
        ("00000009 02 00 0000 40", Condition.DECODE_ERROR),
        ("0000000c 02 00 0000 00 53 10 45", Condition.DECODE_ERROR),
        ("0000000f 02 00 0000 00 53 10 c0 02 01 41", Condition.DECODE_ERROR),
        ("0000000d 02 00 0000 00 53 17 45 00", Condition.DECODE_ERROR),
    ],
)
def test_nonsense_ends_it(data: str, condition: Condition) -> None:
    buffer = FrameBuffer()
    events = feed(buffer, frames.AMQP_HEADER + bytes.fromhex(data), 1_000)
    error = events[-1]
    assert isinstance(error, Amqp10Error)
    assert error.condition is condition
    assert feed(buffer, frame(0, Close()), 1_000) == []


def test_announced_bytes_take_no_memory() -> None:
    buffer = FrameBuffer()
    buffer.allow(limits.FRAME_BYTES_MAX)
    head = limits.FRAME_BYTES_MAX.to_bytes(4, "big") + b"\x02\0\0\0"
    feed(buffer, frames.AMQP_HEADER + head, 1_000)
    assert len(buffer.writable()) <= frames.AREA_BYTES_MAX


def test_another_protocol_is_told_early() -> None:
    assert feed(FrameBuffer(), b"GET / HTTP", 1_000) == [ProtocolHeader(b"GET / HT")]
    assert feed(FrameBuffer(), b"AMQP\0\0\x09\x01", 1) == [ProtocolHeader(b"AMQP\0\0")]


# --- messages

HEADER = message.write_header(message.Header(True, 5, 1_000))
PROPERTIES = message.write_properties(message.Properties("id", b"guest", "to", "subject"))
APPLICATION = message.write_map(message.APPLICATION_PROPERTIES, {"colour": "blue"})
ANNOTATIONS = message.write_map(message.ANNOTATIONS, {Symbol("x-opt-a"): 1})
FOOTER = message.write_map(message.FOOTER, {Symbol("sum"): 5})


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (b"\0\x53\x75\xa0\x02hi", (0x75, 0xA0), b"hi"),
        (b"\0\x53\x75\xb0\0\0\0\x02hi", (0x75, 0xB0), b"hi"),
        (b"\0\x53\x77\xa1\x02hi", (0x77, 0xA1), b"hi"),
        (b"\0\x53\x77\x40", (0, 0), b"\0\x53\x77\x40"),
        (b"\0\x53\x76\x45\0\x53\x76\x45", (0, 0), b"\0\x53\x76\x45\0\x53\x76\x45"),
        (b"\0\x53\x75\xa0\x01a" * 2, (0, 0), b"\0\x53\x75\xa0\x01a" * 2),
        (b"\0\x80" + b"\0" * 7 + b"\x75\xa0\x01a", (0, 0), None),
    ],
)
def test_a_message_in_parts_is_the_same_again(
    body: bytes, kind: tuple[int, int], told: bytes | None
) -> None:
    parts = message.split(HEADER + ANNOTATIONS + PROPERTIES + APPLICATION + body + FOOTER)
    assert parts.body_kind == kind
    assert parts.body == (body if told is None else told)
    assert message.body_bytes(parts.body_kind, parts.body) == body
    assert (parts.header, parts.footer) == (HEADER, FOOTER)
    assert parts.middle == ANNOTATIONS + PROPERTIES + APPLICATION
    found = message.read_middle(parts.middle)
    assert found.properties.subject == "subject"
    assert found.application == {"colour": "blue"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEADER,
        b"\0\x53\x75\x55\x01"[:3],
        b"hello",
        PROPERTIES + HEADER + b"\0\x53\x75\xa0\0",
        b"\0\x53\x79\x45",
        b"\0\x53\x74\xc1\x05\x02\x55\x01\x55\x01\0\x53\x75\xa0\0",
        b"\0\x53\x70\xc0\x03\x01\x55\x01\0\x53\x75\xa0\0",
        b"\0\x53\x75\xa0\x05ab",
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(Amqp10Error):
        message.split(data)


@given(some.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        parts = message.split(b"\0\x53" + data)
    except Amqp10Error:
        return
    assert parts.body_kind is not None


def test_delivery_annotations_are_for_us_alone() -> None:
    data = message.write_map(message.DELIVERY_ANNOTATIONS, {Symbol("a"): 1})
    parts = message.split(data + b"\0\x53\x75\xa0\x02hi")
    assert (parts.middle, parts.body) == (b"", b"hi")


def test_a_descriptor_may_be_a_name() -> None:
    assert read(Described(Symbol("amqp:accepted:list"), [])) == Accepted()
    assert read(Described(ULong(0x9999), [])) == Described(ULong(0x9999), [])
