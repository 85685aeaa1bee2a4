"""Records into Arrow columns, many at a time: what makes the Spark source fast.

Rows that pass through Spark as Python objects cost ten times as much as columns do, so
records are never made into objects: a compiled loop writes keys, values, offsets and times
straight into the buffers that Arrow is made of. Where it was not compiled, the same is done
in Python, several times slower.
"""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from entrepot.core.body import decode
from entrepot.core.errors import InvalidBatch
from entrepot.core.ports import Buffer

try:
    from entrepot.spark import _columns
except ImportError:  # Installed without a compiler.
    HAS_COMPILED = False
else:
    HAS_COMPILED = True

TIMESTAMP = pa.timestamp("us", tz="UTC")
MILLISECONDS_MAX = (2**63 - 1) // 1_000  # Later times do not fit, and become this one.
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


class Columns(Protocol):
    """Batches go in, columns come out: key, value, offset, timestamp and headers."""

    @property
    def count(self) -> int:
        """Return how many rows were added."""

    @property
    def size(self) -> int:
        """Return how many bytes of keys, values and headers were added."""

    def add(
        self,
        body: Buffer,
        count: int,
        offset_first: int,
        timestamp_first: int,
        append_time: int,
        offset_from: int,
        offset_until: int,
    ) -> int:
        """Add the records between two offsets of a batch's body; return how many there were.

        All are of `append_time`, unless it is -1. Raises InvalidBatch, and takes none.
        """

    def take(self) -> list[pa.Array]:
        """Return the columns and begin new ones. Headers are there only if they were asked for."""


class PythonColumns:
    def __init__(self, with_headers: bool = False) -> None:
        self._with_headers = with_headers
        self._rows: list[tuple[Any, ...]] = []
        self.size = 0

    @property
    def count(self) -> int:
        return len(self._rows)

    def add(
        self,
        body: Buffer,
        count: int,
        offset_first: int,
        timestamp_first: int,
        append_time: int,
        offset_from: int,
        offset_until: int,
    ) -> int:
        records = decode(
            bytes(body),
            0,
            count,
            offset_first=offset_first,
            offset_delta_last=2**31 - 1,
            timestamp_first=timestamp_first,
            timestamp_fixed=append_time if append_time >= 0 else None,
        )
        wanted = [
            (r.key, r.value, r.offset, min(r.timestamp_ms, MILLISECONDS_MAX) * 1_000, r.headers)
            for r in records
            if offset_from <= r.offset < offset_until
        ]
        self._rows += wanted
        for key, value, _, _, headers in wanted:
            self.size += len(key or b"") + len(value or b"")
            if self._with_headers:
                self.size += sum(len(text or b"") for _, text in headers)
        return len(wanted)

    def take(self) -> list[pa.Array]:
        rows, self._rows, self.size = self._rows, [], 0
        keys, values, offsets, timestamps, headers = zip(*rows, strict=True) if rows else [()] * 5
        arrays = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(offsets, pa.int64()),
            pa.array(timestamps, pa.int64()).cast(TIMESTAMP),
        ]
        if self._with_headers:
            named = [[{"key": key, "value": value} for key, value in each] for each in headers]
            arrays.append(pa.array(named, HEADERS))
        return arrays


class CompiledColumns:
    """The buffers come from C; see there for their order."""

    def __init__(self, with_headers: bool = False) -> None:
        self._with_headers = with_headers
        self._columns = _columns.Columns(with_headers)

    @property
    def count(self) -> int:
        return self._columns.count

    @property
    def size(self) -> int:
        return self._columns.size

    def add(
        self,
        body: Buffer,
        count: int,
        offset_first: int,
        timestamp_first: int,
        append_time: int,
        offset_from: int,
        offset_until: int,
    ) -> int:
        try:
            return self._columns.add(
                body, count, offset_first, timestamp_first, append_time, offset_from, offset_until
            )
        except ValueError as error:
            raise InvalidBatch(str(error)) from None

    def take(self) -> list[pa.Array]:
        count, offsets, timestamps, keys, values, ends, names, texts = self._columns.take()
        arrays = [
            _strings(pa.binary(), count, keys),
            _strings(pa.binary(), count, values),
            _numbers(pa.int64(), count, offsets),
            _numbers(TIMESTAMP, count, timestamps),
        ]
        if self._with_headers:
            total = len(names[1]) // 4 - 1
            pairs = pa.StructArray.from_arrays(
                [_strings(pa.string(), total, names), _strings(pa.binary(), total, texts)],
                fields=list(HEADERS.value_type),
            )
            arrays.append(
                pa.Array.from_buffers(HEADERS, count, [None, pa.py_buffer(ends)], children=[pairs])
            )
        return arrays


def _numbers(kind: pa.DataType, count: int, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _strings(kind: pa.DataType, count: int, buffers: tuple[bytes, bytes, bytes]) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [pa.py_buffer(each) for each in buffers])


def new_columns(with_headers: bool = False) -> Columns:
    return CompiledColumns(with_headers) if HAS_COMPILED else PythonColumns(with_headers)
