"""Confluent's wire format, and a column made of decoded values."""

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

_HEAD = struct.Struct(">bI")  # A zero, and the schema's id.

# Returns the decoded value; raises ValueError for bytes that are not one.
Decode = Callable[[bytes], Any]


class BadValue(ValueError):
    """A value that is not what its schema says; the text says why."""


def unframed(data: bytes) -> tuple[int, memoryview]:
    """Return the schema's id and what comes behind it."""
    if len(data) < _HEAD.size or data[0] != 0:
        raise BadValue(
            "it does not begin with a zero byte and the id of a schema, as a schema registry's "
            "clients write it"
        )
    return _HEAD.unpack_from(data)[1], memoryview(data)[_HEAD.size :]


def decoded(
    column: Column | str, kind: StructType, new_decode: Callable[[], Decode], on_error: str
) -> Column:
    """Return the column's binary values as structs. `new_decode` is called on the executors.

    `on_error` says what becomes of a value that cannot be decoded: `fail`, or `null`.
    """
    if on_error not in ("fail", "null"):
        raise ValueError(f"on_error is fail or null, not {on_error!r}")
    arrow_type = to_arrow_type(kind, timezone="UTC")

    def decode_all(values: pa.Array) -> pa.Array:
        decode = new_decode()
        found: list[Any] = []
        for value in values:
            data = value.as_py()
            if data is None:
                found.append(None)
                continue
            try:
                found.append(decode(data))
            except BadValue as error:
                if on_error == "fail":
                    raise BadValue(f"a value of {len(data)} bytes: {error}") from None
                found.append(None)
        return pa.array(found, type=arrow_type)

    # Spark tells from hints what a function takes and gives.
    decode_all.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return f.arrow_udf(decode_all, kind)(f.col(column) if isinstance(column, str) else column)
