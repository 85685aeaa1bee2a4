"""etcd's v3 API as JSON: paths, requests and answers of its gateway, as etcd 3.4 and later have it.

Keys and values are base64, 64-bit numbers are text, and a field with its default is left out.
A streaming call answers with one document in a line, `{"result": …}` or `{"error": …}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from entrepot.core.coordinator import Change, Entry, Event, Expected, Put
from entrepot.core.errors import MalformedFrame

T = TypeVar("T")

RANGE = "/v3/kv/range"
TRANSACTION = "/v3/kv/txn"
COMPACTION = "/v3/kv/compaction"
GRANT = "/v3/lease/grant"
KEEP_ALIVE = "/v3/lease/keepalive"
REVOKE = "/v3/lease/revoke"
WATCH = "/v3/watch"

NOT_FOUND = 5  # The code of gRPC; here it is said of leases only.


# --- answers


class Header(msgspec.Struct):
    revision: int = 0


class KeyValue(msgspec.Struct):
    key: bytes = b""
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0

    def entry(self) -> Entry:
        return Entry(_text(self.key), self.value, self.mod_revision, self.lease)


class RangeAnswer(msgspec.Struct):
    header: Header
    kvs: tuple[KeyValue, ...] = ()


class TransactionAnswer(msgspec.Struct):
    header: Header
    succeeded: bool = False


class LeaseAnswer(msgspec.Struct):
    ID: int = 0
    TTL: int = 0


class WatchEvent(msgspec.Struct):
    kv: KeyValue
    type: str = "PUT"

    def event(self) -> Event:
        value = None if self.type == "DELETE" else self.kv.value
        return Event(_text(self.kv.key), value, self.kv.mod_revision)


class WatchAnswer(msgspec.Struct):
    header: Header
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    events: tuple[WatchEvent, ...] = ()


class ErrorAnswer(msgspec.Struct):
    code: int = 0
    message: str = ""
    error: str = ""

    @property
    def text(self) -> str:
        return self.message or self.error or f"error {self.code}"


class _Streamed(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


def decode(data: bytes, kind: type[T]) -> T:
    """Return the decoded answer. Raises MalformedFrame."""
    try:
        # Numbers are text, and so is "true" for some proxies: not strict.
        return msgspec.json.decode(data, type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise MalformedFrame(f"not an answer of etcd: {error}") from None


def decode_streamed(line: bytes, kind: type[T]) -> T | ErrorAnswer:
    """Return one message of a streaming call. Raises MalformedFrame."""
    streamed = decode(line, _Streamed)
    if bytes(streamed.error):
        return decode(bytes(streamed.error), ErrorAnswer)
    return decode(bytes(streamed.result) or b"{}", kind)


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise MalformedFrame("a key that is not UTF-8") from None


# --- requests


def get_request(key: str, *, may_be_stale: bool) -> bytes:
    return _encode({"key": key.encode(), "serializable": may_be_stale})


def range_request(prefix: str, *, may_be_stale: bool) -> bytes:
    return _encode(_range(prefix) | {"serializable": may_be_stale})


def transaction_request(expected: Sequence[Expected], changes: Sequence[Change]) -> bytes:
    compare = [
        {"key": key.encode(), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        for key, revision in expected
    ]
    return _encode({"compare": compare, "success": [_change(change) for change in changes]})


def _change(change: Change) -> dict[str, Any]:
    key = change.key.encode()
    if isinstance(change, Put):
        put = {"key": key, "value": change.value, "lease": str(change.lease)}
        return {"request_put": put}
    return {"request_delete_range": {"key": key}}


def grant_request(seconds: int) -> bytes:
    return _encode({"TTL": str(seconds)})


def lease_request(lease: int) -> bytes:
    return _encode({"ID": str(lease)})


def watch_request(prefix: str, revision: int) -> bytes:
    return _encode({"create_request": _range(prefix) | {"start_revision": str(revision)}})


def compaction_request(revision: int) -> bytes:
    return _encode({"revision": str(revision)})


def _range(prefix: str) -> dict[str, Any]:
    """Return the range of all keys with the prefix: it ends before the prefix with its last byte
    one higher. UTF-8 has no byte 0xFF, so there is always one."""
    key = prefix.encode()
    if not key:
        return {"key": b"\0", "range_end": b"\0"}  # All keys.
    return {"key": key, "range_end": key[:-1] + bytes([key[-1] + 1])}


def _encode(request: dict[str, Any]) -> bytes:
    return msgspec.json.encode(request)
