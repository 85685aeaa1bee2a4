"""What the tests of AMQP's wire share: captured frames, samples of everything, a slow reader.

The slow reader reads frames one by one in the plainest way, and is what the scanner, in
any of its forms, is compared with.
"""

from decimal import Decimal
from pathlib import Path
from random import Random
from struct import pack, unpack_from
from typing import Any, NamedTuple

from hypothesis import strategies as st

from entrepot.core.message import OPAQUE, Envelope
from entrepot.wire.amqp import deliver, scan, table
from entrepot.wire.amqp.frames import FrameBuffer, frame
from entrepot.wire.amqp.methods import METHODS, basic, decode
from entrepot.wire.amqp.properties import BasicProperties

VECTORS = Path(__file__).parents[3] / "vectors"
FRAME_BYTES_MAX = 131_072


class Captured(NamedTuple):
    client: str
    is_clients: bool  # Or else the server's.
    name: str
    data: bytes


def captured() -> list[Captured]:
    """Real conversations, frame by frame, after the client's protocol header."""
    found = []
    for path in sorted(VECTORS.glob("amqp_*.txt")):
        client = path.stem.removeprefix("amqp_")
        for section in path.read_text("ascii").split("\n[")[1:]:
            title, _, data = section.partition("]\n")
            name = title.split()[-1]
            if name != "protocol-header":
                data = bytes.fromhex(data.replace("\n", ""))
                found.append(Captured(client, title[0] == ">", name, data))
    return found


def publish_frames(
    channel: int,
    body: bytes,
    *,
    exchange: str = "",
    key: str = "work",
    properties: bytes = b"\0\0",
    mandatory: bool = False,
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> bytes:
    method = basic.Publish(0, exchange, key, mandatory)
    return b"".join(deliver.content(channel, method, properties, body, frame_bytes_max))


def header_frame(channel: int, size: int, properties: bytes = b"\0\0", class_id: int = 60) -> bytes:
    return frame(scan.HEADER, channel, pack(">HHQ", class_id, 0, size) + properties)


def feed(buffer: FrameBuffer, data: bytes, size_max: int = 1 << 30) -> list[Any]:
    """What a connection does that gets at most so many bytes at a time."""
    events = []
    view = memoryview(data)
    while view:
        room = buffer.writable()
        size = min(len(view), len(room), size_max)
        assert size > 0
        room[:size] = view[:size]
        events += buffer.received(size)
        view = view[size:]
    return events


def flat(events: list[Any]) -> list[Any]:
    """Events without their runs, in plain values: runs depend on how reads were cut."""
    found: list[Any] = []
    for event in events:
        match event:
            case scan.Publishes(channel, target, messages):
                found += [(channel, target, each, bytes(body)) for each, body in messages]
            case scan.Acks(channel, is_multiple, tags):
                found += [(channel, is_multiple, tag) for tag in tags]
            case scan.Content(channel, payload, properties, body):
                found.append((channel, payload, properties, bytes(body)))
            case scan.AmqpError():
                found.append((event.code, event.channel))
            case _:
                found.append(event)
    return found


def read_slowly(data: bytes) -> list[Any]:
    """What `flat` gives for a stream without mistakes."""
    found: list[Any] = []
    begun: dict[int, list[Any]] = {}
    position = 0
    while position < len(data):
        kind, channel, size = unpack_from(">BHI", data, position)
        payload = data[position + 7 : position + 7 + size]
        assert data[position + 7 + size] == 0xCE
        position += size + 8
        if kind == scan.HEARTBEAT:
            found.append(scan.Heartbeat())
        elif kind == scan.METHOD:
            method = decode(payload)
            if method.HAS_CONTENT:
                begun[channel] = [method, payload]
            elif isinstance(method, basic.Ack):
                found.append((channel, method.multiple, method.delivery_tag))
            else:
                found.append(scan.MethodFrame(channel, payload))
            continue
        elif kind == scan.HEADER:
            begun[channel] += [int.from_bytes(payload[4:12], "big"), payload[12:], b""]
        else:
            begun[channel][4] += payload
        if channel in begun and len(begun[channel][4]) == begun[channel][2]:
            method, payload, _, properties, body = begun.pop(channel)
            if isinstance(method, basic.Publish):
                target = scan.PublishTarget(method.exchange, method.mandatory, method.immediate)
                envelope = Envelope(method.exchange, method.routing_key, properties, OPAQUE)
                found.append((channel, target, envelope, body))
            else:
                found.append((channel, payload, properties, body))
    return found


def stream(random: Random, count: int) -> bytes:
    """Frames of all kinds as a lively client sends them, contents interleaved by channel."""
    waiting: list[list[bytes]] = [[], [], []]
    for _ in range(count):
        channel = random.randrange(3)
        waiting[channel] += something(random, channel + 1)
    found = []
    while any(waiting):
        frames = random.choice([each for each in waiting if each])
        for _ in range(min(random.choice((1, 3, 30)), len(frames))):
            found.append(frames.pop(0))
    return b"".join(found)


def something(random: Random, channel: int) -> list[bytes]:
    """Frames of one kind, one after the other."""
    times = random.choice((1, 1, 5))
    properties = random.choice((b"\0\0", b"\x18\0\x02\x03", b"\0\x80\x02id"))
    size = random.choice((0, 1, 5, 100, scan.SMALL_BYTES, scan.SMALL_BYTES + 1, 5_000))
    key = random.choice(("work", "other"))
    match random.randrange(6):
        case 0:
            return [ack(channel, random.randrange(1 << 63), False)] * times
        case 1:
            return [ack(channel, random.randrange(1 << 63), True)] * times
        case 2:
            return [frame(scan.HEARTBEAT, 0, b"")]
        case 3:
            return [frame(scan.METHOD, channel, deliver.encode(basic.Qos(prefetch_count=5)))]
    data = publish_frames(
        channel, random.randbytes(size), key=key, properties=properties, frame_bytes_max=4_096
    )
    return split(data) * times


def ack(channel: int, tag: int, multiple: bool) -> bytes:
    return frame(scan.METHOD, channel, deliver.encode(basic.Ack(tag, multiple)))


def split(data: bytes) -> list[bytes]:
    frames = []
    while data:
        (size,) = unpack_from(">I", data, 3)
        frames.append(data[: size + 8])
        data = data[size + 8 :]
    return frames


# Samples of everything, for hypothesis.

texts = st.text(max_size=20)
# Bytes that are not UTF-8 come out as surrogate escapes, and go in again as they came.
loose_texts = st.binary(max_size=30).map(lambda data: data.decode("utf-8", "surrogateescape"))
decimals = st.builds(
    lambda digits, scale: Decimal((0, tuple(map(int, str(digits))), -scale)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 255),
)
scalars = st.one_of(
    st.booleans(),
    st.none(),
    loose_texts,
    st.binary(max_size=30),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**7), 2**7 - 1).map(table.Int8),
    st.integers(0, 2**8 - 1).map(table.UInt8),
    st.integers(-(2**15), 2**15 - 1).map(table.Int16),
    st.integers(0, 2**16 - 1).map(table.UInt16),
    st.integers(0, 2**32 - 1).map(table.UInt32),
    st.integers(-(2**63), 2**63 - 1).map(table.Int64),
    st.integers(0, 2**64 - 1).map(table.Timestamp),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(table.Float32),
    decimals,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)
tables = st.dictionaries(loose_texts, values, max_size=6)

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "octet": st.integers(0, 2**8 - 1),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "bit": st.booleans(),
    "shortstr": texts,
    "passedstr": loose_texts,
    "longstr": st.binary(max_size=50),
    "table": tables,
}


def fields_of(kind: type[Any]) -> dict[str, str]:
    """Name and wire type of each field, in order."""
    return {name: kind.__annotations__[name].__metadata__[0] for name in kind.__dataclass_fields__}


methods = st.one_of(
    [
        st.builds(kind, **{name: _FIELDS[wire] for name, wire in fields_of(kind).items()})
        for kind in METHODS.values()
    ]
)
properties = st.builds(
    BasicProperties,
    **{
        name: st.none() | strategy
        for name, strategy in {
            **dict.fromkeys(BasicProperties.__dataclass_fields__, loose_texts),
            "headers": tables,
            "delivery_mode": _FIELDS["octet"],
            "priority": _FIELDS["octet"],
            "timestamp": _FIELDS["longlong"],
        }.items()
    },
)


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Decimal):
        return bool(one.as_tuple() == other.as_tuple())
    return bool(one == other)
