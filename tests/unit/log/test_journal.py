"""The commit journal's files: entries, generations, and what a crash leaves of them."""

from random import Random
from uuid import UUID

import pytest
from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.names import PartitionId
from entrepot.log.journal import Journal, JournalEntry, read_journals, remove_journals
from sim.disk import SimDisk

A = PartitionId(UUID(int=1), 7)
B = PartitionId(UUID(int=2), 0)
FULL = bytes(limits.JOURNAL_BYTES_MAX)


def content(entry: JournalEntry) -> tuple[PartitionId, int, bytes]:
    return entry.partition, entry.offset_first, entry.payload()


def files(disk: SimDisk) -> list[str]:
    return [f"journal/{name}" for name in disk.names("journal")]


def test_a_round_trip() -> None:
    disk = SimDisk(Random(0))
    journal = Journal(disk, 0)
    journal.write([(A, 10, 12, b"first"), (B, 0, 1, b"")])
    journal.write([(A, 12, 13, b"second" * 1_000)])
    assert [content(entry) for entry in read_journals(disk)] == [
        (A, 10, b"first"),
        (B, 0, b""),
        (A, 12, b"second" * 1_000),
    ]
    assert journal.covered == {A: 13, B: 1}


def test_without_files_there_is_nothing() -> None:
    assert read_journals(SimDisk(Random(0))) == []


def test_the_bytes_of_an_entry() -> None:
    """As docs/formats/journal.md has them."""
    disk = SimDisk(Random(0))
    file, _ = Journal(disk, 4).write([(A, 10, 12, b"batches")])
    rest = b"\0\0\0\7" + bytes(7) + b"\5" + A.topic.bytes + b"\0\0\0\7" + bytes(7) + b"\x0a"
    rest += b"batches"
    assert file.read(0, 1_000) == crc32c(rest).to_bytes(4, "big") + rest


def test_the_name_is_synced_with_the_first_entry_only() -> None:
    journal = Journal(SimDisk(Random(0)), 0)
    assert journal.write([(A, 0, 1, b"x")])[1] == ("journal", "")
    assert journal.write([(A, 1, 2, b"y")])[1] == ()


def test_a_full_file_hands_over_to_the_other() -> None:
    disk = SimDisk(Random(0))
    journal = Journal(disk, 0)
    assert not journal.is_full
    journal.write([(A, 0, 5, FULL)])
    assert journal.is_full
    assert journal.switch() == {A: 5}
    assert not journal.is_full
    assert journal.write([(B, 0, 1, b"x")])[1] == ("journal", "")
    assert len(files(disk)) == 2
    assert [entry.partition for entry in read_journals(disk)] == [A, B]


def test_a_file_still_needed_is_not_used_again() -> None:
    journal = Journal(SimDisk(Random(0)), 0)
    journal.write([(A, 0, 5, b"x")])
    journal.switch()
    journal.write([(A, 5, 6, b"x")])
    with pytest.raises(AssertionError, match="still needed"):
        journal.switch()


def test_what_an_earlier_use_left_behind_is_not_read() -> None:
    disk = SimDisk(Random(0))
    journal = Journal(disk, 0)
    journal.write([(A, number, number + 1, b"old") for number in range(4)])
    journal.switch().clear()
    journal.write([(B, 0, 1, b"other")])
    journal.switch().clear()
    journal.write([(A, 4, 5, b"new")])  # As long as the first old entry, which it overwrites.
    assert [content(entry) for entry in read_journals(disk)] == [
        (B, 0, b"other"),
        (A, 4, b"new"),
    ]


def test_entries_come_in_the_order_they_were_written() -> None:
    disk = SimDisk(Random(0))
    journal = Journal(disk, 0)
    expected: list[int] = []
    for number in range(5):
        journal.write([(A, 2 * number, 2 * number + 1, b"x")])
        journal.write([(A, 2 * number + 1, 2 * number + 2, b"x")])
        expected = [*expected[-2:], 2 * number, 2 * number + 1]
        assert [entry.offset_first for entry in read_journals(disk)] == expected
        journal._covered[1 - journal._current].clear()
        journal.switch()


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_torn_entry_ends_the_file(damage: str) -> None:
    disk = SimDisk(Random(0))
    journal = Journal(disk, 0)
    file, _ = journal.write([(A, 0, 1, b"one")])
    size_first = file.size()
    journal.write([(A, 1, 2, b"two")])
    whole = file.read(0, 1_000)
    for position in range(size_first, len(whole)):
        torn = bytearray(whole)
        if damage == "cut":
            del torn[position:]
        else:
            torn[position] ^= 0x20
        file.truncate(0)
        file.write(0, [torn])
        assert [entry.offset_first for entry in read_journals(disk)] == [0]


def test_a_later_run_takes_other_files() -> None:
    disk = SimDisk(Random(0))
    Journal(disk, 0).write([(A, 0, 1, b"x")])
    (entry,) = read_journals(disk)
    Journal(disk, entry.generation).write([(A, 1, 2, b"y")])
    assert [each.payload() for each in read_journals(disk)] == [b"x", b"y"]


def test_what_a_stopped_partition_needs_is_kept() -> None:
    disk = SimDisk(Random(0))
    journal = Journal(disk, 0)
    journal.write([(A, 0, 1, b"x"), (B, 0, 1, b"x")])
    journal.switch()
    journal.write([(B, 1, 2, b"y")])
    remove_journals(disk, needed=[A])
    assert [content(entry) for entry in read_journals(disk)] == [(A, 0, b"x"), (B, 0, b"x")]
    remove_journals(disk)
    assert files(disk) == []
