"""A message of the broker's as one of SQS, and the other way round: docs/MAPPING.md.

Attributes are headers, but for those with the name of a property that is a text. A header's value
tells the type of an attribute, mostly; a type that it does not tell is noted beside it, so that
a receiver gets every attribute as it was sent.

A body that has characters which SQS cannot carry, or is no text at all, comes as base64, and an
attribute says so.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from hashlib import md5
from math import isfinite
from typing import Any
from uuid import UUID

import msgspec

from entrepot.broker.queue.receipts import Received
from entrepot.core import limits
from entrepot.core.message import PERSISTENT, Envelope, Message
from entrepot.core.names import is_short
from entrepot.core.neutral import NEUTRAL, Head, header_bytes
from entrepot.core.ports import Buffer
from entrepot.core.properties import TEXTS, Properties
from entrepot.core.steps import Steps
from entrepot.wire.sqs.attributes import (
    BINARY,
    NUMBER,
    STRING,
    TRACE,
    Attribute,
    is_legal_name,
    is_legal_text,
    md5_of,
)

BODY_ENCODING = "body-encoding"  # An attribute of a message whose body is told as base64.
# What only SQS knows of a message. Persisted: never change a name.
_TYPES, _TRACE = "attribute_types", "trace_header"
_GROUP = "message_group_id"  # Where older releases noted it.

# Properties that are attributes under these names. The others are what SQS itself tells.
_TEXTS = {name: header for name, header in TEXTS.items() if name not in ("message_id", "user_id")}
_BY_HEADER = {header: name for name, header in _TEXTS.items()}
_NUMBERS = {"priority": "priority", "timestamp": "timestamp", "ttl_ms": "expiration"}
_INT64 = range(-(2**63), 2**63)
_STEP_BYTES = 192 * limits.KIB  # Of a body; a multiple of three.
_SEQUENCE_FIRST = 10**19  # All sequence numbers have twenty digits.


# --- from SQS


def envelope(
    queue: str,
    message_id: str,
    user: str | None,
    attributes: Mapping[str, Attribute],
    *,
    trace: str | None = None,
    group: str | None = None,
    identity: str | None = None,
) -> Envelope:
    """Return the envelope of a message that is sent to a queue."""
    texts: dict[str, Any] = {}
    headers: dict[str, object] = {}
    types: dict[str, str] = {}
    for name, attribute in attributes.items():
        kind, value = attribute
        prop = _BY_HEADER.get(name)
        if prop is not None and kind == STRING and isinstance(value, str) and is_short(value):
            texts[prop] = value
            continue
        header = headers[name] = _header(attribute)
        if _type_of(header) != kind:
            types[name] = kind
    others = {} if not types else {_TYPES: msgspec.json.encode(types).decode()}
    if trace is not None:
        others[_TRACE] = trace
    properties = Properties(
        **texts,
        message_id=message_id,
        user_id=user,
        is_persistent=True,
        headers=headers,
        others=others,
    )
    head = Head(
        properties,
        group=group,
        deduplication_id=None if identity is None else identity.encode(),
    )
    found = Envelope("", queue, NEUTRAL.write(head), NEUTRAL)
    found.handling = PERSISTENT if group is None and identity is None else head.handling
    return found


def _header(attribute: Attribute) -> object:
    """Return the value of a header: a number where it is told as it was written, else a text."""
    kind, value = attribute
    if kind.startswith(NUMBER) and len(value) < 20:
        try:
            number = int(value)
        except ValueError:
            return value
        if str(number) == value and number in _INT64:
            return number
    return value


def _type_of(header: object) -> str:
    """Return the type that an attribute has if nothing else is noted."""
    if isinstance(header, bytes | bytearray | memoryview):
        return BINARY
    if isinstance(header, bool) or not isinstance(header, int | float | Decimal):
        return STRING
    return NUMBER if isfinite(header) else STRING


# --- to SQS


def attributes_of(properties: Properties) -> dict[str, Attribute]:
    """Return a message's attributes. Names that SQS does not allow are left out."""
    found: dict[str, Attribute] = {}
    for name, header in _TEXTS.items():
        text = getattr(properties, name)
        if text is not None:
            found[header] = _attribute(text, STRING)
    for name, header in _NUMBERS.items():
        number = getattr(properties, name)
        if number is not None:
            found[header] = Attribute(NUMBER, str(number))
    types = _types(properties)
    for name, value in properties.headers.items():
        if value is not None and name not in found and is_legal_name(name):
            found[name] = _attribute(value, types.get(name) or _type_of(value))
    return found


def _types(properties: Properties) -> dict[str, str]:
    noted = properties.others.get(_TYPES)
    if noted is None:
        return {}
    try:
        return msgspec.json.decode(noted, type=dict[str, str])
    except msgspec.DecodeError:
        return {}


def _attribute(value: object, kind: str) -> Attribute:
    if isinstance(value, bytes | bytearray | memoryview):
        return Attribute(kind if kind.startswith(BINARY) else BINARY, bytes(value))
    data = header_bytes(value)
    text = data.decode("utf-8", "replace")
    if text.encode() != data or not is_legal_text(text):
        return Attribute(BINARY, data)
    return Attribute(kind, text)


def message_id_of(queue: str, received: Received, properties: Properties) -> str:
    """Return the id that a message has, or one that it gets and keeps."""
    if properties.message_id:
        return properties.message_id
    place = f"{queue}/{received.lane}/{received.offset}/{received.time_ms}"
    data = place.encode("utf-8", "surrogateescape")
    return str(UUID(bytes=md5(data, usedforsecurity=False).digest()))


def system_attributes(
    received: Received,
    properties: Properties,
    account: str,
    arn: Callable[[str], str],
    *,
    is_fifo: bool = False,
) -> dict[str, str]:
    """Return what SQS itself tells of a message."""
    message_envelope, _ = received.message
    handling = message_envelope.handling
    found = {
        "SenderId": properties.user_id or account,
        "SentTimestamp": str(received.time_ms),
        "ApproximateReceiveCount": str(received.attempts + 1),
        "ApproximateFirstReceiveTimestamp": str(received.first_ms),
    }
    if _TRACE in properties.others:
        found[TRACE] = properties.others[_TRACE]
    group = handling.group or properties.others.get(_GROUP)
    if group is not None:
        found["MessageGroupId"] = group
    if is_fifo:
        found["SequenceNumber"] = sequence_number(received.offset)
        if handling.deduplication_id is not None:
            found["MessageDeduplicationId"] = handling.deduplication_id.decode("utf-8", "replace")
    deaths = message_envelope.format.deaths(message_envelope.head)
    if deaths:
        found["DeadLetterQueueSourceArn"] = arn(deaths[0].queue)
    return found


def sequence_number(offset: int) -> str:
    return str(_SEQUENCE_FIRST + offset)


def body_text(message: Message) -> Steps[tuple[str, bool]]:
    """Return the body as a text, and whether that is base64 of the bytes."""
    body: Buffer = message[1]
    yield
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        pass
    else:
        yield
        if is_legal_text(text):
            return text, False
    pieces = []
    view = memoryview(body)
    for start in range(0, len(view), _STEP_BYTES):
        pieces.append(b64encode(view[start : start + _STEP_BYTES]).decode("ascii"))
        yield
    return "".join(pieces), True


def md5_text(text: str) -> Steps[str]:
    digest = md5(usedforsecurity=False)
    for start in range(0, len(text), _STEP_BYTES):
        digest.update(text[start : start + _STEP_BYTES].encode("utf-8", "surrogatepass"))
        yield
    return digest.hexdigest()


def wanted_names(names: Sequence[str]) -> Callable[[str], bool]:
    """Return whether an attribute is asked for: by its name, its beginning (`a.*`), or all."""
    exact = frozenset(names)
    if exact & {"All", ".*"}:
        return lambda name: True
    starts = tuple(each[:-1] for each in names if each.endswith(".*"))
    return lambda name: name in exact or name.startswith(starts)


def described(
    queue: str,
    received: Received,
    is_wanted: Callable[[str], bool],
    is_system_wanted: Callable[[str], bool],
    account: str,
    arn: Callable[[str], str],
    *,
    is_fifo: bool = False,
) -> Steps[dict[str, Any]]:
    """Describe a message that is received."""
    properties = received.message[0].properties
    text, is_base64 = yield from body_text(received.message)
    row: dict[str, Any] = {
        "MessageId": message_id_of(queue, received, properties),
        "ReceiptHandle": received.receipt,
        "MD5OfBody": (yield from md5_text(text)),
        "Body": text,
    }
    system = system_attributes(received, properties, account, arn, is_fifo=is_fifo)
    told = {name: value for name, value in system.items() if is_system_wanted(name)}
    if told:
        row["Attributes"] = told
    attributes = attributes_of(properties)
    if is_base64:
        attributes[BODY_ENCODING] = Attribute(STRING, "base64")
    asked = {name: each for name, each in attributes.items() if is_wanted(name)}
    if asked:
        row["MD5OfMessageAttributes"] = md5_of(asked)
        row["MessageAttributes"] = {name: each.to_json() for name, each in asked.items()}
    return row
