"""Envelopes of messages that were published before: topic and properties are checked once."""

from __future__ import annotations

from collections.abc import Callable

from entrepot.core.message import OPAQUE, Envelope
from entrepot.wire.mqtt import limits

KEPT = 0x07  # Of the first byte of a PUBLISH: QoS and RETAIN.

# Makes the envelope of messages with this topic and head. They may get another topic: its `path`.
MakeEnvelope = Callable[[str, bytes], Envelope]


def plain_envelope(topic: str, head: bytes) -> Envelope:
    return Envelope("", topic, head, OPAQUE)


class Envelopes:
    """Envelopes by the topic and the properties that they were made of, which are checked then.

    Connections share them. When there are too many, all are forgotten.
    """

    __slots__ = ("_count", "_with_properties", "make", "plain", "renames")

    def __init__(self, make: MakeEnvelope = plain_envelope) -> None:
        self.make = make
        self.renames = False  # Whether a message ever got another topic than it came with.
        # By QoS and RETAIN, and topic. Most messages have no properties.
        self.plain: list[dict[bytes, Envelope]] = [{} for _ in range(KEPT + 1)]
        self._with_properties: dict[tuple[int, bytes, bytes], Envelope] = {}
        self._count = 0

    def get(self, flags: int, topic: bytes, properties: bytes) -> Envelope | None:
        if properties:
            return self._with_properties.get((flags, topic, properties))
        return self.plain[flags].get(topic)

    def put(self, flags: int, topic: bytes, properties: bytes, envelope: Envelope) -> None:
        if len(topic) + len(properties) > limits.ENVELOPES_CACHED_BYTES_MAX:
            return
        if self._count >= limits.ENVELOPES_CACHED_MAX:
            self._count = 0
            self._with_properties.clear()
            for each in self.plain:
                each.clear()
        self._count += 1
        if properties:
            self._with_properties[flags, topic, properties] = envelope
        else:
            self.plain[flags][topic] = envelope

    @property
    def count(self) -> int:
        return self._count
