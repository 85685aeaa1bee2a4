"""Which epoch begins where, and what two replicas find out from that."""

import pytest

from entrepot.core import limits
from entrepot.core.errors import Corruption
from entrepot.log.epochs import UNKNOWN_END, EpochEnd, EpochIndex, read_epochs, save_epochs
from tests.unit.log.bed import Life, simulated


def test_an_epoch_ends_where_the_next_begins() -> None:
    index = EpochIndex([(2, 10), (5, 20), (6, 30)])
    assert index.end_of(2, 7, 40) == EpochEnd(2, 20)
    assert index.end_of(5, 7, 40) == EpochEnd(5, 30)
    assert index.end_of(6, 7, 40) == EpochEnd(6, 40)  # The last one with batches.
    assert index.end_of(7, 7, 40) == EpochEnd(7, 40)  # The present one, without any.
    assert index.end_of(3, 7, 40) == EpochEnd(2, 20)  # Without batches: the one before it.
    assert index.end_of(1, 7, 40) == EpochEnd(1, 10)  # Before all that is remembered.
    assert index.end_of(8, 7, 40) == UNKNOWN_END
    assert index.end_of(-1, 7, 40) == UNKNOWN_END
    assert EpochIndex().end_of(0, 0, 0) == EpochEnd(0, 0)
    assert EpochIndex().end_of(3, 5, 0) == EpochEnd(3, 0)


def test_where_to_cut() -> None:
    index = EpochIndex([(2, 10), (5, 20), (6, 30)])
    assert index.cut_for(EpochEnd(6, 35), 40) == (35, True)
    assert index.cut_for(EpochEnd(6, 50), 40) == (40, True)
    assert index.cut_for(EpochEnd(5, 25), 40) == (25, True)  # It has nothing of our last one.
    assert index.cut_for(EpochEnd(5, 35), 40) == (30, True)
    # An epoch that we do not have: the leader is asked again about the last one before it.
    assert index.cut_for(EpochEnd(4, 35), 40) == (20, False)
    assert index.cut_for(EpochEnd(1, 12), 40) == (10, True)  # All of ours are later ones.
    assert index.cut_for(EpochEnd(1, 5), 40) == (5, True)


def test_noting_cutting_and_forgetting() -> None:
    index = EpochIndex()
    assert index.last == -1
    for epoch, offset in ((0, 0), (0, 5), (3, 7), (3, 8), (2, 9), (4, 12)):
        index.note(epoch, offset)
    assert index.starts == [(0, 0), (3, 7), (4, 12)]
    index.cut(13)
    assert index.last == 4
    index.cut(12)
    assert index.starts == [(0, 0), (3, 7)]
    assert index.last == 3
    index.forget_before(6)
    assert index.starts == [(0, 0), (3, 7)]
    index.forget_before(7)
    assert index.starts == [(3, 7)]
    index.forget_before(100)
    assert index.starts == [(3, 7)]
    index.cut(0)
    assert (index.starts, index.last) == ([], -1)


def test_a_partition_that_knows_epoch_0_only_needs_no_file() -> None:
    index = EpochIndex()
    index.note(0, 0)
    assert index.is_saved
    index.note(1, 5)
    assert not index.is_saved
    later = EpochIndex()
    later.note(1, 0)
    assert not later.is_saved


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    index = EpochIndex()
    for epoch in range(limits.EPOCHS_PER_PARTITION_MAX + 5):
        index.note(epoch, 10 * epoch)
    assert len(index.starts) == limits.EPOCHS_PER_PARTITION_MAX
    assert index.end_of(2, index.last, 10**6) == EpochEnd(2, 50)


@simulated
async def test_the_file(bed: Life) -> None:
    bed.disk.make_directory("p")
    assert read_epochs(bed.disk, "p").starts == []
    index = EpochIndex()
    index.note(3, 2)
    index.note(300, 2**40)
    await save_epochs(bed.disk, "p", index)
    assert index.is_saved
    bed.crash()
    # The checksum, then MessagePack: [[3, 2], [300, 2 ** 40]].
    content = bed.read_file("p/epochs")
    assert content[4:].hex() == "9292030292cd012ccf0000010000000000"
    assert read_epochs(bed.disk, "p").starts == [(3, 2), (300, 2**40)]
    bed.flip("p/epochs", 6)
    with pytest.raises(Corruption, match="p/epochs"):
        read_epochs(bed.disk, "p")
