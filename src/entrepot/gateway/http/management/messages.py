"""Messages as JSON: properties by name, and the body as a string or in base64."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from entrepot.broker.queue.message import Taken
from entrepot.core import limits
from entrepot.core.message import Envelope, Handling, Message
from entrepot.core.names import is_short
from entrepot.core.neutral import NEUTRAL, Head
from entrepot.core.ports import Buffer
from entrepot.core.properties import TEXTS, Properties
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.fields import Fields, bad
from entrepot.gateway.rabbitmq.deaths import DEATHS, death_headers
from entrepot.gateway.rabbitmq.handling import (
    BLIND_COPIES,
    check_copies,
    read_expiration,
    with_headers,
)
from entrepot.wire.http import limits as http_limits

Pieces = list[tuple[int, Taken]]  # (lane, messages).

_OTHERS = ("cluster_id",)
_NUMBERS = {"delivery_mode": 2**8, "priority": 2**8, "timestamp": 2**64}  # Exclusive upper bounds.
# All properties, in RabbitMQ's order.
_NAMES = (
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority"),
    *("correlation_id", "reply_to", "expiration", "message_id", "timestamp"),
    *("type", "user_id", "app_id", "cluster_id"),
)
_TRANSIENT, _PERSISTENT = 1, 2
_BASE64_STEP = 256 * limits.KIB  # Characters decoded in one step; a multiple of four.
_ENCODED_STEP = 192 * limits.KIB  # Bytes encoded in one step; a multiple of three.
_INT64 = range(-(2**63), 2**63)


def describe(
    taken: Taken, place: int, *, encoding: str, bytes_max: int | None
) -> Steps[dict[str, Any]]:
    """Describe one of the messages, as RabbitMQ does; `offset` and `time` are additions."""
    envelope, body = taken.run.messages[place]
    payload, payload_encoding = yield from _payload(memoryview(body)[:bytes_max], encoding)
    return {
        "payload_bytes": len(body),
        "redelivered": taken.attempts is not None and taken.attempts[place] > 0,
        "exchange": envelope.exchange,
        "routing_key": envelope.subject,
        "properties": properties_to_json(envelope),
        "payload": payload,
        "payload_encoding": payload_encoding,
        "offset": taken.offsets[place],
        "time": taken.run.time_ms,
    }


def check_sizes(pieces: Pieces, bytes_max: int | None = None) -> None:
    """Raise HttpError for messages that are too large for an answer."""
    told_max = http_limits.MESSAGES_BYTES_MAX
    if bytes_max is not None and bytes_max <= told_max:
        return
    for _, taken in pieces:
        for _, body in taken.run.messages:
            if len(body) > told_max:
                raise bad(f"a message of {len(body)} bytes; say truncate, or get it over AMQP")


def _payload(body: memoryview, encoding: str) -> Steps[tuple[str, str]]:
    yield
    if encoding == "auto":
        try:
            return str(body, "utf-8"), "string"
        except UnicodeDecodeError:
            yield
    pieces = []
    for start in range(0, len(body), _ENCODED_STEP):
        pieces.append(b64encode(body[start : start + _ENCODED_STEP]).decode("ascii"))
        yield
    return "".join(pieces), "base64"


def read(exchange: str, key: str, fields: Fields, bytes_max: int) -> Steps[Message]:
    """Return the message to be published. Raises HttpError, InvalidRoutingHeader."""
    fields.require("properties", "payload", "payload_encoding")
    head = head_from_json(fields.table("properties"))
    return Envelope(exchange, key, head, NEUTRAL), (yield from _body(fields, bytes_max))


def _body(fields: Fields, bytes_max: int) -> Steps[Buffer]:
    encoding, payload = fields.text("payload_encoding"), fields.text("payload")
    body: Buffer
    if encoding == "string":
        body = payload.encode()
    elif encoding == "base64":
        try:
            body = yield from _from_base64(payload)
        except ValueError:
            raise bad("payload: not base64") from None
    else:
        raise bad(f"payload_encoding: string or base64, not {encoding}")
    if len(body) > bytes_max:
        raise bad(f"payload: more than {bytes_max} bytes")
    return body


def _from_base64(payload: str) -> Steps[bytes]:
    """Decode base64, in steps. Raises ValueError."""
    pieces: list[bytes] = []
    for start in range(0, len(payload), _BASE64_STEP):
        yield
        if pieces and len(pieces[-1]) < _BASE64_STEP // 4 * 3:
            raise ValueError("it goes on after its end")
        pieces.append(b64decode(payload[start : start + _BASE64_STEP], validate=True))
    return b"".join(pieces)


# Properties.


def properties_to_json(envelope: Envelope) -> dict[str, Any]:
    """Return the properties that a message has, by RabbitMQ's names."""
    properties = envelope.properties
    found: dict[str, Any] = {name: getattr(properties, name) for name in TEXTS}
    found |= {"priority": properties.priority, "timestamp": properties.timestamp}
    found |= {name: properties.others.get(name) for name in _OTHERS}
    if properties.ttl_ms is not None:
        found["expiration"] = str(properties.ttl_ms)
    if properties.is_persistent is not None:
        found["delivery_mode"] = _PERSISTENT if properties.is_persistent else _TRANSIENT
    headers = properties.headers
    if DEATHS not in headers and (deaths := envelope.format.deaths(envelope.head)):
        told = death_headers(deaths, deaths[0].exchange or "", is_first=len(deaths) == 1)
        headers = {**headers, **told}
    found["headers"] = headers or None
    return {name: to_json(found[name]) for name in _NAMES if found.get(name) is not None}


def to_json(value: object) -> Any:
    """Return a table's value for JSON; bytes that are not UTF-8 are replaced."""
    if isinstance(value, Mapping):
        return {to_json(name): to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):  # As RabbitMQ tells a timestamp.
        return int(value.timestamp())
    if isinstance(value, bool) or value is None:
        return value
    assert isinstance(value, int | float), f"no value of a table: {value!r}"
    return int(value) if isinstance(value, int) else float(value)


def head_from_json(given: Mapping[str, Any]) -> bytes:
    """Encode the properties of a message. Raises HttpError, InvalidRoutingHeader."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _NAMES:
            raise bad(f"there is no property {name}")
        if name == "headers":
            found[name] = _headers(value)
        elif name in _NUMBERS:
            found[name] = _number(name, value)
        elif isinstance(value, str) and _is_text(value) and is_short(value):
            found[name] = value
        else:
            raise bad(f"{name}: not a text of up to {limits.NAME_BYTES_MAX} bytes")
    head = NEUTRAL.write(_head(found))
    if len(head) > http_limits.PROPERTIES_BYTES_MAX:
        raise bad(f"properties: more than {http_limits.PROPERTIES_BYTES_MAX} bytes")
    return head


def _head(found: dict[str, Any]) -> Head:
    mode, expiration = found.get("delivery_mode"), found.get("expiration")
    headers = found.get("headers", {})
    properties = Properties(
        **{name: found[name] for name in TEXTS if name in found},
        timestamp=found.get("timestamp"),
        priority=found.get("priority"),
        ttl_ms=None if expiration is None else _ttl_ms(expiration),
        is_persistent=None if mode is None else mode == _PERSISTENT,
        headers={name: value for name, value in headers.items() if name != BLIND_COPIES},
        others={name: found[name] for name in _OTHERS if name in found},
    )
    check_copies(headers)
    handling = with_headers(Handling(), headers)
    return Head(
        properties,
        handling.delay_ms,
        handling.confirms_when_consumed,
        handling.copies,
        handling.blind_copies,
        handling.deduplication_id,
        handling.deduplication_ttl_ms,
    )


def _ttl_ms(expiration: str) -> int | None:
    ttl_ms, wrong = read_expiration(expiration)
    if wrong:
        raise bad(f"invalid expiration '{expiration}': {wrong}")
    return ttl_ms


def _is_text(value: str) -> bool:
    """Return whether the text is Unicode, without the single surrogates that JSON can express."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _NUMBERS[name]:
        raise bad(f"{name}: not_int")
    return value


def _headers(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad("headers: not an object")
    return {_header_text(name): _header_value(each) for name, each in value.items()}


def _header_text(value: str) -> str:
    if not _is_text(value):
        raise bad("headers: not Unicode")
    return value


def _header_value(value: Any) -> Any:
    if isinstance(value, dict):
        return _headers(value)
    if isinstance(value, list):
        return [_header_value(each) for each in value]
    if isinstance(value, str):
        return _header_text(value)
    if isinstance(value, int) and value not in _INT64:
        raise bad("headers: a number of more than 64 bits")
    return value
