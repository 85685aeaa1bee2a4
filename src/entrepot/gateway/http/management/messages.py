"""Messages as JSON: properties by name, and a body as text where it is one."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from entrepot.broker.queue.message import Taken
from entrepot.core import limits
from entrepot.core.envelope import Envelope, Message
from entrepot.core.names import is_short
from entrepot.core.ports import Buffer
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.fields import Fields, bad
from entrepot.wire.amqp.deliver import CONTENT_HEADER_BYTES
from entrepot.wire.amqp.frames import FRAME_ENVELOPE_BYTES
from entrepot.wire.amqp.properties import NAMES, Properties, PropertyView, encode
from entrepot.wire.amqp.table import Int64

Pieces = list[tuple[int, Taken]]  # Each with its lane.

_NUMBERS = {"delivery_mode": 2**8, "priority": 2**8, "timestamp": 2**64}  # Below these.
_BASE64_STEP = 256 * limits.KIB  # Characters that are decoded at once; whole groups of four.
_ENCODED_STEP = 192 * limits.KIB  # Bytes that are encoded at once; whole groups of three.
_INT32 = range(-(2**31), 2**31)
# They go to consumers in one frame of AMQP.
_PROPERTIES_BYTES_MAX = limits.AMQP_FRAME_BYTES_MAX - FRAME_ENVELOPE_BYTES - CONTENT_HEADER_BYTES


def describe(
    taken: Taken, place: int, *, encoding: str, bytes_max: int | None
) -> Steps[dict[str, Any]]:
    """One message of those taken. Its place in its queue is our own; the rest is RabbitMQ's."""
    (exchange, key, properties), body = taken.run.messages[place]
    payload, payload_encoding = yield from _payload(memoryview(body)[:bytes_max], encoding)
    return {
        "payload_bytes": len(body),
        "redelivered": taken.attempts is not None and taken.attempts[place] > 0,
        "exchange": exchange,
        "routing_key": key,
        "properties": properties_to_json(properties),
        "payload": payload,
        "payload_encoding": payload_encoding,
        "offset": taken.offsets[place],
        "time": taken.run.time_ms,
    }


def check_sizes(pieces: Pieces, bytes_max: int | None = None) -> None:
    """Refuse what would take several times its size to be told. Raises HttpError."""
    told_max = limits.HTTP_MESSAGES_BYTES_MAX
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
    """What is to be published there. Raises HttpError."""
    fields.require("properties", "payload", "payload_encoding")
    properties = properties_from_json(fields.table("properties"))
    return Envelope(exchange, key, properties), (yield from _body(fields, bytes_max))


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
    """Raises ValueError."""
    pieces: list[bytes] = []
    for start in range(0, len(payload), _BASE64_STEP):
        yield
        if pieces and len(pieces[-1]) < _BASE64_STEP // 4 * 3:
            raise ValueError("it goes on after its end")
        pieces.append(b64decode(payload[start : start + _BASE64_STEP], validate=True))
    return b"".join(pieces)


# Properties.


def properties_to_json(raw: bytes) -> dict[str, Any]:
    view = PropertyView(raw)
    return {name: to_json(view.get(name)) for name in NAMES if name in view}


def to_json(value: object) -> Any:
    """A table's value. What is not Unicode loses that part of it."""
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
    if isinstance(value, bool) or value is None:
        return value
    assert isinstance(value, int | float), f"no value of a table: {value!r}"
    return int(value) if isinstance(value, int) else float(value)


def properties_from_json(given: Mapping[str, Any]) -> bytes:
    """Raises HttpError."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in NAMES:
            raise bad(f"there is no property {name}")
        if name == "headers":
            found[name] = _headers(value)
        elif name in _NUMBERS:
            found[name] = _number(name, value)
        elif isinstance(value, str) and is_short(value):
            found[name] = value
        else:
            raise bad(f"{name}: not a text of up to {limits.NAME_BYTES_MAX} bytes")
    raw = encode(Properties(**found))
    if len(raw) > _PROPERTIES_BYTES_MAX:
        raise bad(f"properties: more than {_PROPERTIES_BYTES_MAX} bytes")
    return raw


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _NUMBERS[name]:
        raise bad(f"{name}: not_int")
    return value


def _headers(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad("headers: not an object")
    return {name: from_json(each) for name, each in value.items()}


def from_json(value: Any) -> Any:
    """A number that needs 64 bits says so."""
    if isinstance(value, dict):
        return _headers(value)
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and value not in _INT32:
        return Int64(value)
    return value
