"""Segments and their index: look-ups by offset and by time, and the seal on disk."""

from random import Random

import pytest
from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.errors import Corruption
from entrepot.log.segment import GLANCE_BYTES, Glance, Index, Segment, glances, read_seal
from sim.disk import SimDisk, SimFile
from tests.unit.log.bed import make

DIRECTORY = "partitions/t-0"
BASE = 5_000_000_000  # Offsets do not fit in 32 bits; deltas do.


def time_of(number: int) -> int:
    return 1_000 + number if number % 4 == 0 else 500


def filled(count: int = 100, size: int = 5_000) -> Segment:
    """A segment of batches of two records; each fourth is later than all before it."""
    segment = Segment(DIRECTORY, BASE, opened_ms=77)
    for number in range(count):
        first = BASE + 2 * number
        segment.note(Glance(number * size, first, size, first + 1, time_of(number)))
    return segment


def disk_with(seal: bytes | bytearray) -> SimDisk:
    disk = SimDisk(Random(0))
    disk.make_directory(DIRECTORY)
    disk.open(f"{DIRECTORY}/{BASE:020d}.index", create=True).write(0, [seal])
    return disk


def log_file(*batches: bytes) -> SimFile:
    disk = SimDisk(Random(0))
    file = disk.open("x.log", create=True)
    file.write(0, [b"".join(batches)])
    return file


# --- the index


def test_an_index_is_sparse() -> None:
    index = filled().index
    assert index is not None
    distances = {b - a for a, b in zip(index.positions, index.positions[1:], strict=False)}
    assert distances == {20_000}  # The first batch that begins 16 KiB or more after the last.
    assert limits.INDEX_INTERVAL_BYTES == 16_384


def test_a_look_up_by_offset_begins_at_or_before_the_batch() -> None:
    index = filled().index
    assert index is not None
    for number in range(100):
        for offset in (BASE + 2 * number, BASE + 2 * number + 1):
            position = index.position_for_offset(offset)
            assert position <= number * 5_000 < position + 20_000


def test_a_look_up_before_the_first_offset_begins_at_the_start() -> None:
    index = Index()
    assert index.position_for_offset(7) == index.position_for_time(7) == 0
    index.note(10, 0, -1)
    assert index.position_for_offset(7) == 0


def test_a_look_up_by_time_skips_only_what_is_earlier() -> None:
    segment = filled()
    assert segment.index is not None
    for time_ms in (0, 500, 501, 1_000, 1_001, 1_050, 1_096):
        position = segment.index.position_for_time(time_ms)
        first = next(number for number in range(100) if time_of(number) >= time_ms)
        assert position <= first * 5_000
    assert segment.index.position_for_time(1_050) > 0
    assert segment.index.position_for_time(9_999) == segment.index.positions[-1]


def test_a_segment_knows_its_bounds_and_its_latest_batch() -> None:
    segment = filled()
    assert (segment.offset_base, segment.offset_end, segment.size) == (BASE, BASE + 200, 500_000)
    assert (segment.timestamp_max, segment.timestamp_max_offset) == (1_096, BASE + 192)


def test_of_equal_times_the_first_batch_counts() -> None:
    segment = Segment(DIRECTORY, 0, 0)
    segment.note(Glance(0, 0, 100, 0, 7))
    segment.note(Glance(100, 1, 100, 1, 7))
    assert segment.timestamp_max_offset == 0


def test_a_batch_goes_only_to_the_end() -> None:
    with pytest.raises(AssertionError):
        Segment(DIRECTORY, 0, 0).note(Glance(100, 0, 100, 0, 0))


# --- the seal


def test_a_seal_round_trip() -> None:
    segment = filled()
    found = read_seal(disk_with(segment.seal_bytes()), DIRECTORY, BASE)
    assert found is not None
    assert found.sealed
    assert found.index is not None
    assert segment.index is not None
    for name in ("offset_base", "offset_end", "size", "opened_ms", "path"):
        assert getattr(found, name) == getattr(segment, name)
    assert found.timestamp_max == segment.timestamp_max
    assert found.timestamp_max_offset == segment.timestamp_max_offset
    for column in ("offsets", "positions", "timestamps"):
        assert getattr(found.index, column) == getattr(segment.index, column)


def test_the_bytes_of_a_seal() -> None:
    """As docs/formats/index.md has them."""
    segment = Segment(DIRECTORY, 0x0102, opened_ms=9)
    segment.note(Glance(0, 0x0102, 0x50, 0x0103, 6))
    head = (
        b"eIDX" + b"\0\1" + b"\0\0" + bytes(6) + b"\1\2"  # Magic, version, padding, base.
        + b"\0\0\0\x50" + b"\0\0\0\1"  # Size, entries.
        + bytes(6) + b"\1\4" + bytes(7) + b"\6" + bytes(6) + b"\1\2" + bytes(7) + b"\x09"
    )  # fmt: skip
    entry = bytes(4) + bytes(4) + b"\xff" * 8  # No offset nor byte after the start; no time yet.
    expected = head + entry
    assert segment.seal_bytes() == expected + crc32c(expected).to_bytes(4, "big")


def test_without_a_seal_there_is_none() -> None:
    assert read_seal(SimDisk(Random(0)), DIRECTORY, BASE) is None


def test_a_damaged_seal_is_no_seal() -> None:
    whole = filled(8).seal_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        assert read_seal(disk_with(damaged), DIRECTORY, BASE) is None
    for size in range(len(whole)):
        assert read_seal(disk_with(whole[:size]), DIRECTORY, BASE) is None


def test_a_seal_of_another_segment_is_no_seal() -> None:
    other = Segment(DIRECTORY, BASE + 1, 0)
    assert read_seal(disk_with(other.seal_bytes()), DIRECTORY, BASE) is None


# --- the walk over headers


def test_glances_see_each_batch() -> None:
    batches = [make(b"a", time_ms=5), make(b"b" * 50_000, b"c", time_ms=7), make(b"d", time_ms=6)]
    file = log_file(*batches)
    found = list(glances(file, 0, file.size()))
    assert [glance.size for glance in found] == [len(each) for each in batches]
    assert [glance.position for glance in found] == [
        0,
        len(batches[0]),
        len(batches[0]) + len(batches[1]),
    ]
    assert [glance.timestamp_max for glance in found] == [5, 7, 6]
    assert found[1].offset_last - found[1].offset_first == 1


def test_glances_start_at_any_batch() -> None:
    batches = [make(b"a"), make(b"b"), make(b"c")]
    file = log_file(*batches)
    found = list(glances(file, len(batches[0]), file.size()))
    assert [glance.position for glance in found] == [len(batches[0]), 2 * len(batches[0])]


def test_glances_refuse_what_cannot_be_a_batch() -> None:
    good = make(b"a")
    too_short = good[:8] + (48).to_bytes(4, "big") + good[12:]
    negative = good[:8] + b"\xff" * 4 + good[12:]
    no_offsets = good[:23] + b"\xff" * 4 + good[27:]
    for bad in (too_short, negative, no_offsets, bytes(100), good[:-1], good[: GLANCE_BYTES - 1]):
        file = log_file(good, bad)
        walk = glances(file, 0, file.size())
        assert next(walk).size == len(good)
        with pytest.raises(Corruption, match=f"byte {len(good)}"):
            next(walk)


def test_glances_stop_at_the_end_they_are_given() -> None:
    good = make(b"a")
    file = log_file(good, good)
    assert len(list(glances(file, 0, len(good)))) == 1
    assert list(glances(file, len(good), len(good))) == []


class CountingFile:
    """Counts what is read of it."""

    path = "counted"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.sizes: list[int] = []

    def read(self, position: int, size: int) -> bytes:
        data = self._data[position : position + size]
        self.sizes.append(len(data))
        return data


def test_looking_at_headers_reads_little_of_large_batches_and_seldom_of_small_ones() -> None:
    large = make(bytes(20_000)) * 5
    file = CountingFile(large)
    assert len(list(glances(file, 0, len(large)))) == 5  # type: ignore[arg-type]
    assert sum(file.sizes) < 5_000
    small = make(b"small") * 500
    file = CountingFile(small)
    assert len(list(glances(file, 0, len(small)))) == 500  # type: ignore[arg-type]
    assert len(file.sizes) < 6
