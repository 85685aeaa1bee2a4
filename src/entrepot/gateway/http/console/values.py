"""Keys, values and headers of records as JSON: text where it is text, else base64.

What is long is cut, and says how long it is. Avro in Confluent's framing is recognised by its
first bytes, and decoded by the page if it knows the schema; here it is bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from entrepot.core.record import Record
from entrepot.gateway.http.management.fields import Fields, bad

Row = dict[str, Any]

_HEADERS_MAX = 100
_HEADER_BYTES_MAX = 4_096


def told(data: bytes | None, bytes_max: int) -> Row | None:
    """Return what JSON has for bytes, see `shown`. None stays."""
    return None if data is None else shown(data, bytes_max)


def shown(data: bytes, bytes_max: int) -> Row:
    """Return bytes for JSON: `text` or `base64`, and `bytes`, how many there are."""
    part = data[:bytes_max]
    row: Row = {"bytes": len(data)}
    try:
        row["text"] = _text(part, is_cut=len(part) < len(data))
    except UnicodeDecodeError:
        row["base64"] = b64encode(part).decode("ascii")
    return row


def _text(part: bytes, *, is_cut: bool) -> str:
    """Decode text, also if the cut has gone through its last character. Raises
    UnicodeDecodeError."""
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(part) - 3:
            raise
        return part[: error.start].decode()


def record_row(record: Record, partition: int, bytes_max: int) -> Row:
    """Describe a record."""
    headers = record.headers[:_HEADERS_MAX]
    return {
        "partition": partition,
        "offset": record.offset,
        "time": record.timestamp_ms,
        "key": told(record.key, bytes_max),
        "value": told(record.value, bytes_max),
        "headers": [[name, told(value, _HEADER_BYTES_MAX)] for name, value in headers],
    }


def read_bytes(fields: Fields, name: str) -> bytes | None:
    """Return the bytes of a field: a text, or base64 under the name with `_base64`. None if it is
    missing. Raises HttpError."""
    coded = f"{name}_base64"
    if coded in fields:
        try:
            return b64decode(fields.text(coded), validate=True)
        except ValueError:
            raise bad(f"{coded}: not base64") from None
    if name not in fields:
        return None
    return encoded(fields.text(name), name)


def encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # Single surrogates, which JSON can express.
        raise bad(f"{name}: not Unicode") from None


def read_headers(fields: Fields) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a field, an object of texts. Raises HttpError."""
    found = fields.table("headers")
    if len(found) > _HEADERS_MAX:
        raise bad(f"headers: at most {_HEADERS_MAX}")
    return tuple((name, encoded(str(value), "headers")) for name, value in found.items())
