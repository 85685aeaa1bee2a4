"""The four codecs of a record batch, bounded.

Clients write and read these bytes, so what we write is what Kafka's own broker
writes: snappy in xerial's framing (blocks of 32 KiB, each with its length), lz4 as
a frame of independent blocks (Kafka's Java client refuses linked ones), gzip and
zstd plain. What we read is wider: librdkafka writes snappy as one raw block, and
any of them may come as several frames or members, one after the other.

A compressed body says little that can be trusted about the size it unpacks to, and
a good bomb is a thousand times smaller than its content. So the output is a fixed
piece of memory that the codec fills: when it runs out of room, we try again with
four times as much, and stop at the caller's bound. Beside it a codec holds at most
its window, which it fills as it goes.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from mmap import mmap

import cramjam

from entrepot.core.errors import InvalidBatch
from entrepot.core.ports import Buffer


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes. Persisted: never renumber."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The levels that Kafka's broker uses by default.
_GZIP_LEVEL = 6
_LZ4_LEVEL = 1
_ZSTD_LEVEL = 3

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # Version, and the oldest compatible one.
_XERIAL_BLOCK_BYTES = 32 * 1024
_LENGTH = struct.Struct(">i")

_ROOM_BYTES_MIN = 64 * 1024
_ROOM_GROWTH = 4  # Few bodies are compressed to less than a quarter, so the first try mostly fits.
_ROOM_BYTES_MAPPED = 1024 * 1024  # An output of this size or more is a memory mapping.
_ROOM_EXHAUSTED = "failed to write whole buffer"  # cramjam's error when the output is full.

_UNPACK: dict[Codec, Callable[[Buffer, Buffer], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: Codec, data: Buffer) -> bytes:
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            compressor = cramjam.lz4.Compressor(
                level=_LZ4_LEVEL, content_checksum=False, block_linked=False
            )
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(codec: Codec, data: Buffer, bytes_max: int) -> bytes:
    """Return the decompressed data. Raises InvalidBatch when it is damaged or exceeds
    `bytes_max`."""
    return bytes(unpacked(codec, data, bytes_max))


def unpacked(codec: Codec, data: Buffer, bytes_max: int) -> Buffer:
    """Decompress as `decompress` does, without the last copy: in a worker thread, a copy would
    hold up all other threads."""
    try:
        match codec:
            case Codec.NONE:
                if len(data) > bytes_max:
                    raise _too_large(bytes_max)
                return data
            case Codec.SNAPPY:
                return _decompress_snappy(memoryview(data), bytes_max)
            case _:
                return _decompress_growing(_UNPACK[codec], data, bytes_max)
    except cramjam.DecompressionError as error:
        raise InvalidBatch(f"damaged {codec.name.lower()} data: {error}") from None


def _decompress_growing(
    unpack: Callable[[Buffer, Buffer], int], data: Buffer, bytes_max: int
) -> memoryview:
    """Decompress into a buffer; when it is full, start again with one that is larger."""
    room = max(_ROOM_GROWTH * len(data), _ROOM_BYTES_MIN)
    while True:
        room = min(room, bytes_max)
        # A bytearray is filled with zeros at once, which holds up all other threads for a tenth of
        # a second when it is large; the pages of a mapping are filled when they are first used.
        output = memoryview(bytearray(room) if room < _ROOM_BYTES_MAPPED else mmap(-1, room))
        try:
            size = unpack(data, output)
        except cramjam.DecompressionError as error:
            if _ROOM_EXHAUSTED not in str(error):
                raise
        else:
            return output[:size]
        if room == bytes_max:
            raise _too_large(bytes_max)
        del output  # So that it is freed before the next one is made.
        room *= _ROOM_GROWTH


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, bytes_max: int) -> bytearray:
    is_framed = data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    output = bytearray()
    for block in _xerial_blocks(data) if is_framed else (data,):
        if len(output) + cramjam.snappy.decompress_raw_len(block) > bytes_max:
            raise _too_large(bytes_max)
        output += cramjam.snappy.decompress_raw(block)
    return output


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    position = 0
    end = len(data)
    while position < end:
        # Where two streams were concatenated there is another header. Its version numbers are not
        # checked: there is one version, and some clients write them in the wrong byte order.
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        if end - position < _LENGTH.size:
            raise InvalidBatch("damaged snappy data: a block's length is cut off")
        (size,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 < size <= end - position:
            raise InvalidBatch(f"damaged snappy data: a block of {size} bytes")
        yield data[position : position + size]
        position += size
    if position > end:
        raise InvalidBatch("damaged snappy data: a header is cut off")


def _too_large(bytes_max: int) -> InvalidBatch:
    return InvalidBatch(f"the records unpack to more than {bytes_max} bytes")
