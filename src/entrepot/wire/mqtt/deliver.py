"""PUBLISH packets as bytes: for one receiver, or once for many.

What is published to many receivers is encoded once for all that speak the same version. Receivers
of QoS 0 share the bytes; each of the others gets a copy with its own packet identifiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, pack
from typing import NamedTuple

from entrepot.core.ports import Buffer
from entrepot.wire.mqtt.reader import variable_bytes

DUP, RETAIN = 0x08, 0x01
_PUBLISH = 0x30
_ID = Struct(">H")
_write_id = _ID.pack_into


class Outgoing(NamedTuple):
    """A message as one kind of receiver gets it."""

    qos: int
    is_retained: bool
    topic: bytes  # Encoded, without its size.
    properties: bytes | None  # Without their size. None before version 5.
    body: Buffer


def head(message: Outgoing, packet_id: int = 0, *, is_again: bool = False) -> bytes:
    """Return the packet up to the payload."""
    qos, is_retained, topic, properties, body = message
    size = 2 + len(topic) + len(body)
    end = b""
    if properties is not None:
        end = variable_bytes(len(properties)) + properties
        size += len(end)
    if qos:
        size += 2
        end = _ID.pack(packet_id) + end
    first = _PUBLISH | qos << 1 | is_retained | (DUP if is_again else 0)
    return b"".join((bytes((first,)), variable_bytes(size), _ID.pack(len(topic)), topic, end))


class EncodedRun:
    """Packets of one QoS, to be sent to many receivers."""

    __slots__ = ("_places", "data")

    def __init__(self, data: bytes, places: Sequence[int]) -> None:
        self.data = data  # With packet identifiers that are 0.
        self._places = places  # Of the packet identifiers; empty for QoS 0.

    def with_ids(self, ids: Sequence[int]) -> bytearray:
        """Return the packets with these identifiers."""
        data, places = bytearray(self.data), self._places
        if isinstance(places, range) and len(places) == len(ids):
            packed = packed_ids(ids)
            start, stop, step = places.start, places.stop, places.step
            data[start:stop:step] = packed[0::2]
            data[start + 1 : stop + 1 : step] = packed[1::2]
            return data
        for place, packet_id in zip(places, ids, strict=True):
            _write_id(data, place, packet_id)
        return data


def packed_ids(ids: Sequence[int]) -> bytes:
    """Return packet identifiers, each as two bytes."""
    return pack(f">{len(ids)}H", *ids)


def encode_plain(topic: bytes, body: Buffer) -> bytes:
    """Encode a message of QoS 0 that is not retained, for a client before version 5."""
    size = 2 + len(topic) + len(body)
    first = bytes((_PUBLISH, size)) if size < 0x80 else b"\x30" + variable_bytes(size)
    return b"".join((first, _ID.pack(len(topic)), topic, body))


def encode_numbered(qos: int, topic: bytes, packet_id: int, body: Buffer) -> bytes:
    """Encode a message of QoS 1 or 2 that is not retained, for a client before version 5."""
    size = 4 + len(topic) + len(body)
    first = _PUBLISH | qos << 1
    start = bytes((first, size)) if size < 0x80 else bytes((first,)) + variable_bytes(size)
    return b"".join((start, _ID.pack(len(topic)), topic, _ID.pack(packet_id), body))


def encode_one(message: Outgoing) -> bytes:
    """Encode a message of QoS 0."""
    return head(message) + message.body


Lead = tuple[bytes, int]  # A packet up to its payload, and where its identifier is in it, or -1.


def lead_of(message: Outgoing) -> Lead:
    """Return what messages with bodies of the same size have in common."""
    lead = head(message)
    if not message.qos:
        return lead, -1
    properties = message.properties
    behind = 0
    if properties is not None:
        behind = len(variable_bytes(len(properties))) + len(properties)
    return lead, len(lead) - behind - 2


def encode_alike(message: Outgoing, bodies: Sequence[Buffer]) -> EncodedRun:
    """Encode messages that have all but their bodies in common, which are equally long."""
    lead, place = lead_of(message)
    size = len(lead) + len(message.body)
    places = range(place, place + size * len(bodies), size) if place >= 0 else ()
    return EncodedRun(lead + lead.join(bodies), places)


def encode_led(messages: Iterable[tuple[Lead, Buffer]]) -> EncodedRun:
    """Encode messages that all have QoS 0, or all a higher one."""
    pieces: list[Buffer] = []
    places: list[int] = []
    size = 0
    for (lead, place), body in messages:
        if place >= 0:
            places.append(size + place)
        pieces.append(lead)
        pieces.append(body)
        size += len(lead) + len(body)
    return EncodedRun(b"".join(pieces), places)


def encode_run(messages: Iterable[Outgoing]) -> EncodedRun:
    """Encode messages that all have QoS 0, or all a higher one."""
    return encode_led((lead_of(message), message.body) for message in messages)
