"""Where a publish goes, read out of its method frame.

A connection publishes to few places again and again, so who reads many remembers them by their
bytes; and messages that come to one place with the same properties share an envelope.
"""

from typing import NamedTuple

from entrepot.core.envelope import Envelope
from entrepot.wire.amqp.methods import decode

_EXCHANGE_START = 7  # In a publish's payload: after class, method, ticket and its size.


_new = tuple.__new__  # Envelopes may be as many as messages: half the time of a call.


class Target(NamedTuple):
    """What all publishes of a run have in common."""

    exchange: str
    mandatory: bool
    immediate: bool


class Place:
    """What publishes with the same method frame have in common."""

    __slots__ = ("envelope", "target")

    def __init__(self, target: Target, routing_key: str) -> None:
        self.target = target
        self.envelope = Envelope(target.exchange, routing_key, b"")  # The last one, or none.

    def sealed(self, properties: bytes) -> Envelope:
        """With properties that are others than those of the last one."""
        exchange, routing_key, _ = self.envelope
        self.envelope = _new(Envelope, (exchange, routing_key, properties))
        return self.envelope


def read_place(payload: bytes) -> Place:
    """What `decode` would find, in a fraction of its time: keys may be many."""
    try:
        exchange_end = _EXCHANGE_START + payload[_EXCHANGE_START - 1]
        key_start = exchange_end + 1
        key_end = key_start + payload[exchange_end]
        bits = payload[key_end]
    except IndexError:
        key_end = -1
    if key_end != len(payload) - 1:
        decode(payload)  # Knows what is wrong with it, and says so.
        raise AssertionError(payload)
    exchange = payload[_EXCHANGE_START:exchange_end].decode("utf-8", "surrogateescape")
    routing_key = payload[key_start:key_end].decode("utf-8", "surrogateescape")
    return Place(Target(exchange, bits & 1 != 0, bits & 2 != 0), routing_key)
