"""Codecs: what other libraries write is read, bounds hold, damage is told from size."""

import gzip
import os
import struct
import subprocess
import sys

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec

from entrepot.core.compression import Codec, compress, decompress
from entrepot.core.errors import InvalidBatch

MIB = 1024 * 1024
TEXT = b"".join(b"%d bottles of beer on the wall, " % number for number in range(5_000))
FRAMED = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
COMPRESSED = (*FRAMED, Codec.SNAPPY)

ENCODERS = {
    Codec.GZIP: aiokafka_codec.gzip_encode,
    Codec.SNAPPY: aiokafka_codec.snappy_encode,
    Codec.LZ4: aiokafka_codec.lz4_encode,
    Codec.ZSTD: aiokafka_codec.zstd_encode,
}
DECODERS = {
    Codec.GZIP: aiokafka_codec.gzip_decode,
    Codec.SNAPPY: aiokafka_codec.snappy_decode,
    Codec.LZ4: aiokafka_codec.lz4_decode,
    Codec.ZSTD: aiokafka_codec.zstd_decode,
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, os.urandom(100_000)])
def test_what_we_write_we_read(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_others_write_we_read_and_the_other_way_round(codec: Codec) -> None:
    assert decompress(codec, ENCODERS[codec](TEXT), MIB) == TEXT
    assert DECODERS[codec](compress(codec, TEXT)) == TEXT


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer_will_do(codec: Codec, kind: type[bytearray] | type[memoryview]) -> None:
    packed = compress(codec, kind(TEXT))
    assert len(packed) < len(TEXT) or codec is Codec.NONE
    assert decompress(codec, kind(packed), MIB) == TEXT


@pytest.mark.parametrize("codec", Codec)
def test_the_bound_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(InvalidBatch, match="more than"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_content_far_larger_than_its_packing_still_unpacks(codec: Codec) -> None:
    data = bytes(3 * MIB)
    assert decompress(codec, compress(codec, data), 4 * MIB) == data


@pytest.mark.parametrize("codec", FRAMED)
def test_frames_one_after_the_other(codec: Codec) -> None:
    packed = compress(codec, b"one, ") + compress(codec, b"two, ") + compress(codec, TEXT)
    assert decompress(codec, packed, MIB) == b"one, two, " + TEXT
    with pytest.raises(InvalidBatch, match="more than"):
        decompress(codec, packed, len(TEXT) + 9)


def test_a_gzip_member_with_name_and_time() -> None:
    packed = bytes.fromhex("1f8b08080000000000ff66696c6500") + gzip.compress(TEXT)[10:]
    assert decompress(Codec.GZIP, packed, MIB) == TEXT


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_any_kind(linked: bool, checksum: bool) -> None:
    compressor = cramjam.lz4.Compressor(content_checksum=checksum, block_linked=linked)
    compressor.compress(TEXT)
    assert decompress(Codec.LZ4, bytes(compressor.finish()), MIB) == TEXT


def test_lz4_blocks_are_written_independent() -> None:
    """Kafka's Java client refuses linked blocks. The flag is bit 5 of the fifth byte."""
    assert compress(Codec.LZ4, TEXT)[4] & 0x20


def test_snappy_is_written_as_the_java_client_does() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == bytes.fromhex("82534e415050590000000001") + b"\0\0\0\1"
    (size,) = struct.unpack_from(">i", packed, 16)
    block = bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size]))
    assert block == TEXT[: 32 * 1024]


def test_snappy_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), MIB) == TEXT


def test_snappy_streams_one_after_the_other() -> None:
    packed = compress(Codec.SNAPPY, TEXT) + compress(Codec.SNAPPY, b"more")
    assert decompress(Codec.SNAPPY, packed, MIB) == TEXT + b"more"


def test_snappy_blocks_of_another_size_and_versions_in_the_wrong_order() -> None:
    packed = bytearray(aiokafka_codec.snappy_encode(TEXT, xerial_blocksize=1_000))
    packed[8:16] = struct.pack("<ii", 1, 1)
    assert decompress(Codec.SNAPPY, packed, MIB) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_anywhere_is_damage(codec: Codec) -> None:
    packed = compress(codec, TEXT[:400])
    header_only = 16 if codec is Codec.SNAPPY else -1  # No blocks: an empty stream.
    for size in range(len(packed)):
        if size != header_only:
            with pytest.raises(InvalidBatch, match="damaged"):
                decompress(codec, packed[:size], MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_anything_after_the_end_is_damage(codec: Codec) -> None:
    with pytest.raises(InvalidBatch, match="damaged"):
        decompress(codec, compress(codec, TEXT) + b"garbage", MIB)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"\0", b"garbage " * 10, b"\xff" * 64])
def test_garbage_is_damage(codec: Codec, data: bytes) -> None:
    if (codec, data) == (Codec.SNAPPY, b"\0"):
        assert decompress(codec, data, MIB) == b""  # A raw block of no bytes.
        return
    with pytest.raises(InvalidBatch, match="damaged"):
        decompress(codec, data, MIB)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 100, 2**31 - 1])
def test_snappy_blocks_of_a_length_that_cannot_be(size: int) -> None:
    packed = bytearray(compress(Codec.SNAPPY, b"hello"))
    struct.pack_into(">i", packed, 16, size)
    with pytest.raises(InvalidBatch, match="damaged"):
        decompress(Codec.SNAPPY, packed, MIB)


def test_snappy_that_announces_four_gigabytes() -> None:
    with pytest.raises(InvalidBatch, match="more than"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0fabc", MIB)


def test_snappy_blocks_are_bounded_together() -> None:
    packed = compress(Codec.SNAPPY, bytes(100 * 32 * 1024))
    with pytest.raises(InvalidBatch, match="more than"):
        decompress(Codec.SNAPPY, packed, 99 * 32 * 1024)


BOMBS = r"""
import resource, struct, sys, time
import cramjam
from entrepot.core.compression import Codec, decompress
from entrepot.core.errors import InvalidBatch

MIB = 1024 * 1024
BOUND = 16 * MIB

def block(kind, last):  # 128 KiB of the same byte in four.
    return struct.pack("<I", 131072 << 3 | kind << 1 | last)[:3] + b"x"

zeros = bytes(512 * MIB)
bombs = {
    Codec.GZIP: bytes(cramjam.gzip.compress(zeros, level=9)),
    Codec.LZ4: bytes(cramjam.lz4.compress(zeros, level=1)),
    # A window of 128 MiB, the most zstd allows, and 1 GiB in 32 KiB.
    Codec.ZSTD: b"\x28\xb5\x2f\xfd\x00\x88" + block(1, 0) * 8191 + block(1, 1),
    Codec.SNAPPY: bytes(cramjam.snappy.compress_raw(zeros)),
}
del zeros

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

for codec, bomb in bombs.items():
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before, started = resident(), time.process_time()
    try:
        decompress(codec, bomb, BOUND)
    except InvalidBatch as error:
        assert "more than" in str(error), error
    else:
        raise AssertionError(f"{codec.name} went off")
    seconds, grown = time.process_time() - started, resident() - before
    assert grown < 3 * BOUND, (codec.name, grown / MIB)
    assert seconds < 2, (codec.name, seconds)
    print(codec.name, grown // MIB, "MiB", round(seconds, 3), "s")
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's /proc")
def test_a_bomb_is_refused_with_bounded_memory_and_time() -> None:
    """In a process of its own, because the memory is the codecs', not Python's."""
    run = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 4
