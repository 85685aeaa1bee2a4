"""Text into records, and records into text: lines, JSON lines and CSV.

A format cuts bytes into entries and turns an entry into a record, or says why it cannot
be one. What is not whole yet stays uncut, so that a growing file is read up to its last
line's end and no further. A line end inside the quotes of a CSV field is not one.
"""

import base64
import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec

from entrepot.connect.interface import Rejected, SourceRecord

TextFormat = Literal["lines", "json", "csv"]
_QUOTE = b'"'
_TOO_DEEP = "JSON that is nested too deep"


class Misfit(ValueError):
    """A record that the format cannot say. The text is the reason."""


def cut(form: str, data: bytes, *, is_final: bool) -> Iterator[bytes]:
    """The whole entries that the bytes begin with, with their line ends.

    In the last bytes of a file that does not grow, a line without an end is whole.
    """
    lines: list[bytes] = []  # Of the entry that is being cut.
    quotes = 0
    for line in io.BytesIO(data):
        lines.append(line)
        quotes += line.count(_QUOTE) if form == "csv" else 0
        if line.endswith(b"\n") and quotes % 2 == 0:
            yield b"".join(lines)
            lines, quotes = [], 0
    if lines and is_final:
        yield b"".join(lines)


class Decoder:
    def __init__(
        self, form: TextFormat, *, key: str | None = None, columns: Sequence[str] = ()
    ) -> None:
        """`key` is the field whose value becomes the record's key."""
        self._form = form
        self._key = key
        self.columns = tuple(columns)

    def decode(self, entry: bytes, where: str) -> SourceRecord | Rejected | None:
        """None, when the entry says nothing."""
        text = entry.removesuffix(b"\n").removesuffix(b"\r")
        if self._form == "lines":
            return SourceRecord(text)
        if not text.strip():
            return None
        try:
            if self._form == "csv":
                row = self._row(text)
                return SourceRecord(to_json(row), key=key_of(row, self._key))
            document = read_json(text)
            return SourceRecord(text, key=key_of(document, self._key))
        except ValueError as error:
            return Rejected(text, where, str(error))

    def _row(self, text: bytes) -> dict[str, str]:
        cells = read_cells(text)
        if len(cells) != len(self.columns):
            raise Misfit(f"{len(cells)} fields, but there are {len(self.columns)} columns")
        return dict(zip(self.columns, cells, strict=True))


def read_cells(entry: bytes) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(entry.decode(), newline=""), strict=True), [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise Misfit(f"not CSV: {error}") from None


def key_of(document: Any, field: str | None) -> bytes | None:
    """The field's value: a text as it is, anything else as JSON."""
    if field is None:
        return None
    if not isinstance(document, Mapping) or field not in document:
        raise Misfit(f"no field {field} for the key")
    found = document[field]
    if found is None:
        return None
    return found.encode() if isinstance(found, str) else to_json(found)


def read_json(data: bytes | str) -> Any:
    """Whatever JSON says. Raises Misfit, also for text that is not UTF-8."""
    try:
        return msgspec.json.decode(data)
    except ValueError as error:
        raise Misfit(f"not JSON: {error}") from None
    except RecursionError:
        raise Misfit(_TOO_DEEP) from None


# --- records into text


class Encoder:
    def __init__(self, form: TextFormat, *, columns: Sequence[str] = ()) -> None:
        self._form = form
        self._columns = tuple(columns)

    @property
    def head(self) -> bytes:
        """What an empty file begins with."""
        return write_cells(self._columns) if self._form == "csv" else b""

    def encode(self, value: bytes | None) -> bytes:
        """One entry; nothing for what the format has no word for. Raises Misfit."""
        if self._form == "lines":
            if b"\n" in (value or b""):
                raise Misfit("the value holds a line end")
            return (value or b"") + b"\n"
        if self._form == "json":
            return json_line(value)
        if value is None:
            return b""
        row = read_object(value)
        check_columns(row, self._columns)
        return write_cells([_cell(row.get(name)) for name in self._columns])


def json_line(value: bytes | None) -> bytes:
    if value is None:
        return b"null\n"
    read_json(value)
    if b"\n" in value or b"\r" in value:
        value = msgspec.json.format(value, indent=-1)
    return value + b"\n"


def read_object(value: bytes) -> dict[str, Any]:
    found = read_json(value)
    if not isinstance(found, dict):
        raise Misfit("not a JSON object")
    return found


def check_columns(row: Mapping[str, Any], columns: Sequence[str]) -> None:
    for name in row:
        if name not in columns:
            raise Misfit(f"no column {name}")


def write_cells(cells: Sequence[str]) -> bytes:
    text = io.StringIO(newline="")
    # A field is quoted for what is in the terminator, and a return must be.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n").encode() + b"\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value).decode()


def to_json(value: Any) -> bytes:
    """What databases and Parquet hold, too: bytes as base64, times as ISO 8601. Raises Misfit."""
    try:
        return json.dumps(
            value, default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        ).encode()
    except (ValueError, TypeError) as error:
        raise Misfit(str(error)) from None
    except RecursionError:
        raise Misfit(_TOO_DEEP) from None


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
