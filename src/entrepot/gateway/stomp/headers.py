"""Headers of STOMP and properties of messages, in both directions: see docs/MAPPING.md.

A message that is sent is stored in the neutral format: headers that are properties of every
protocol become those, and all others are headers, with texts as values. When it is delivered,
each is a header again. Messages of other protocols are told in the same way, as far as a line of
text can tell them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.message import Envelope
from entrepot.core.names import is_short
from entrepot.core.neutral import NEUTRAL, Head, header_bytes
from entrepot.core.properties import TEXTS, Death, Properties
from entrepot.gateway.stomp.destination import Kind, describe
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import Headers, header_line

# Properties that are texts, by their headers. `message-id` is what an ACK refers to.
_TEXTS = {
    "amqp-message-id" if name == "message_id" else header: name for name, header in TEXTS.items()
}
_PERSISTENT, _PRIORITY, _DELAY = "persistent", "priority", "x-delay"
_EXPIRATION, _TIMESTAMP, _REPLY_TO = "expiration", "timestamp", "reply-to"
_PRIORITY_MAX = 255
_TIMESTAMP_END = 2**63
_DIGITS = re.compile("[0-9]{1,19}", re.ASCII)

# Headers of a frame, and not of the message in it.
VARYING = ("content-length", "receipt", "transaction")
_OF_THE_FRAME = ("destination", *VARYING)
# What a delivery says itself, whatever the headers of the message are.
_RESERVED = (*_OF_THE_FRAME, "subscription", "message-id", "ack", "redelivered", "receipt-id")


# From a client.


def envelope_of(headers: Headers, exchange: str, key: str, reply_to: str | None) -> Envelope:
    """Return the envelope of a message that is sent. Raises PeerError.

    `reply_to` is put in place of the header of that name. None means: it is not replaced.
    """
    if "message-id" in headers:
        raise PeerError("SEND must not have the header message-id: use amqp-message-id")
    found: dict[str, Any] = {}
    others: dict[str, str] = {}
    for name, value in headers.items():
        if name in _OF_THE_FRAME:
            continue
        text = reply_to if name == _REPLY_TO and reply_to is not None else value
        if name in _TEXTS and is_short(text):
            found[_TEXTS[name]] = text
        elif name == _PRIORITY:
            found["priority"] = read_number(name, value, _PRIORITY_MAX)
        elif name == _EXPIRATION:
            found["ttl_ms"] = read_number(name, value, limits.QUEUE_TTL_MS_MAX)
        elif name == _TIMESTAMP and _is_timestamp(value):
            found["timestamp"] = int(value)
        elif name != _PERSISTENT:
            others[name] = text
    is_persistent = headers.get(_PERSISTENT) != "false"
    properties = Properties(**found, is_persistent=is_persistent, headers=others)
    head = Head(properties, delay_ms=_delay_ms(headers))
    envelope = Envelope(exchange, key, NEUTRAL.write(head), NEUTRAL)
    envelope.handling = head.handling
    return envelope


def read_number(name: str, text: str, most: int) -> int:
    """Return the value of a header that is a number. Raises PeerError."""
    if not _DIGITS.fullmatch(text) or int(text) > most:
        raise PeerError(f"{name}:{text[:100]} is not a number from 0 to {most}")
    return int(text)


def read_flag(headers: Headers, name: str, default: bool) -> bool:
    """Return the value of a header that is `true` or `false`. Raises PeerError."""
    text = headers.get(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise PeerError(f"{name}:{text[:100]} is neither true nor false")
    return text == "true"


def _is_timestamp(text: str) -> bool:
    """Return whether the text is a number that comes out as it went in."""
    return bool(_DIGITS.fullmatch(text)) and str(int(text)) == text and int(text) < _TIMESTAMP_END


def _delay_ms(headers: Headers) -> int:
    """Return how long a delayed exchange keeps the message."""
    text = headers.get(_DELAY, "")
    delay_ms = int(text) if _DIGITS.fullmatch(text) else 0
    return delay_ms if delay_ms <= limits.DELAY_MS_MAX else 0


# To a client.


class MessageHeads:
    """A cache of encoded headers of messages, for all connections of an endpoint."""

    def __init__(self) -> None:
        self._known: dict[tuple[Envelope, str], bytes] = {}

    def of(self, envelope: Envelope, version: str) -> bytes:
        """Return the headers that are the same for everybody who gets the message."""
        known = self._known
        head = known.get((envelope, version))
        if head is None:
            head = encode_head(envelope, version)
            # Tables of an envelope are not in the encoded head, and may be large.
            if max(len(head), len(envelope.head)) <= stomp_limits.HEAD_CACHED_BYTES_MAX:
                if len(known) >= stomp_limits.MESSAGE_HEADS_CACHED_MAX:
                    known.clear()
                known[envelope, version] = head
        return head


def encode_head(envelope: Envelope, version: str) -> bytes:
    lines = [header_line("destination", describe(envelope.exchange, envelope.subject), version)]
    told: dict[str, None] = dict.fromkeys(_RESERVED)
    for name, value in _told(envelope):
        if name not in told:
            told[name] = None
            lines.append(header_line(name, value, version))
    return b"".join(lines)


def _told(envelope: Envelope) -> Iterator[tuple[str, str]]:
    """Yield properties and headers as texts. The first of a name counts."""
    properties = envelope.properties
    for header, name in _TEXTS.items():
        text = getattr(properties, name)
        if text is not None:
            yield header, _reply_destination(text) if header == _REPLY_TO else text
    for header, value in (
        (_PRIORITY, properties.priority),
        (_EXPIRATION, properties.ttl_ms),
        (_TIMESTAMP, properties.timestamp),
        (_PERSISTENT, properties.is_persistent),
    ):
        if value is not None:
            yield header, header_bytes(value).decode()
    for name, other in properties.headers.items():  # Not `value`, which is of a narrower type.
        said = _text(other)
        if said is not None:
            yield name, said
    yield from _last_death(envelope.format.deaths(envelope.head))


def _reply_destination(text: str) -> str:
    """Return where to send a reply. What is no destination is the name of a queue."""
    return text if text.startswith("/") else Kind.REPLY_QUEUE.value + text


def _text(value: object) -> str | None:
    """Return a header's value as a text; None for what no line can tell: tables and arrays."""
    if isinstance(value, str | bool | int | float):
        return header_bytes(value).decode("utf-8", "replace")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return "" if value is None else None


def _last_death(deaths: Iterable[Death]) -> Iterator[tuple[str, str]]:
    """Yield why the message is a dead letter, as RabbitMQ's headers of these names do."""
    for death in deaths:
        yield "x-last-death-reason", death.reason
        yield "x-last-death-queue", death.queue
        if death.exchange is not None:
            yield "x-last-death-exchange", death.exchange
        return
