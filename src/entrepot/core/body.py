"""The records inside a batch, as bytes: the two inner loops.

Each record is: length, attributes (unused), timestamp delta, offset delta, key, value,
headers. All numbers but the attributes are zigzag varints, and a length of -1 is a null.

These loops run once for every record, so they are written for speed. Encoding takes
small numbers from a table. Decoding reads a varint of one or two bytes in place,
because a call would cost more than the reading; the steps are the same each time:

    number = body[position]                      # Seven bits, and one that says "more".
    if number > 0x7F:
        number += body[position + 1] - 1 << 7    # Takes the first "more" away again.
        if number > 0x3FFF: ...                  # Three bytes or more: a call.

and the lowest bit of the number is its sign.

What is decoded may be damaged or hostile. Positions only grow, and a length that reaches
over the end gives a short slice and a position over the end, where the next byte is not
there (IndexError). So only the last slice of a record needs a check of its own, and
nothing is allocated that the body does not hold.
"""

from collections.abc import Iterator, Sequence

from entrepot.core.errors import InvalidBatch
from entrepot.core.limits import HEADERS_PER_RECORD_MAX
from entrepot.core.record import Record

Headers = tuple[tuple[str, bytes | None], ...]

_TIMESTAMP_END = 2**63
_VARINT_BYTES_MAX = 10


def _varint(number: int) -> bytes:
    rest = 2 * number if number >= 0 else -2 * number - 1
    output = bytearray()
    while rest > 0x7F:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)
    return bytes(output)


_NULL = _varint(-1)
_SMALL = tuple(_varint(number) for number in range(2_048))  # Nearly all there are.


def encode(
    records: Sequence[Record], times: Sequence[int], deltas: Sequence[int] | None = None
) -> bytearray:
    """The records, each at its time; their offsets count from 0 unless `deltas` says otherwise."""
    small, small_end, join = _SMALL, len(_SMALL), b"".join
    output = bytearray()
    first = times[0]
    numbered = zip(deltas or range(len(records)), times, records, strict=True)
    for index, time, (key, value, headers, _, _) in numbered:
        delta = time - first
        if key is None:
            key, key_size = b"", _NULL
        else:
            size = len(key)
            key_size = small[size] if size < small_end else _varint(size)
        if value is None:
            value, value_size = b"", _NULL
        else:
            size = len(value)
            value_size = small[size] if size < small_end else _varint(size)
        record = join(
            (
                b"\0",
                small[delta] if 0 <= delta < small_end else _varint(delta),
                small[index] if index < small_end else _varint(index),
                key_size,
                key,
                value_size,
                value,
                _encode_headers(headers) if headers else b"\0",
            )
        )
        size = len(record)
        output += small[size] if size < small_end else _varint(size)
        output += record
    return output


def _encode_headers(headers: Headers) -> bytes:
    small, small_end = _SMALL, len(_SMALL)
    parts = [_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        size = len(encoded)
        parts += (small[size] if size < small_end else _varint(size), encoded)
        if value is None:
            parts.append(_NULL)
        else:
            size = len(value)
            parts += (small[size] if size < small_end else _varint(size), value)
    return b"".join(parts)


def decode(
    body: bytes,
    position: int,
    count: int,
    *,
    offset_first: int,
    offset_delta_last: int,
    timestamp_first: int,
    timestamp_fixed: int | None,
) -> Iterator[Record]:
    """`count` records, from `position` to the end; all at `timestamp_fixed` if there is one."""
    new = tuple.__new__
    delta = -1
    headers: Headers
    try:
        for _ in range(count):
            number = body[position]
            position += 1
            if number > 0x7F:
                number += body[position] - 1 << 7
                position += 1
                if number > 0x3FFF:
                    number, position = _read_rest(body, position, number)
            end = position + (number >> 1 ^ -(number & 1))
            number = body[position + 1]  # One further: the record's attributes are unused.
            position += 2
            if number > 0x7F:
                number += body[position] - 1 << 7
                position += 1
                if number > 0x3FFF:
                    number, position = _read_rest(body, position, number)
            time = timestamp_fixed
            if time is None:
                time = timestamp_first + (number >> 1 ^ -(number & 1))
            if not -1 <= time < _TIMESTAMP_END:
                raise InvalidBatch(f"a record's timestamp is {time}")
            number = body[position]
            position += 1
            if number > 0x7F:
                number += body[position] - 1 << 7
                position += 1
                if number > 0x3FFF:
                    number, position = _read_rest(body, position, number)
            if number & 1 or not delta < number >> 1 <= offset_delta_last:
                raise InvalidBatch("a record's offset is out of order")
            delta = number >> 1
            key, value, position = _read_key_and_value(body, position)
            if body[position]:
                headers, position = _read_headers(body, position)
            else:
                headers = ()
                position += 1
            if position != end:
                raise InvalidBatch("a record does not end where its length says")
            yield new(Record, (key, value, headers, time, offset_first + delta))
    except IndexError:
        raise InvalidBatch("the records are cut off") from None
    if position != len(body):
        raise InvalidBatch(f"bytes are left after {count} records")


def _read_key_and_value(body: bytes, position: int) -> tuple[bytes | None, bytes | None, int]:
    key = value = None
    number = body[position]
    position += 1
    if number != 1:
        if number > 0x7F:
            number += body[position] - 1 << 7
            position += 1
            if number > 0x3FFF:
                number, position = _read_rest(body, position, number)
        if number & 1:
            raise InvalidBatch("a key of negative length")
        end = position + (number >> 1)
        key = body[position:end]
        position = end
    number = body[position]
    position += 1
    if number != 1:
        if number > 0x7F:
            number += body[position] - 1 << 7
            position += 1
            if number > 0x3FFF:
                number, position = _read_rest(body, position, number)
        if number & 1:
            raise InvalidBatch("a value of negative length")
        end = position + (number >> 1)
        value = body[position:end]
        position = end
    return key, value, position


def _read_headers(body: bytes, position: int) -> tuple[Headers, int]:
    number, position = _read_varint(body, position)
    if number & 1 or number >> 1 > HEADERS_PER_RECORD_MAX:
        raise InvalidBatch("a record with too many headers, or fewer than none")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(number >> 1):
        number, position = _read_varint(body, position)
        if number & 1:
            raise InvalidBatch("a header without a name")
        end = position + (number >> 1)
        name = body[position:end].decode("utf-8", "replace")  # As Kafka's Java client reads it.
        number, position = _read_varint(body, end)
        if number == 1:
            headers.append((name, None))
            continue
        if number & 1:
            raise InvalidBatch("a header's value of negative length")
        end = position + (number >> 1)
        headers.append((name, body[position:end]))
        position = end
    if position > len(body):
        raise InvalidBatch("the records are cut off")
    return tuple(headers), position


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    """The number, its sign still in the lowest bit, and the position after it."""
    number = body[position]
    position += 1
    if number > 0x7F:
        number += body[position] - 1 << 7
        position += 1
        if number > 0x3FFF:
            return _read_rest(body, position, number)
    return number, position


def _read_rest(body: bytes, position: int, number: int) -> tuple[int, int]:
    """The same, two bytes into it."""
    number -= 1 << 14
    for shift in range(14, 7 * _VARINT_BYTES_MAX, 7):
        byte = body[position]
        position += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise InvalidBatch(f"a number of more than {_VARINT_BYTES_MAX} bytes")
