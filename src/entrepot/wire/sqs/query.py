"""The older protocol of SQS: a form comes in, XML goes out.

Parameters and results have the structure that they have in JSON; here is how that structure is
told in a form (`MessageAttribute.1.Value.StringValue=…`) and in XML, where lists and maps are
elements that are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.sax.saxutils import escape

from entrepot.core.limits import KIB
from entrepot.core.steps import Steps
from entrepot.wire.sqs.errors import SqsError, malformed

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"

_FIELDS_MAX = 1_000  # Ten messages with ten attributes have about half of that.
_PIECE_BYTES = 32 * KIB  # Decoded in one step.
_INDEX_DIGITS_MAX = 4

# Lists of a request: the form's name, and the name in JSON.
_LISTS = {
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "TagKey": "TagKeys",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
# Maps of a request: the name in JSON, and what the form calls key and value.
_MAPS = {
    "Attribute": ("Attributes", "Name", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
}
# Lists and maps of an answer: the element for each part.
_ELEMENTS = {
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Failed": "BatchResultErrorEntry",
    "Results": "Result",
}
_MAP_ELEMENTS = {name: (form, key, value) for form, (name, key, value) in _MAPS.items()}


# --- requests


def read_form(body: bytes) -> Steps[dict[str, str]]:
    """Decode a form. Raises SqsError."""
    fields = body.split(b"&", _FIELDS_MAX)
    if len(fields) > _FIELDS_MAX:
        raise malformed(f"a request has at most {_FIELDS_MAX} parameters")
    found: dict[str, str] = {}
    for field in fields:
        if field:
            name, _, value = field.partition(b"=")
            found[(yield from _decode(name))] = yield from _decode(value)
    return found


def _decode(data: bytes) -> Steps[str]:
    pieces: list[bytes] = []
    start = 0
    while start < len(data):
        end = start + _PIECE_BYTES
        cut = data.find(b"%", end - 2, end)  # Not within an escape.
        end = end if cut < 0 else cut
        pieces.append(unquote_to_bytes(data[start:end].replace(b"+", b" ")))
        start = end
        yield
    try:
        return b"".join(pieces).decode()
    except UnicodeDecodeError:
        raise malformed("the request is not UTF-8") from None


def structure(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a form, in the structure that they have in JSON."""
    return _named(tree(fields))


def tree(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a form by the parts of their names."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        place = found
        *path, last = name.split(".", 8)
        for each in path:
            inner = place.setdefault(each, {})
            if not isinstance(inner, dict):
                raise malformed(f"{name} is a value and a structure")
            place = inner
        place[last] = value
    return found


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in _LISTS and isinstance(value, dict):
            parts = [_named(each) if isinstance(each, dict) else each for each in in_order(value)]
            found[_LISTS[name]] = parts
        elif name in _MAPS and isinstance(value, dict):
            json_name, key, inner = _MAPS[name]
            found[json_name] = dict(_pair(name, each, key, inner) for each in in_order(value))
        else:
            found[name] = value
    return found


def _pair(name: str, part: object, key: str, inner: str) -> tuple[str, Any]:
    if not isinstance(part, dict) or not isinstance(part.get(key), str):
        raise malformed(f"{name} is not a list of structures with a {key}")
    return part[key], part.get(inner)


def in_order(numbered: Mapping[str, Any]) -> Iterator[Any]:
    """Return the elements of a list in the order of their numbers. Raises SqsError."""
    for number in numbered:
        if not (number.isascii() and number.isdigit() and len(number) <= _INDEX_DIGITS_MAX):
            raise malformed(f"{number} is not the number of an element")
    return (value for _, value in sorted(numbered.items(), key=lambda each: int(each[0])))


# --- answers


def answer(action: str, result: Mapping[str, Any] | None, request_id: str) -> Steps[bytearray]:
    """Return the answer to a request."""
    output = bytearray(f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">'.encode())
    if result is not None:
        output += f"<{action}Result>".encode()
        yield from _structure(action, result, output)
        output += f"</{action}Result>".encode()
    metadata = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
    output += f"{metadata}</{action}Response>".encode()
    return output


def failure(error: SqsError, request_id: str) -> bytes:
    kind = "Sender" if error.is_senders else "Receiver"
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{kind}</Type>'
        f"<Code>{error.code}</Code><Message>{xml_text(str(error))}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode("utf-8", "replace")


def _structure(action: str, values: Mapping[str, Any], output: bytearray) -> Steps[None]:
    for name, value in values.items():
        if isinstance(value, list):
            element = _ELEMENTS.get(name, f"{action}ResultEntry")
            for each in value:
                yield from _element(action, element, each, output)
        elif isinstance(value, dict) and name in _MAP_ELEMENTS:
            element, key, inner = _MAP_ELEMENTS[name]
            for each, content in value.items():
                pair = {key: each, inner: content}
                yield from _element(action, element, pair, output)
        else:
            yield from _element(action, name, value, output)


def _element(action: str, name: str, value: Any, output: bytearray) -> Steps[None]:
    output += f"<{name}>".encode()
    if isinstance(value, dict):
        yield from _structure(action, value, output)
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        for start in range(0, len(text), _PIECE_BYTES):
            output += xml_text(text[start : start + _PIECE_BYTES]).encode("utf-8", "replace")
            yield
    output += f"</{name}>".encode()


def xml_text(text: str) -> str:
    """Return a text as XML has it."""
    return escape(text, {"\r": "&#13;"})
