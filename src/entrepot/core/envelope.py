"""What surrounds the body of a queue's message: where it was published to, and its properties.

Properties are bytes of AMQP's wire, whatever protocol a message came by. Messages of one
publisher differ in little but their bodies, and those that are alike share an envelope: what is
worked out is worked out for an envelope, not for each message. Equal ones are mostly one object,
but nobody may count on that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from entrepot.core.ports import Buffer


class Envelope(NamedTuple):
    exchange: str
    routing_key: str
    properties: bytes


Message = tuple[Envelope, Buffer]


def distinct(messages: Sequence[Message]) -> Collection[Envelope]:
    """Their envelopes, each once, in the order in which they come first; at least one message."""
    envelopes = [envelope for envelope, _ in messages]
    return envelopes[:1] if _are_alike(envelopes) else dict.fromkeys(envelopes)


def routing_keys(messages: Sequence[Message]) -> Collection[str]:
    """The same for the keys alone."""
    envelopes = [envelope for envelope, _ in messages]
    if _are_alike(envelopes):
        return (envelopes[0].routing_key,)
    return dict.fromkeys([key for _, key, _ in envelopes])


def kinds(messages: Sequence[Message]) -> Collection[bytes]:
    """The same for the properties alone."""
    envelopes = [envelope for envelope, _ in messages]
    if _are_alike(envelopes):
        return (envelopes[0].properties,)
    return dict.fromkeys([properties for _, _, properties in envelopes])


def _are_alike(envelopes: list[Envelope]) -> bool:
    """Nearly always, and far cheaper to find out than how many there are."""
    first = envelopes[0]
    return first == envelopes[-1] and envelopes.count(first) == len(envelopes)
