"""Exchange, routing key and flags of a publish, read from its method frame.

A connection publishes to few exchanges and keys again and again, so the scanner caches them by
the bytes of the frame. Consecutive messages with the same properties share an envelope.
"""

from typing import NamedTuple

from entrepot.core.message import Envelope, Format
from entrepot.wire.amqp.methods import decode

_EXCHANGE_START = 7  # In a publish's payload: after class, method, ticket and the size.


class PublishTarget(NamedTuple):
    """Exchange and flags, which are the same for all publishes of a run."""

    exchange: str
    mandatory: bool
    immediate: bool


class PublishMethod:
    """What publishes with the same method frame share: the target, and the last envelope."""

    __slots__ = ("envelope", "target")

    def __init__(self, target: PublishTarget, routing_key: str, format: Format) -> None:
        self.target = target
        self.envelope = Envelope(target.exchange, routing_key, b"", format)

    def sealed(self, properties: bytes) -> Envelope:
        """Return a new envelope with these properties, and remember it as the last one."""
        self.envelope = self.envelope.with_head(properties)
        return self.envelope


def read_publish_method(payload: bytes, format: Format) -> PublishMethod:
    """Read a publish's payload, much faster than `decode`, for there may be many routing keys."""
    try:
        exchange_end = _EXCHANGE_START + payload[_EXCHANGE_START - 1]
        key_start = exchange_end + 1
        key_end = key_start + payload[exchange_end]
        bits = payload[key_end]
    except IndexError:
        key_end = -1
    if key_end != len(payload) - 1:
        decode(payload)  # Raises an error that says what is wrong.
        raise AssertionError(payload)
    exchange = payload[_EXCHANGE_START:exchange_end].decode("utf-8", "surrogateescape")
    routing_key = payload[key_start:key_end].decode("utf-8", "surrogateescape")
    return PublishMethod(PublishTarget(exchange, bits & 1 != 0, bits & 2 != 0), routing_key, format)
