"""The records inside a batch, as bytes: how they are decoded. `encoding` is how they are encoded.

Each record is: length, attributes (unused), timestamp delta, offset delta, key, value,
headers. All numbers but the attributes are zigzag varints, and a length of -1 is a null.

This runs once for every record, so it is written for speed. It reads a varint of one or two bytes
in place, because a call would cost more than the reading; the steps are the same each time:

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

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import TypeVar

from entrepot.core.encoding import NULL, SMALL, Headers, varint
from entrepot.core.errors import InvalidBatch
from entrepot.core.limits import HEADERS_PER_RECORD_MAX, MIB
from entrepot.core.ports import Buffer
from entrepot.core.record import Record

# Consecutive records that differ only in their values: the first one's offset delta, the timestamp
# in ms, key, encoded headers, and the values.
Stretch = tuple[int, int, bytes | None, bytes, list[Buffer | None]]

_TIMESTAMP_END = 2**63
_VARINT_BYTES_MAX = 10
_COPIED_BYTES_MAX = 2 * MIB  # A longer value is returned as a view and not copied, where possible.

Bytes = TypeVar("Bytes", bytes, memoryview)


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
    """Yield the records. All have the time `timestamp_fixed` unless it is None. Raises
    InvalidBatch."""
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
            number = body[position + 1]  # Skip the record's attributes, which are unused.
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


def split(
    body: bytes,
    position: int,
    count: int,
    *,
    offset_delta_last: int,
    timestamp_first: int,
    timestamp_fixed: int | None,
) -> list[Stretch]:
    """Decode records into stretches. Headers stay encoded, large values are views."""
    output: list[Stretch] = []
    delta, section = -1, b""
    try:
        while count > 0:
            number = body[position]
            position += 1
            if number > 0x7F:
                number += body[position] - 1 << 7
                position += 1
                if number > 0x3FFF:
                    number, position = _read_rest(body, position, number)
            time_at, end = position, position + (number >> 1 ^ -(number & 1))
            number, position = _read_varint(body, position + 1)  # Attributes are unused.
            time = timestamp_fixed
            if time is None:
                time = timestamp_first + (number >> 1 ^ -(number & 1))
            if not -1 <= time < _TIMESTAMP_END:
                raise InvalidBatch(f"a record's timestamp is {time}")
            time_end = position
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
            key, value, position = _reader(end - position)(body, position)
            if not position < end <= len(body):
                raise InvalidBatch("a record does not end where its length says")
            same, section = section, body[position:end]
            stretch = (delta, time, key, section, [value])
            output.append(stretch)
            position = end
            if section == same:
                beginning = body[time_at:time_end]
                position = _read_uniform(stretch, count - 1, body, end, beginning)
                if position == end:
                    position = _read_alike(stretch, count - 1, body, end, beginning)
                delta += len(stretch[4]) - 1
            count -= len(stretch[4])
    except IndexError:
        raise InvalidBatch("the records are cut off") from None
    if position != len(body):
        raise InvalidBatch("bytes are left after the last record")
    if delta > offset_delta_last:  # `_read_uniform` and `_read_alike` do not check this.
        raise InvalidBatch("a record's offset is out of order")
    return output


def _read_uniform(
    stretch: Stretch, count: int, body: bytes, position: int, beginning: bytes
) -> int:
    """Add the following records to the stretch if all have one size and differ only in value and
    offset.

    Then it is known where their values are. To verify it, the records are encoded again and
    compared. How many there are is found by a binary search for the last one that begins with
    the same bytes. That takes for granted that timestamps do not go back; where they do, the
    comparison fails.

    Returns the position after them, or the same position when they are not alike.
    """
    delta, _, key, section, values = stretch
    if values[-1] is None:
        return position
    delta, size = delta + len(values), len(values[-1])
    middle = (NULL if key is None else varint(len(key)) + key) + varint(size)
    width = len(varint(delta))
    size_all = len(beginning) + width + len(middle) + size + len(section)
    lead = varint(size_all) + beginning
    stride = size_all + len(lead) - len(beginning)
    delta_end = min(delta + count, 64 if width == 1 else len(SMALL))
    count = min(delta_end - delta, (len(body) - position) // stride)
    begins = partial(body.startswith, lead)
    if count > 0 and not begins(position + (count - 1) * stride):
        places = range(position, position + count * stride, stride)
        count = bisect_left(places, True, key=lambda place: not begins(place))
    if count < 2:
        return position
    end = position + count * stride
    numbers = SMALL[delta : delta + count]
    value_first = position + stride - len(section) - size
    found = [body[at : at + size] for at in range(value_first, end, stride)]
    rows = zip(repeat(lead), numbers, repeat(middle), found, repeat(section))
    if b"".join(chain.from_iterable(rows)) != body[position:end]:
        return position
    values += found
    return end


def _read_alike(stretch: Stretch, count: int, body: bytes, position: int, beginning: bytes) -> int:
    """Add the following records to the stretch that differ from the last one only in value and
    offset.

    They are compared rather than decoded, because nearly all records are alike. Returns the
    position of the first one that is not.
    """
    small, small_end = SMALL, len(SMALL)
    first, _, key, section, values = stretch
    first += len(values)
    key_bytes = NULL if key is None else varint(len(key)) + key
    rest = len(section)
    for delta in range(first, first + count):
        start = position
        number = body[position]
        position += 1
        if number > 0x7F:
            number += body[position] - 1 << 7
            position += 1
            if number > 0x3FFF:
                number, position = _read_rest(body, position, number)
        end = position + (number >> 1)
        head = beginning + (small[delta] if delta < small_end else varint(delta)) + key_bytes
        if number & 1 or not body.startswith(head, position):
            return start
        position += len(head)
        number = body[position]
        position += 1
        if number > 0x7F:
            number += body[position] - 1 << 7
            position += 1
            if number > 0x3FFF:
                number, position = _read_rest(body, position, number)
        value_end = end - rest
        if number & 1 or position + (number >> 1) != value_end or body[value_end:end] != section:
            return start
        values.append(body[position:value_end])
        position = end
    return position


def decode_headers(section: bytes) -> Headers:
    """Decode the headers at the end of a record. Raises InvalidBatch."""
    try:
        headers, end = _read_headers(section, 0)
    except IndexError:
        raise InvalidBatch("the headers are cut off") from None
    if end != len(section):
        raise InvalidBatch("a record does not end where its length says")
    return headers


def _read_key_and_value(body: Bytes, position: int) -> tuple[Bytes | None, Bytes | None, int]:
    """Return key, value and the position after them. Raises InvalidBatch, IndexError."""
    key: Bytes | None = None
    value: Bytes | None = None
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


def _read_large(body: bytes, position: int) -> tuple[bytes | None, Buffer | None, int]:
    """Read a key and a value as `_read_key_and_value` does, without copying the value."""
    view = memoryview(body)
    key, value, position = _read_key_and_value(view, position)
    return None if key is None else bytes(key), value, position


def _reader(size: int) -> Callable[[bytes, int], tuple[bytes | None, Buffer | None, int]]:
    """Return the function that reads a key and a value out of a record with `size` bytes left."""
    return _read_key_and_value if size <= _COPIED_BYTES_MAX else _read_large


def _read_headers(body: bytes, position: int) -> tuple[Headers, int]:
    """Return the headers and the position after them. Raises InvalidBatch, IndexError."""
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
    """Return the number, its sign still in the lowest bit, and the position after it."""
    number = body[position]
    position += 1
    if number > 0x7F:
        number += body[position] - 1 << 7
        position += 1
        if number > 0x3FFF:
            return _read_rest(body, position, number)
    return number, position


def _read_rest(body: bytes | memoryview, position: int, number: int) -> tuple[int, int]:
    """Read the rest of a varint of more than two bytes; `number` is what the first two gave."""
    number -= 1 << 14
    for shift in range(14, 7 * _VARINT_BYTES_MAX, 7):
        byte = body[position]
        position += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise InvalidBatch(f"a number of more than {_VARINT_BYTES_MAX} bytes")
