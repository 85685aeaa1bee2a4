"""PUBLISH packets as bytes: for one receiver, or once for many.

What is published to many receivers is encoded once for all that speak the same version. Receivers
of QoS 0 share the bytes; each of the others gets a copy with its own packet identifiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
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

    def with_ids(self, ids: Iterable[int]) -> bytearray:
        """Return the packets with these identifiers."""
        data = bytearray(self.data)
        for place, packet_id in zip(self._places, ids, strict=True):
            _write_id(data, place, packet_id)
        return data


def encode_one(message: Outgoing) -> bytes:
    """Encode a message of QoS 0."""
    return head(message) + message.body


def encode_run(messages: Iterable[Outgoing]) -> EncodedRun:
    """Encode messages that all have QoS 0, or all a higher one."""
    pieces: list[Buffer] = []
    places: list[int] = []
    size = 0
    for message in messages:
        lead = head(message)
        if message.qos:
            properties = message.properties
            behind = 0
            if properties is not None:
                behind = len(variable_bytes(len(properties))) + len(properties)
            places.append(size + len(lead) - behind - 2)
        pieces.append(lead)
        pieces.append(message.body)
        size += len(lead) + len(message.body)
    return EncodedRun(b"".join(pieces), places)
