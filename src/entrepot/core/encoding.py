"""Encodes the records of a batch: one of the two inner loops of `body`, which describes the bytes.

It is in a module of its own because it can be compiled; decoding has to withstand numbers of any
size. Small numbers come from a table.
"""

from collections.abc import Iterable, Sequence

from entrepot.core.ports import Buffer
from entrepot.core.record import Record

Headers = tuple[tuple[str, bytes | None], ...]


def varint(number: int) -> bytes:
    """Return the number as a zigzag varint."""
    rest = 2 * number if number >= 0 else -2 * number - 1
    output = bytearray()
    while rest > 0x7F:
        output.append(rest & 0x7F | 0x80)
        rest >>= 7
    output.append(rest)
    return bytes(output)


NULL = varint(-1)
# The numbers that take one or two bytes.
SMALL = tuple(varint(number) for number in range(8_192))


def encode(
    records: Sequence[Record],
    times: Sequence[int],
    deltas: Sequence[int] | None = None,
    time_first: int | None = None,
) -> bytearray:
    """Encode the records with these timestamps.

    `deltas` are their offsets relative to the batch, by default 0, 1, 2...; `time_first` is the
    batch's first timestamp, by default the first of these.
    """
    small, small_end, join = SMALL, len(SMALL), b"".join
    output = bytearray()
    first = times[0] if time_first is None else time_first
    numbered = zip(deltas or range(len(records)), times, records, strict=True)
    for index, time, (key, value, headers, _, _) in numbered:
        delta = time - first
        if key is None:
            key, key_size = b"", NULL
        else:
            size = len(key)
            key_size = small[size] if size < small_end else varint(size)
        if value is None:
            value, value_size = b"", NULL
        else:
            size = len(value)
            value_size = small[size] if size < small_end else varint(size)
        record = join(
            (
                b"\0",
                small[delta] if 0 <= delta < small_end else varint(delta),
                small[index] if index < small_end else varint(index),
                key_size,
                key,
                value_size,
                value,
                _encode_headers(headers) if headers else b"\0",
            )
        )
        size = len(record)
        output += small[size] if size < small_end else varint(size)
        output += record
    return output


def encode_plain(
    values: Iterable[Buffer], sections: Iterable[bytes], *, index: int, delta_ms: int
) -> list[Buffer]:
    """Encode records without a key, all with one timestamp, whose headers are encoded already.

    Returns pieces to be joined with others. `index` is the offset of the first record and
    `delta_ms` the timestamp of all, both relative to the batch's first record.
    """
    small, small_end = SMALL, len(SMALL)
    output: list[Buffer] = []
    lead = middle = last_section = b""
    last_size = last_width = -1
    beginning = b"\0" + (small[delta_ms] if 0 <= delta_ms < small_end else varint(delta_ms))
    for value, section in zip(values, sections, strict=False):
        number = small[index] if index < small_end else varint(index)
        size, width = len(value), len(number)
        # Nearly always these sizes are those of the record before.
        if size != last_size or section is not last_section or width != last_width:
            last_size, last_section, last_width = size, section, width
            middle = NULL + (small[size] if size < small_end else varint(size))
            size += len(beginning) + width + len(middle) + len(section)
            lead = (small[size] if size < small_end else varint(size)) + beginning
        output += (lead, number, middle, value, section)
        index += 1
    return output


def encode_keyed(
    values: Iterable[Buffer],
    keys: Iterable[bytes | None],
    sections: Iterable[bytes],
    *,
    index: int,
    delta_ms: int,
) -> list[Buffer]:
    """Encode records as `encode_plain` does, with keys."""
    output: list[Buffer] = []
    beginning = b"\0" + varint(delta_ms)
    for value, key, section in zip(values, keys, sections, strict=False):
        named = NULL if key is None else varint(len(key)) + key
        head = beginning + varint(index) + named + varint(len(value))
        output += (varint(len(head) + len(value) + len(section)) + head, value, section)
        index += 1
    return output


def encode_headers(headers: Headers) -> bytes:
    """Encode headers as they stand at the end of a record."""
    return _encode_headers(headers) if headers else b"\0"


def _encode_headers(headers: Headers) -> bytes:
    small, small_end, count = SMALL, len(SMALL), len(headers)
    parts = [small[count] if count < small_end else varint(count)]
    for name, value in headers:
        encoded = name.encode()
        size = len(encoded)
        parts += (small[size] if size < small_end else varint(size), encoded)
        if value is None:
            parts.append(NULL)
        else:
            size = len(value)
            parts += (small[size] if size < small_end else varint(size), value)
    return b"".join(parts)
