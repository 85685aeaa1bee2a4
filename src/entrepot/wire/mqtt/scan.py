"""From bytes to events: packets, and PUBLISH packets and acknowledgements in runs.

A busy connection sends PUBLISH after PUBLISH, or PUBACK after PUBACK. Those come out as one event
for all that are in a read. A PUBLISH whose topic and properties were seen before on this
connection is not checked again: it costs a few comparisons and slices. Its payload is bytes of
its own if it is small, and refers to the block that was read if it is large.

The scanner never raises. An error is an `MqttError` among the events, and the last of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from entrepot.core.limits import KIB, LOGIN_FRAME_BYTES_MAX, MESSAGE_BYTES
from entrepot.core.message import OPAQUE, Envelope, Message
from entrepot.wire.mqtt import limits
from entrepot.wire.mqtt.packets import (
    ACKS,
    QOS_MAX,
    V5,
    V31,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    check_flags,
    read,
)
from entrepot.wire.mqtt.properties import PacketType, check_publish
from entrepot.wire.mqtt.reader import Reader
from entrepot.wire.mqtt.reasons import FAILURE, MqttError, Reason, malformed, violated
from entrepot.wire.mqtt.states import FROM_CLIENT, FROM_SERVER, State
from entrepot.wire.mqtt.topics import check_name, read_text

AREA_BYTES_MIN = 512  # The buffer of an idle connection.
AREA_BYTES_MAX = 128 * KIB  # Read at once from a busy connection.
SMALL_BYTES = 512  # Up to this size a copy costs less than a reference.

_PUBLISH = int(PacketType.PUBLISH)
_DUP, _RETAIN = 0x08, 0x01
_KEPT = 0x07  # Of the first byte of a PUBLISH: QoS and RETAIN.

# Makes the envelope of messages with this topic and head.
MakeEnvelope = Callable[[str, bytes], Envelope]


def plain_envelope(topic: str, head: bytes) -> Envelope:
    return Envelope("", topic, head, OPAQUE)


class Publishes(NamedTuple):
    """Messages published one after the other with the same QoS, RETAIN and DUP.

    The head of an envelope is a byte with both, as in the packet, and the properties of version
    5 as they came, without a topic alias.
    """

    qos: int
    is_retained: bool
    is_repeated: bool  # DUP: they may have been sent before.
    messages: list[Message]
    ids: list[int]  # Packet identifiers of these messages; empty for QoS 0.


class Acks(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP packets, one after the other."""

    type: PacketType
    ids: list[int]
    reason: Reason = Reason.SUCCESS

    @property
    def has_failed(self) -> bool:
        return self.reason >= FAILURE


Event = (
    Publishes
    | Acks
    | Connect
    | Connack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
    | MqttError
)


class Scanner:
    __slots__ = (
        "_aliases",
        "_aliases_max",
        "_envelopes",
        "_is_client",
        "_last",
        "_make_envelope",
        "_message_bytes_max",
        "_packet_bytes_max",
        "_state",
        "_transitions",
        "needed",
        "version",
    )

    def __init__(
        self,
        *,
        is_client: bool = False,
        version: int = V5,
        message_bytes_max: int = MESSAGE_BYTES,
        make_envelope: MakeEnvelope = plain_envelope,
    ) -> None:
        """`version` is that of a client; a server learns it from CONNECT."""
        self.version = version
        self.needed = 0  # Bytes of the next packet, once its size is known; otherwise 0.
        self._is_client = is_client
        self._transitions = FROM_SERVER if is_client else FROM_CLIENT
        self._state = State.OPENING
        self._make_envelope = make_envelope
        self._message_bytes_max = message_bytes_max
        self._packet_bytes_max = LOGIN_FRAME_BYTES_MAX
        self._aliases: dict[int, str] = {}
        self._aliases_max = 0
        # What was checked before, by QoS and RETAIN, topic, and properties.
        self._envelopes: dict[tuple[int, bytes, bytes], Envelope] = {}
        self._last: tuple[int, bytes, bytes, Envelope | None] = (0, b"", b"", None)

    @property
    def is_over(self) -> bool:
        return self._state is State.CLOSED

    def accept(self, *, topic_aliases_max: int) -> None:
        """Accept packets of full size, and so many topic aliases: the peer has logged in."""
        self._packet_bytes_max = limits.PACKET_BYTES_MAX
        self._aliases_max = topic_aliases_max

    def scan(self, block: bytes) -> tuple[list[Event], int]:
        """Return the events of all complete packets, and how many bytes those are."""
        events: list[Event] = []
        at = 0
        try:
            at = self._scan(block, events)
        except MqttError as error:
            self._state = State.CLOSED
            events.append(error)
        if self._state is State.CLOSED:
            self.needed = 0
            return events, len(block)
        return events, at

    def _scan(self, block: bytes, events: list[Event]) -> int:
        at, end = 0, len(block)
        self.needed = 0
        run: Publishes | None = None
        run_first = 0  # The first byte of its packets.
        acks: Acks | None = None
        while end - at >= 2:
            first, size, start = block[at], block[at + 1], at + 2
            if size >= 0x80:
                found = self._size(block, at, end)
                if found is None:
                    break
                size, start = found
            stop = start + size
            type = first >> 4
            if size > LOGIN_FRAME_BYTES_MAX or self._state is State.OPENING:
                self._check_size(type, stop - at)
            if stop > end:
                self.needed = stop - at
                break
            if (self._state, type) not in self._transitions:
                raise self._unexpected(type)
            if type == _PUBLISH:
                if run is not None and first == run_first:
                    self._publish(run, first & _KEPT, block, start, stop)
                else:
                    run, run_first = _new_run(first), first
                    self._publish(run, first & _KEPT, block, start, stop)
                    events.append(run)
                acks = None
            elif size == 2 and first in _SHORT_ACKS:
                run = None
                packet_id = block[start] << 8 | block[start + 1]
                if not packet_id:
                    raise malformed("packet identifier 0")
                if acks is not None and acks.type == type:
                    acks.ids.append(packet_id)
                else:
                    acks = Acks(PacketType(type), [packet_id])
                    events.append(acks)
            else:
                run = acks = None
                self._other(first, Reader(block, start, stop), events)
                if self._state is State.CLOSED:
                    break
            at = stop
        return at

    def _size(self, block: bytes, at: int, end: int) -> tuple[int, int] | None:
        """Return a packet's remaining length and where it begins; None if it is incomplete."""
        size = 0
        for place in range(4):
            where = at + 1 + place
            if where >= end:
                return None
            byte = block[where]
            size |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if place and not byte and self.version == V5 and self._state is State.OPEN:
                    raise malformed("a remaining length in more bytes than it needs")
                return size, where + 1
        raise malformed("a remaining length of more than four bytes")

    def _check_size(self, type: int, size: int) -> None:
        bytes_max = self._packet_bytes_max
        if type == _PUBLISH and bytes_max == limits.PACKET_BYTES_MAX:
            bytes_max = self._message_bytes_max + limits.PUBLISH_EXTRA_BYTES_MAX
        if self._state is State.OPENING and (self._state, type) not in self._transitions:
            raise self._unexpected(type)
        if size > bytes_max:
            raise MqttError(Reason.PACKET_TOO_LARGE, f"a packet of {size} bytes")

    def _unexpected(self, type: int) -> MqttError:
        name = PacketType(type).name if type else "packet type 0"
        if not type:
            return malformed(name)
        return violated(f"{name} on a connection that is {self._state.value}")

    def _publish(self, run: Publishes, flags: int, block: bytes, start: int, stop: int) -> None:
        """Add one message to the run."""
        at = start + 2
        if at > stop:
            raise malformed("PUBLISH without a topic")
        topic_end = at + (block[start] << 8 | block[start + 1])
        body = topic_end
        if flags >= 2:  # QoS 1 or 2.
            body += 2
            if body > stop:
                raise malformed("PUBLISH without a packet identifier")
            if not (block[topic_end] or block[topic_end + 1]):
                raise malformed("packet identifier 0")
        topic, properties = block[at:topic_end], b""
        if self.version == V5:
            reader = Reader(block, body, stop)
            size = reader.variable()
            properties = reader.take(size) if size else b""
            body = reader.at
        if body > stop:
            raise malformed("a topic that is longer than its packet")
        last_flags, last_topic, last_properties, envelope = self._last
        if (
            envelope is None
            or topic != last_topic
            or flags != last_flags
            or properties != last_properties
        ):
            envelope = self._envelopes.get((flags, topic, properties))
            if envelope is None:
                envelope = self._envelope(flags, topic, properties)
            self._last = flags, topic, properties, envelope
        if stop - body > self._message_bytes_max:
            raise MqttError(Reason.PACKET_TOO_LARGE, f"a message of {stop - body} bytes")
        if flags >= 2:
            run.ids.append(block[topic_end] << 8 | block[topic_end + 1])
        if stop - body <= SMALL_BYTES:
            run.messages.append((envelope, block[body:stop]))
        else:
            run.messages.append((envelope, memoryview(block)[body:stop]))

    def _envelope(self, flags: int, topic: bytes, properties: bytes) -> Envelope:
        """Check topic and properties, and remember them. Raises MqttError."""
        name = read_text(topic)
        kept, alias = properties, None
        if properties:
            kept, alias, has_identifiers = check_publish(properties)
            if has_identifiers and not self._is_client:
                raise violated("a subscription identifier in a client's PUBLISH")
        if alias is not None:
            name = self._aliased(name, alias)
        if not name and alias is None and self.version == V5:
            raise violated("PUBLISH with neither a topic nor a topic alias")
        check_name(name)
        envelope = self._make_envelope(name, bytes((flags,)) + kept)
        if len(topic) + len(properties) <= limits.ENVELOPES_CACHED_BYTES_MAX:
            if len(self._envelopes) >= limits.ENVELOPES_CACHED_MAX:
                self._envelopes.clear()
            self._envelopes[flags, topic, properties] = envelope
        return envelope

    def _aliased(self, name: str, alias: int) -> str:
        """Return the topic of an alias, which `name` defines unless it is empty."""
        if alias > self._aliases_max:
            raise MqttError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}")
        known = self._aliases.get(alias)
        if not name:
            if known is None:
                raise violated(f"topic alias {alias}, which was not defined")
            return known
        check_name(name)
        if known != name:
            self._aliases[alias] = name
            self._envelopes.clear()  # It may stand for another topic there.
            self._last = (0, b"", b"", None)
        return name

    def _other(self, first: int, reader: Reader, events: list[Event]) -> None:
        type = PacketType(first >> 4)
        check_flags(type, first, V31 if type is PacketType.CONNECT else self.version)
        packet: Packet = read(type, reader, self.version)
        self._state = self._transitions[self._state, type]
        if isinstance(packet, Connect):
            self.version = packet.version
        if isinstance(packet, Ack):
            events.append(Acks(packet.type, [packet.packet_id], packet.reason))
        else:
            events.append(packet)


_SHORT_ACKS = tuple(type << 4 | (2 if type is PacketType.PUBREL else 0) for type in ACKS)


def _new_run(first: int) -> Publishes:
    qos = first >> 1 & 3
    if qos > QOS_MAX:
        raise malformed("QoS 3")
    if first & _DUP and not qos:
        raise malformed("DUP with QoS 0")
    return Publishes(qos, bool(first & _RETAIN), bool(first & _DUP), [], [])


class PacketBuffer:
    """Turns bytes into events. After an error or DISCONNECT there are no more.

    Memory is never allocated for bytes that were only announced, and none that was returned is
    overwritten by a later read.
    """

    __slots__ = ("_area", "_filled", "_scanner", "_taken", "accept")

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self.accept = scanner.accept
        self._area = bytearray(AREA_BYTES_MIN)
        self._filled = 0  # Bytes in the area; fewer than it holds.
        self._taken = 0  # Bytes that were in the area and are processed.

    @property
    def unfinished_bytes(self) -> int:
        """Return how many bytes of an incomplete packet are held."""
        return self._filled

    @property
    def unfinished_number(self) -> int:
        """Return a number that identifies the incomplete packet."""
        return self._taken

    def writable(self) -> memoryview:
        """Return where the next bytes go. Never empty."""
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> list[Event]:
        """Return the events of all packets that are now complete."""
        filled = self._filled + size
        scanner = self._scanner
        events: list[Event] = []
        left = filled
        if scanner.is_over:
            left = 0
        elif filled >= scanner.needed:
            block = bytes(memoryview(self._area)[:filled])
            events, taken = scanner.scan(block)
            left = filled - taken
            if left:
                self._area[:left] = memoryview(block)[taken:]
        self._taken += filled - left
        self._filled = left
        room = len(self._area)
        if filled == room:
            self._resize(max(AREA_BYTES_MAX, min(2 * left, scanner.needed)))
        elif left == 0 and filled < AREA_BYTES_MIN < room:
            self._resize(AREA_BYTES_MIN)
        return events

    def _resize(self, size: int) -> None:
        if len(self._area) != size:
            area = bytearray(size)
            area[: self._filled] = memoryview(self._area)[: self._filled]
            self._area = area
