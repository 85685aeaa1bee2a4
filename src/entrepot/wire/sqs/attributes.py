"""Attributes of a message: a name, a type, and a text or bytes.

A type is String, Number or Binary, and may have a suffix after a point, which only its users
know. A number is kept as the text that it came in. Clients check what they sent and got by the
MD5 of all attributes, whose layout is Amazon's.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import md5
from typing import Any, NamedTuple

from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError, invalid, malformed

STRING, NUMBER, BINARY = "String", "Number", "Binary"
TRACE = "AWSTraceHeader"  # The one attribute that the system knows and a sender may give.

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{sqs_limits.ATTRIBUTE_NAME_MAX}}}")
_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?([0-9]{1,38}\.?[0-9]{0,38}|\.[0-9]{1,38})([eE][+-]?[0-9]{1,3})?")
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ID = re.compile(rf"[!-~]{{1,{sqs_limits.ID_MAX}}}")
LEGAL_ID = f"It has 1 to {sqs_limits.ID_MAX} letters, digits and punctuation characters."
_TEXT_TRANSPORT, _BYTES_TRANSPORT = b"\x01", b"\x02"


class Attribute(NamedTuple):
    type: str
    value: str | bytes

    @property
    def size(self) -> int:
        """Return how many bytes of a message's size it takes, without its name."""
        value = self.value.encode() if isinstance(self.value, str) else self.value
        return len(self.type.encode()) + len(value)

    def to_json(self) -> dict[str, str]:
        if isinstance(self.value, str):
            return {"DataType": self.type, "StringValue": self.value}
        return {"DataType": self.type, "BinaryValue": b64encode(self.value).decode()}


Attributes = Mapping[str, Attribute]


def is_legal_text(text: str) -> bool:
    """Return whether a body or a value may have these characters: those of XML 1.0."""
    return _ILLEGAL.search(text) is None


def is_legal_id(text: str) -> bool:
    """Return whether a group or a deduplication id may be called so."""
    return _ID.fullmatch(text) is not None


def is_legal_name(name: str) -> bool:
    lower = name.lower()
    return (
        _NAME.fullmatch(name) is not None
        and ".." not in name
        and not name.startswith(".")
        and not name.endswith(".")
        and not lower.startswith(("aws.", "amazon."))
    )


def read(values: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return the attributes that a sender gives. Raises SqsError."""
    if len(values) > sqs_limits.ATTRIBUTES_MAX:
        text = f"Number of message attributes [{len(values)}] exceeds the allowed maximum "
        raise SqsError("InvalidParameterValue", f"{text}[{sqs_limits.ATTRIBUTES_MAX}].")
    for name in values:
        if not is_legal_name(name):
            raise invalid("MessageAttributes", name, "This is not the name of an attribute.")
    return {name: _read_one(name, value) for name, value in values.items()}


def read_system(values: Mapping[str, Any]) -> dict[str, Attribute]:
    """Return the attributes for the system that a sender gives. Raises SqsError."""
    for name in values:
        if name != TRACE:
            raise invalid("MessageSystemAttributes", name, f"The only one is {TRACE}.")
    found = {name: _read_one(name, value) for name, value in values.items()}
    for name, attribute in found.items():
        if attribute.type != STRING:
            raise invalid("MessageSystemAttributes", name, "Its type must be String.")
    return found


def _read_one(name: str, given: object) -> Attribute:
    if not isinstance(given, dict):
        raise malformed(f"the attribute {name} is not a structure")
    kind, text, data = (given.get(key) for key in ("DataType", "StringValue", "BinaryValue"))
    if not all(each is None or isinstance(each, str) for each in (kind, text, data)):
        raise malformed(f"the attribute {name} has a value that is not a text")
    if not kind or not _TYPE.fullmatch(kind) or len(kind) > sqs_limits.ATTRIBUTE_NAME_MAX:
        raise invalid(name, kind, "The type of an attribute is String, Number or Binary.")
    if kind.startswith(BINARY):
        try:
            value = b64decode(data or "", validate=True)
        except ValueError:
            raise malformed(f"the attribute {name} is not base64") from None
        if not value or text is not None:
            raise invalid(name, kind, "An attribute of this type has a BinaryValue, and that only.")
        return Attribute(kind, value)
    if not text or data is not None:
        raise invalid(name, kind, "An attribute of this type has a StringValue, and that only.")
    if not is_legal_text(text):
        raise SqsError("InvalidMessageContents", f"The attribute {name} has invalid characters.")
    if kind.startswith(NUMBER) and not _NUMBER.fullmatch(text):
        raise invalid(name, text, "It is not a number.")
    return Attribute(kind, text)


def size_of(attributes: Attributes) -> int:
    """Return how many bytes of a message's size these attributes take."""
    return sum(len(name.encode()) + each.size for name, each in attributes.items())


def md5_of(attributes: Attributes) -> str:
    """Return the MD5 of all attributes, as Amazon computes it, in hexadecimal digits."""
    digest = md5(usedforsecurity=False)
    for name in sorted(attributes):
        kind, value = attributes[name]
        is_text = isinstance(value, str)
        data = value.encode() if isinstance(value, str) else value
        for each in (name.encode(), kind.encode()):
            digest.update(len(each).to_bytes(4) + each)
        digest.update(_TEXT_TRANSPORT if is_text else _BYTES_TRANSPORT)
        digest.update(len(data).to_bytes(4) + data)
    return digest.hexdigest()
