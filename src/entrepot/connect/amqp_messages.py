"""Records as messages of AMQP, and the other way round: as docs/MAPPING.md has it.

Properties are headers of a record, under their names with dashes; so are, of a message that
comes, the exchange and the routing key. What is a table or an array in a message's headers is
JSON in a record's.
"""

import base64
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from entrepot.client.amqp_consumer import Delivery
from entrepot.client.amqp_publisher import (
    PERSISTENT,
    BasicProperties,
    EncodedMessage,
    text_or_bytes,
)
from entrepot.client.reader import Message
from entrepot.connect.formats import Misfit
from entrepot.connect.interface import SourceRecord

KEY_HEADER = "kafka-key"
ROUTING_KEY = "routing-key"
SHORT_BYTES_MAX = 255
PLACEHOLDERS = ("topic", "key")

_READABLE = {
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "priority": "priority",
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
    "expiration": "expiration",
    "message_id": "message-id",
    "timestamp": "timestamp",
    "type": "type",
    "user_id": "user-id",
    "app_id": "app-id",
}
# Of a record's headers. The id is ours, and a user's name would have to be our own.
_PROPERTIES = {
    readable: name for name, readable in _READABLE.items() if name not in ("message_id", "user_id")
}
# Where a queue's record keeps its bytes, and what brokers take for addresses.
_LEFT_OUT = ("amqp", "CC", "BCC")
_NUMBERS_MAX = {"priority": 2**8 - 1, "timestamp": 2**63 - 1, "expiration": 315_360_000_000}
_REPLY_TO = "amq.rabbitmq.reply-to"  # Stands for a consumer on the publisher's own channel.
_DIGITS = re.compile(r"[0-9]{1,19}")
_PLACEHOLDER = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")


def message_id(message: Message) -> str:
    """The same whenever it is sent: a receiver can tell what it has seen."""
    part = message.part
    return f"{part.topic}-{part.partition}-{message.record.offset}"[-SHORT_BYTES_MAX:]


def to_amqp(message: Message, exchange: str, routing_key: str, content_type: str) -> EncodedMessage:
    """Persistent. Raises Misfit."""
    record = message.record
    found: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    for name, data in record.headers:
        known = _PROPERTIES.get(name, "")
        value = _property(known, data) if known else None
        if value is not None and known not in found:
            found[known] = value
        elif name not in _LEFT_OUT and len(name.encode()) <= SHORT_BYTES_MAX:
            headers.setdefault(name, text_or_bytes(data))
    if record.key is not None:
        headers[KEY_HEADER] = text_or_bytes(record.key)
    if record.timestamp_ms >= 0:
        found.setdefault("timestamp", record.timestamp_ms // 1000)
    found.setdefault("content_type", content_type)
    found |= {"headers": headers or None, "delivery_mode": PERSISTENT}
    properties = BasicProperties(message_id=message_id(message), **found)
    return EncodedMessage.of(
        exchange, _routed(routing_key, message), properties, record.value or b""
    )


def to_record(delivery: Delivery, key: str) -> SourceRecord:
    """`key` is the name of the header that becomes the record's key."""
    headers = tuple(_headers(delivery))
    found = next((data for name, data in headers if name == key), None) if key else None
    return SourceRecord(delivery.body, key=found, headers=headers)


# --- out


def _routed(routing_key: str, message: Message) -> str:
    key = message.record.key
    if "{key}" in routing_key:
        if key is None:
            raise Misfit("no key for the routing key")
        if not isinstance(text_or_bytes(key), str):
            raise Misfit("a key that is not UTF-8, for the routing key")
    words = {"topic": message.part.topic, "key": (key or b"").decode("utf-8", "replace")}
    routed = _PLACEHOLDER.sub(lambda found: words[found[1]], routing_key)
    if len(routed.encode()) > SHORT_BYTES_MAX:
        raise Misfit(f"a routing key of more than {SHORT_BYTES_MAX} bytes")
    return routed


def _property(name: str, data: bytes | None) -> str | int | None:
    """None: not a value of this property."""
    if data is None or len(data) > SHORT_BYTES_MAX:
        return None
    text = text_or_bytes(data)
    if not isinstance(text, str) or (name == "reply_to" and text.startswith(_REPLY_TO)):
        return None
    if name not in _NUMBERS_MAX:
        return text
    if not _DIGITS.fullmatch(text) or int(text) > _NUMBERS_MAX[name]:
        return None
    return text if name == "expiration" else int(text)


# --- in


def _headers(delivery: Delivery) -> Iterator[tuple[str, bytes | None]]:
    yield "exchange", _as_bytes(delivery.exchange)
    yield ROUTING_KEY, _as_bytes(delivery.routing_key)
    for name, readable in _READABLE.items():
        value = getattr(delivery.properties, name)
        if value is not None:
            yield readable, _as_bytes(value)
    for name, value in (delivery.properties.headers or {}).items():
        # A record's header has a name that is UTF-8.
        clean = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        yield clean, None if value is None else _as_bytes(value)


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict | list):
        return msgspec.json.encode(_plain(value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.encode("utf-8", "surrogateescape")


def _plain(value: Any) -> Any:
    """What JSON can say."""
    match value:
        case dict():
            return {_plain(name): _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case str():
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        case bool() | None:
            return value
        case Decimal() | float():
            return float(value)
        case _:
            return int(value)
