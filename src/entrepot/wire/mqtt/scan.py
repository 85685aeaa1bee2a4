"""From bytes to events: packets, and PUBLISH packets and acknowledgements in runs.

A busy connection sends PUBLISH after PUBLISH, or PUBACK after PUBACK. Those come out as one event
for all that are in a read. A PUBLISH that begins like the one before it, up to its payload, costs
one comparison. Another one whose topic and properties were seen before, on any connection that
shares the same `Envelopes`, costs one lookup. Its payload is bytes of its own if it is small, and
refers to the block that was read if it is large.

The scanner never raises. An error is an `MqttError` among the events, and the last of them.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from entrepot.core.limits import KIB, LOGIN_FRAME_BYTES_MAX, MESSAGE_BYTES
from entrepot.core.message import Envelope, Message
from entrepot.wire.mqtt import limits
from entrepot.wire.mqtt.envelopes import KEPT, Envelopes
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

AREA_BYTES_MAX = 128 * KIB  # Read at once, unless a larger packet is awaited.
HELD_BYTES_MAX = 4 * KIB  # Of a packet, without a buffer of its own. A length is known before.
SMALL_BYTES = 2 * KIB  # Up to this size a copy costs less than a reference.

_PUBLISH = int(PacketType.PUBLISH)
_DUP, _RETAIN = 0x08, 0x01
_SHORT_ACK = Struct(">BBH")
_SHORT_ACK_BYTES = _SHORT_ACK.size


class Publishes:
    """Messages published one after the other with the same QoS, RETAIN and DUP.

    The head of an envelope is a byte with both, as in the packet, and the properties of version
    5 as they came, without a topic alias.
    """

    __slots__ = (
        "_block",
        "_start",
        "_stop",
        "has_aliases",
        "ids",
        "is_repeated",
        "is_retained",
        "messages",
        "qos",
        "version",
    )

    def __init__(self, first: int, version: int, block: bytes, start: int) -> None:
        """Make an empty run. `first` is the first byte of its packets, `start` their place."""
        qos = first >> 1 & 3
        if qos > QOS_MAX:
            raise malformed("QoS 3")
        if first & _DUP and not qos:
            raise malformed("DUP with QoS 0")
        self.qos = qos
        self.is_retained = bool(first & _RETAIN)
        self.is_repeated = bool(first & _DUP)  # They may have been sent before.
        self.messages: list[Message] = []
        self.ids: list[int] = []  # Packet identifiers of these messages; empty for QoS 0.
        self.version = version  # Of the packets.
        self._block = block
        self._start = start
        self._stop = 0  # Where they end; 0 means: others could not read them, or it is not known.
        self.has_aliases = False

    def ends(self, stop: int) -> None:
        """Note where the packets of the run end. 0 means: others could not read them."""
        self._stop = stop

    def packets(self) -> bytes | None:
        """Return the packets as they came; None if another client could not read them so."""
        if not self._stop or self.has_aliases:
            return None
        return self._block[self._start : self._stop]


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
        "_aliased",
        "_aliases",
        "_aliases_max",
        "_envelopes",
        "_is_client",
        "_message_bytes_max",
        "_packet_bytes_max",
        "_plain",
        "_state",
        "_transitions",
        "is_over",
        "needed",
        "version",
    )

    def __init__(
        self,
        *,
        is_client: bool = False,
        version: int = V5,
        message_bytes_max: int = MESSAGE_BYTES,
        envelopes: Envelopes | None = None,
    ) -> None:
        """`version` is that of a client; a server learns it from CONNECT."""
        self.version = version
        self.needed = 0  # Bytes of the next packet, once its size is known; otherwise 0.
        self.is_over = False  # After an error or DISCONNECT.
        self._is_client = is_client
        self._transitions = FROM_SERVER if is_client else FROM_CLIENT
        self._state = State.OPENING
        self._message_bytes_max = message_bytes_max
        self._packet_bytes_max = LOGIN_FRAME_BYTES_MAX
        self._envelopes = Envelopes() if envelopes is None else envelopes
        self._plain = self._envelopes.plain
        self._aliases: dict[int, str] | None = None  # Made for the first one.
        self._aliases_max = 0
        # Of packets with an alias, which means something on this connection only.
        self._aliased: dict[tuple[int, bytes, bytes], Envelope] = {}

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
            self.is_over = True
            self.needed = 0
            return events, len(block)
        return events, at

    def _scan(self, block: bytes, events: list[Event]) -> int:
        at, end = 0, len(block)
        self.needed = 0
        run: Publishes | None = None
        run_first = 0  # The first byte of its packets.
        envelope: Envelope | None = None  # Of its last message.
        is_odd = False  # A length in it takes more bytes than it needs.
        is_opening = self._state is State.OPENING
        while end - at >= 2:
            first, size, start = block[at], block[at + 1], at + 2
            if size >= 0x80:
                found = self._size(block, at, end)
                if found is None:
                    break
                size, start = found
            stop = start + size
            type = first >> 4
            if size > LOGIN_FRAME_BYTES_MAX or is_opening:
                self._check_size(type, stop - at)
            if stop > end:
                self.needed = stop - at
                break
            if is_opening and (self._state, type) not in self._transitions:
                raise self._unexpected(type)
            if type == _PUBLISH:
                if run is None or first != run_first:
                    if run is not None:
                        run.ends(0 if is_odd or self._envelopes.renames else at)
                    run, run_first = Publishes(first, self.version, block, at), first
                    envelope, is_odd = None, False
                    last = self._publish(run, first & KEPT, block, start, stop)
                    events.append(run)
                else:
                    last = self._publish(run, first & KEPT, block, start, stop)
                if start > at + 2 and not size >> 7 * (start - at - 2):
                    is_odd = True
                if last is envelope:
                    at = self._alike(run, block, at, start, stop)
                else:
                    at, envelope = stop, last
                continue
            if run is not None:
                run.ends(0 if is_odd or self._envelopes.renames else at)
                run = None
            if size == 2 and start == at + 2 and first in _SHORT_ACKS:
                at = self._short_acks(first, block, at, events)
                continue
            if (self._state, type) not in self._transitions:
                raise self._unexpected(type)
            self._other(first, Reader(block, start, stop), events)
            if self._state is State.CLOSED:
                break
            is_opening = self._state is State.OPENING
            at = stop
        if run is not None:
            run.ends(0 if is_odd or self._envelopes.renames else at)
        return at

    def _short_acks(self, first: int, block: bytes, at: int, events: list[Event]) -> int:
        """Read acknowledgements of one type without a reason code; return where they end."""
        ids: list[int] = []
        end = at + (len(block) - at) // _SHORT_ACK_BYTES * _SHORT_ACK_BYTES
        for kind, size, packet_id in _SHORT_ACK.iter_unpack(block[at:end]):
            if kind != first or size != 2:
                break
            if not packet_id:
                raise malformed("packet identifier 0")
            ids.append(packet_id)
        events.append(Acks(PacketType(first >> 4), ids))
        return at + len(ids) * _SHORT_ACK_BYTES

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

    def _publish(self, run: Publishes, flags: int, block: bytes, start: int, stop: int) -> Envelope:
        """Add one message to the run, and return its envelope."""
        at = start + 2
        if at > stop:
            raise malformed("PUBLISH without a topic")
        topic_end = at + (block[start] << 8 | block[start + 1])
        body = topic_end
        packet_id = 0
        if flags >= 2:  # QoS 1 or 2.
            body += 2
            if body > stop:
                raise malformed("PUBLISH without a packet identifier")
            packet_id = block[topic_end] << 8 | block[topic_end + 1]
            if not packet_id:
                raise malformed("packet identifier 0")
        properties = b""
        if self.version == V5:
            if body < stop and not block[body]:
                body += 1
            else:
                reader = Reader(block, body, stop)
                properties = reader.take(reader.variable())
                body = reader.at
                run.has_aliases = run.has_aliases or self._aliases is not None
        if body > stop:
            raise malformed("a topic that is longer than its packet")
        topic = block[at:topic_end]
        if properties:
            envelope = self._envelopes.get(flags, topic, properties)
        else:  # Mostly.
            envelope = self._plain[flags].get(topic)
        if envelope is None:
            envelope = self._envelope(flags, topic, properties)
            run.has_aliases = run.has_aliases or self._aliases is not None
        if stop - body > self._message_bytes_max:
            raise MqttError(Reason.PACKET_TOO_LARGE, f"a message of {stop - body} bytes")
        if packet_id:
            run.ids.append(packet_id)
        if stop - body <= SMALL_BYTES:
            run.messages.append((envelope, block[body:stop]))
        else:
            run.messages.append((envelope, memoryview(block)[body:stop]))
        return envelope

    def _alike(self, run: Publishes, block: bytes, first: int, start: int, stop: int) -> int:
        """Add the packets that follow and differ from the last one in nothing but their payload
        and identifier; return where they end. The last one is at `first`, and ends at `stop`.
        """
        length = stop - first
        last = len(block) - length
        if stop > last:
            return stop
        messages, ids, has_ids = run.messages, run.ids, run.qos > 0
        envelope, body = messages[-1]
        offset = length - len(body)  # Of the payload.
        id_at = offset  # Of the identifier.
        if has_ids:
            id_at = start + 2 - first + (block[start] << 8 | block[start + 1])
        lead = block[first : first + id_at]
        at = stop
        if not block.startswith(lead, at):
            return at
        properties = block[first + id_at + 2 : first + offset] if has_ids else b""
        view = None if len(body) <= SMALL_BYTES else memoryview(block)
        while at <= last and block.startswith(lead, at):
            if has_ids:
                place = at + id_at
                packet_id = block[place] << 8 | block[place + 1]
                if not packet_id or not block.startswith(properties, place + 2):
                    break
                ids.append(packet_id)
            stop = at + length
            if view is None:
                messages.append((envelope, block[at + offset : stop]))
            else:
                messages.append((envelope, view[at + offset : stop]))
            at = stop
        return at

    def _envelope(self, flags: int, topic: bytes, properties: bytes) -> Envelope:
        """Check topic and properties, and remember them. Raises MqttError."""
        found = self._aliased.get((flags, topic, properties)) if properties else None
        if found is not None:
            return found
        name = read_text(topic)
        kept, alias = properties, None
        if properties:
            kept, alias, has_identifiers = check_publish(properties)
            if has_identifiers and not self._is_client:
                raise violated("a subscription identifier in a client's PUBLISH")
        if alias is not None:
            name = self._name_of(name, alias)
        if not name and alias is None and self.version == V5:
            raise violated("PUBLISH with neither a topic nor a topic alias")
        check_name(name)
        envelope = self._envelopes.make(name, bytes((flags,)) + kept)
        if envelope.path is not None and envelope.path != name.encode():
            self._envelopes.renames = True
        if alias is None:
            self._envelopes.put(flags, topic, properties, envelope)
        elif len(topic) + len(properties) <= limits.ENVELOPES_CACHED_BYTES_MAX:
            if len(self._aliased) >= limits.ENVELOPES_ALIASED_MAX:
                self._aliased.clear()
            self._aliased[flags, topic, properties] = envelope
        return envelope

    def _name_of(self, name: str, alias: int) -> str:
        """Return the topic of an alias, which `name` defines unless it is empty."""
        if alias > self._aliases_max:
            raise MqttError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}")
        if self._aliases is None:
            self._aliases = {}
        known = self._aliases.get(alias)
        if not name:
            if known is None:
                raise violated(f"topic alias {alias}, which was not defined")
            return known
        check_name(name)
        if known != name:
            self._aliases[alias] = name
            self._aliased.clear()  # It may stand for another topic there.
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


class Scratch:
    """Where connections that share it read into, if they hold no part of a packet."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(AREA_BYTES_MAX))


class PacketBuffer:
    """Turns bytes into events. After an error or DISCONNECT there are no more.

    Memory is never allocated for bytes that were only announced, and none that was returned is
    overwritten by a later read. A connection reads into the scratch, behind the little that it
    holds of a packet. It may share the scratch with others, because the bytes are taken out of it
    before anybody else reads. Only while it holds much it has a buffer of its own.
    """

    __slots__ = ("_area", "_held", "_scanner", "_scratch", "_taken", "accept", "unfinished_bytes")

    def __init__(self, scanner: Scanner, scratch: Scratch | None = None) -> None:
        self._scanner = scanner
        self.accept = scanner.accept
        self._scratch = Scratch() if scratch is None else scratch
        self._held = b""  # The beginning of a packet, if it is short;
        self._area: bytearray | None = None  # otherwise it is here, with room for more.
        self.unfinished_bytes = 0  # How many are held; fewer than the area is long.
        self._taken = 0  # Bytes that were received and are processed.

    @property
    def unfinished_number(self) -> int:
        """Return a number that identifies the incomplete packet."""
        return self._taken

    def writable(self) -> memoryview:
        """Return where the next bytes go. Never empty."""
        if self._area is not None:
            return memoryview(self._area)[self.unfinished_bytes :]
        view = self._scratch.view
        if not self._held:
            return view
        view[: self.unfinished_bytes] = self._held
        return view[self.unfinished_bytes :]

    def received(self, size: int) -> list[Event]:
        """Return the events of all packets that are now complete."""
        scanner, area = self._scanner, self._area
        filled = self.unfinished_bytes + size
        if scanner.is_over:
            self.clear()
            self._taken += filled
            return []
        if area is not None and filled < scanner.needed:
            self.unfinished_bytes = filled
            if filled == len(area):
                self._keep(memoryview(area))
            return []
        block = bytes(self._scratch.view[:filled] if area is None else area)
        if filled < scanner.needed:
            self._keep(memoryview(block))
            return []
        events, taken = scanner.scan(block)
        self._taken += taken
        if taken == filled:
            if filled > size:
                self.clear()
        else:
            self._keep(memoryview(block)[taken:])
        return events

    def _keep(self, part: memoryview) -> None:
        """Keep the beginning of a packet."""
        self.unfinished_bytes = size = len(part)
        if size <= HELD_BYTES_MAX:
            self._held = bytes(part)
            self._area = None
            return
        self._held = b""
        self._area = area = bytearray(min(2 * size, self._scanner.needed))
        area[:size] = part

    def clear(self) -> None:
        """Free what is held."""
        self._held = b""
        self._area = None
        self.unfinished_bytes = 0
