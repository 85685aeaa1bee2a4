"""Packets of gossip: a header, messages as MessagePack, and a seal where there is a secret.

What is refused has a reason, so that it can be counted, and is never answered. With a secret
nobody else can make a packet, or change one, or send it to another node than it was for, or send
it again: its number is a time that only grows, and a node remembers the last ones of each sender.
docs/formats/gossip.md has every byte.
"""

from __future__ import annotations

import hmac
from enum import Enum
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

import msgspec

from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Message

MAGIC = b"eg"
VERSION = 1
SEALED = 1  # A flag.
ANYBODY = (1 << 64) - 1  # As the destination: whoever listens there. Only to join.
NUMBERS_PER_MS = 1_000

_HEADER = Struct(">2sBB8sQQQ")
_BODY = msgspec.msgpack.Decoder(tuple[Message, ...])

assert _HEADER.size == limits.HEADER_BYTES


class Reason(Enum):
    """Why a packet is refused."""

    OVERSIZE = "oversize"
    MALFORMED = "malformed"
    VERSION = "version"  # One that this node does not speak.
    CLUSTER = "cluster"  # Of another cluster.
    FORGED = "forged"  # Not sealed with our secret, or not sealed.
    MISDIRECTED = "misdirected"  # For another node, or from one with our own id.
    STALE = "stale"  # Its time is too far from ours.
    REPLAYED = "replayed"


class Refused(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Packet(NamedTuple):
    sender: int
    number: int
    is_for_anybody: bool
    messages: tuple[Message, ...]


class Codec:
    """Makes and reads the packets of one node."""

    def __init__(self, cluster: str, me: int, secret: bytes | None) -> None:
        if secret is not None and len(secret) < limits.SECRET_BYTES_MIN:
            raise ValueError(f"a secret has at least {limits.SECRET_BYTES_MIN} bytes")
        self._cluster = sha256(cluster.encode()).digest()[:8]
        self._me = me
        self._secret = secret
        self._number = 0
        self._senders: dict[int, _Numbers] = {}
        self._encoder = msgspec.msgpack.Encoder()

    def body(self, message: Message) -> bytes:
        return self._encoder.encode(message)

    def pack(self, destination: int, bodies: list[bytes], now_ms: int) -> bytes:
        """Return a packet of messages that `body` has encoded."""
        assert len(bodies) <= limits.MESSAGES_PER_PACKET_MAX <= 0xFFFF
        self._number = max(self._number + 1, now_ms * NUMBERS_PER_MS)
        flags = 0 if self._secret is None else SEALED
        header = _HEADER.pack(
            MAGIC, VERSION, flags, self._cluster, self._me, destination, self._number
        )
        array = b"\xdc" + len(bodies).to_bytes(2, "big")  # MessagePack's array of 16 bits.
        packet = b"".join((header, array, *bodies))
        return packet if self._secret is None else packet + self._seal(packet)

    def unpack(self, data: bytes, now_ms: int) -> Packet:
        """Read a packet. Raises Refused."""
        if len(data) > limits.DATAGRAM_BYTES_MAX:
            raise Refused(Reason.OVERSIZE)
        if len(data) < limits.HEADER_BYTES or data[:2] != MAGIC:
            raise Refused(Reason.MALFORMED)
        _, version, flags, cluster, sender, destination, number = _HEADER.unpack_from(data)
        if version != VERSION:
            raise Refused(Reason.VERSION)
        if cluster != self._cluster:
            raise Refused(Reason.CLUSTER)
        body = self._opened(data, flags)
        if destination not in (self._me, ANYBODY) or sender == self._me:
            raise Refused(Reason.MISDIRECTED)
        if self._secret is not None:
            self._check_number(sender, number, now_ms)
        try:
            messages = _BODY.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            raise Refused(Reason.MALFORMED) from None
        if len(messages) > limits.MESSAGES_PER_PACKET_MAX or sender >= 1 << 62:
            raise Refused(Reason.MALFORMED)
        return Packet(sender, number, destination == ANYBODY, messages)

    def _opened(self, data: bytes, flags: int) -> bytes:
        """Return what is between the header and the seal, which is checked."""
        if self._secret is None:
            if flags:
                raise Refused(Reason.FORGED)  # By a secret that we do not have.
            return data[limits.HEADER_BYTES :]
        packet, seal = data[: -limits.SEAL_BYTES], data[-limits.SEAL_BYTES :]
        if flags != SEALED or not hmac.compare_digest(self._seal(packet), seal):
            raise Refused(Reason.FORGED)
        return packet[limits.HEADER_BYTES :]

    def _seal(self, packet: bytes) -> bytes:
        assert self._secret is not None
        return hmac.digest(self._secret, packet, "sha256")[: limits.SEAL_BYTES]

    def _check_number(self, sender: int, number: int, now_ms: int) -> None:
        if abs(number // NUMBERS_PER_MS - now_ms) > limits.CLOCK_MS_MAX:
            raise Refused(Reason.STALE)
        numbers = self._senders.pop(sender, None) or _Numbers()
        self._senders[sender] = numbers  # Who sent last is forgotten last.
        if len(self._senders) > limits.SENDERS_MAX:
            del self._senders[next(iter(self._senders))]
        if not numbers.take(number):
            raise Refused(Reason.REPLAYED)


class _Numbers:
    """Which packets of a sender have come: all up to a number count as come, and some above."""

    __slots__ = ("_seen", "_up_to")

    def __init__(self) -> None:
        self._up_to = 0
        self._seen: dict[int, None] = {}

    def take(self, number: int) -> bool:
        """Return whether this one comes for the first time."""
        if number <= self._up_to or number in self._seen:
            return False
        self._seen[number] = None
        if len(self._seen) > limits.SEEN_NUMBERS_MAX:
            self._up_to = min(self._seen)
            del self._seen[self._up_to]
        return True
