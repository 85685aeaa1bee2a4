"""The protocol of SNS: a form comes in, XML goes out.

It differs from the older protocol of SQS in how lists and maps are told: `Tags.member.1.Key=…`,
`Attributes.entry.1.key=…`, and in XML elements of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrepot.core.steps import Steps
from entrepot.wire.sqs.errors import SqsError, malformed
from entrepot.wire.sqs.query import in_order, tree, xml_text

VERSION = "2010-03-31"
NAMESPACE = f"http://sns.amazonaws.com/doc/{VERSION}/"
# Actions in the URLs that messages tell, which name no version and are opened without a signature.
IN_MESSAGES = ("ConfirmSubscription", "Unsubscribe")

_MAPS = ("Attributes",)  # Of an answer.
# Errors that SQS and SNS name differently.
_CODES = {
    "AccessDenied": "AuthorizationError",
    "InvalidParameterValue": "InvalidParameter",
    "InvalidMessageContents": "InvalidParameter",
    "MalformedInput": "InvalidParameter",
    "MissingParameter": "InvalidParameter",
    "OverLimit": "Throttled",
    "RequestThrottled": "Throttled",
    "ServiceUnavailable": "InternalError",
    "UnsupportedOperation": "InvalidParameter",
}


def structure(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a form: lists for `member`, and maps for `entry`."""
    return {name: _shaped(value) for name, value in tree(fields).items()}


def _shaped(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"member"} and isinstance(value["member"], dict):
        return [_shaped(each) for each in in_order(value["member"])]
    if set(value) == {"entry"} and isinstance(value["entry"], dict):
        return dict(_pair(each) for each in in_order(value["entry"]))
    return {name: _shaped(each) for name, each in value.items()}


def _pair(entry: Any) -> tuple[str, Any]:
    if isinstance(entry, dict):
        for key, value in (("key", "value"), ("Name", "Value")):
            if isinstance(entry.get(key), str):
                return entry[key], _shaped(entry.get(value))
    raise malformed("an entry of a map has no key")


def answer(action: str, result: Mapping[str, Any] | None, request_id: str) -> Steps[bytearray]:
    """Return the answer to a request."""
    output = bytearray(f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">'.encode())
    output += f"<{action}Result>".encode()
    yield from _contents(result or {}, output)
    output += f"</{action}Result>".encode()
    metadata = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
    output += f"{metadata}</{action}Response>".encode()
    return output


def _contents(values: Mapping[str, Any], output: bytearray) -> Steps[None]:
    for name, value in values.items():
        output += f"<{name}>".encode()
        if name in _MAPS:
            for key, text in value.items():
                pair = f"<key>{xml_text(key)}</key><value>{xml_text(text)}</value>"
                output += f"<entry>{pair}</entry>".encode("utf-8", "replace")
        elif isinstance(value, list):
            for each in value:
                output += b"<member>"
                yield from _contents(each, output)
                output += b"</member>"
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            output += xml_text(text).encode("utf-8", "replace")
        output += f"</{name}>".encode()
        yield


def code_of(error: SqsError) -> str:
    """Return what SNS calls an error."""
    code = error.code.rpartition(".")[2]
    return _CODES.get(code, code)


def failure(error: SqsError, request_id: str) -> bytes:
    kind = "Sender" if error.is_senders else "Receiver"
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{kind}</Type>'
        f"<Code>{code_of(error)}</Code><Message>{xml_text(str(error))}</Message></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode("utf-8", "replace")
