"""Idempotent producers: repeats are recognised, gaps refused, and it all survives."""

import asyncio

import pytest

from entrepot.core import limits
from entrepot.core.batch import BatchHeader, read_header
from entrepot.core.errors import DuplicateSequence, FencedProducer, OutOfOrderSequence
from entrepot.log.producers import Producers
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import make, simulated

LAST = 2**31 - 1  # The last sequence number before 0 comes again.


def header(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    values = [b"x"] * count
    return read_header(make(*values, producer=producer, epoch=epoch, sequence=sequence))


def after(*headers: BatchHeader) -> Producers:
    """What is known after these batches, appended one after the other from offset 100 on."""
    producers, offset = Producers(), 100
    for each in headers:
        assert producers.check(each) is None
        producers.note(each, offset)
        offset += each.count
    return producers


# --- sequences


def test_the_next_batch_is_new() -> None:
    producers = after(header(0, 3), header(3), header(4, 10))
    assert producers.check(header(14)) is None


def test_a_repeated_batch_gets_the_first_answer() -> None:
    producers = after(header(0, 3), header(3), header(4, 10))
    for sequence, count, offset in ((0, 3, 100), (3, 1, 103), (4, 10, 104)):
        written = producers.check(header(sequence, count))
        assert written is not None
        assert written.offset_first == offset


def test_a_gap_is_refused() -> None:
    producers = after(header(0, 3))
    for sequence in (4, 5, 1_000, LAST):
        with pytest.raises(OutOfOrderSequence, match="does not follow 2"):
            producers.check(header(sequence))


def test_a_gap_after_a_marker_alone_is_refused() -> None:
    """A marker says which epoch a producer has, and no sequence."""
    producers = Producers()
    producers.note(header(0)._replace(sequence_first=-1), 100)
    assert producers.check(header(0)) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(5))


def test_any_first_batch_is_good() -> None:
    """The producer may have been forgotten: retention, or too many of them."""
    after(header(0))
    after(header(12_345))


def test_five_batches_are_remembered() -> None:
    producers = after(*(header(sequence) for sequence in range(8)))
    for sequence in (3, 4, 5, 6, 7):
        assert producers.check(header(sequence)) is not None
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(2))
    assert limits.PRODUCER_BATCHES_REMEMBERED == 5


def test_numbers_we_have_in_other_batches_are_duplicates() -> None:
    """Certainly written, but nobody knows the answer of the first time."""
    producers = after(header(10, 5), header(15, 5))
    for sequence, count in ((10, 3), (12, 4), (10, 10), (19, 1)):
        with pytest.raises(DuplicateSequence):
            producers.check(header(sequence, count))


def test_numbers_that_may_never_have_come_are_not_duplicates() -> None:
    """A client takes a duplicate for a success: to call a lost batch one is to lose it."""
    producers = after(header(10, 5))
    for sequence, count in ((0, 1), (5, 5), (8, 4), (8, 7), (9, 6)):
        with pytest.raises(OutOfOrderSequence):
            producers.check(header(sequence, count))


def test_sequences_wrap_around() -> None:
    producers = after(header(LAST - 4, 3), header(LAST - 1, 2), header(0, 2))
    assert producers.check(header(2)) is None
    assert producers.check(header(0, 2)) is not None
    assert producers.check(header(LAST - 1, 2)) is not None
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(3))


def test_a_batch_across_the_wrap() -> None:
    producers = after(header(LAST - 1, 5))
    assert producers.check(header(3)) is None
    assert producers.check(header(LAST - 1, 5)) is not None
    with pytest.raises(DuplicateSequence):
        producers.check(header(LAST, 2))


def test_a_gap_across_the_wrap_is_not_a_duplicate() -> None:
    producers = after(header(LAST - 10, 5))
    for sequence in (0, 1, 100, LAST):
        with pytest.raises(OutOfOrderSequence):
            producers.check(header(sequence))


# --- epochs


def test_a_new_epoch_starts_at_zero() -> None:
    producers = after(header(0), header(1))
    with pytest.raises(OutOfOrderSequence, match="starts at sequence 0"):
        producers.check(header(2, epoch=1))
    assert producers.check(header(0, epoch=1)) is None


def test_an_old_epoch_is_fenced() -> None:
    producers = after(header(0), header(0, epoch=3))
    for sequence in (0, 1):
        with pytest.raises(FencedProducer, match="epoch 3"):
            producers.check(header(sequence, epoch=2))
    assert producers.check(header(1, epoch=3)) is None


def test_a_new_epoch_forgets_the_old_batches() -> None:
    producers = after(header(0, epoch=0), header(0, epoch=1))
    written = producers.check(header(0, epoch=1))
    assert written is not None
    assert written.offset_first == 101


# --- memory


def test_others_are_not_noted() -> None:
    producers = Producers()
    producers.note(read_header(make(b"x")), 0)
    assert len(producers) == 0


def test_the_one_who_wrote_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_PER_PARTITION_MAX", 2)
    producers = after(header(0, producer=1), header(0, producer=2), header(1, producer=1))
    producers.note(header(0, producer=3), 103)
    assert len(producers) == 2
    assert producers.check(header(55, producer=2)) is None, "unknown again"
    assert producers.check(header(1, producer=1)) is not None


def test_a_snapshot_round_trip() -> None:
    producers = after(
        *(header(sequence, 2) for sequence in range(0, 14, 2)), header(5, producer=9, epoch=2)
    )
    restored = Producers.restore(producers.snapshot())
    assert restored.snapshot() == producers.snapshot()
    assert restored.check(header(14, 2)) is None
    written = restored.check(header(12, 2))
    assert written is not None
    assert written.offset_first == 112
    with pytest.raises(FencedProducer):
        restored.check(header(6, producer=9, epoch=1))


def test_nothing_known_is_an_empty_snapshot() -> None:
    assert Producers().snapshot() == b""
    assert len(Producers.restore(b"")) == 0


# --- across lives


async def check_known(bed: Bed) -> None:
    """Batch 3 was the last of producer 7; a repeat is recognised and a gap refused."""
    repeated = bed.append("t", make(b"3", producer=7, sequence=3))
    assert repeated.offset_first == 3
    with pytest.raises(OutOfOrderSequence):
        bed.append("t", make(b"5", producer=7, sequence=5))
    with pytest.raises(FencedProducer):
        bed.append("t", make(b"0", producer=8, epoch=0, sequence=1))
    assert bed.served_partition("t").partition.offset_end == 5
    await bed.commit("t", make(b"4", producer=7, sequence=4))


async def fill(bed: Bed, **settings: str) -> None:
    await bed.start()
    await bed.create("t", 1, **settings)
    for sequence in range(4):
        await bed.commit("t", make(b"%d" % sequence, producer=7, sequence=sequence))
    await bed.commit("t", make(b"other", producer=8, epoch=1, sequence=0))


@pytest.mark.parametrize("segment_bytes", ["1048576", "14", "150"])
@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
@simulated
async def test_what_is_known_survives(bed: Bed, end: str, segment_bytes: str) -> None:
    await fill(bed, segment_bytes=segment_bytes)
    if end == "stop":
        await bed.stop()
    else:
        getattr(bed, end)()
    await bed.start()
    await check_known(bed)


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
@simulated
async def test_what_is_known_survives_its_batches(bed: Bed, end: str) -> None:
    """Retention took every batch; the view saved with the newest segment still knows."""
    await fill(bed, segment_bytes="150", retention_ms="1000", file_delete_delay_ms="0")
    await asyncio.sleep(120)
    assert bed.values("t") == []
    assert len(bed.served_partition("t").partition.segments) == 1
    if end == "stop":
        await bed.stop()
    else:
        getattr(bed, end)()
    await bed.start()
    await check_known(bed)


@simulated
async def test_a_repeat_after_any_power_loss(bed: Bed, seed: int) -> None:
    """The client sends again what was not answered: all is there once and in order."""
    await bed.start()
    await bed.create("t", segment_bytes="400")
    sequence, life = 0, 0
    while sequence < 30:
        unanswered = [
            make(b"%d" % each, producer=7, sequence=each)
            for each in range(sequence, min(sequence + 5, 30))
        ]
        for data in unanswered:
            bed.append("t", data)
            await bed.sleep_up_to(0.004)
        sequence = bed.served_partition("t").partition.high_watermark
        life += 1
        if life % 3 == 0:
            bed.kill()
            await bed.start()
        elif life % 2 == 0:
            bed.crash()
            await bed.start()
        else:
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.1)
    assert bed.values("t") == [b"%d" % each for each in range(30)]


@simulated
async def test_a_damaged_view_is_passed_over(bed: Bed) -> None:
    await fill(bed, segment_bytes="150")
    bed.kill()
    views = [name for name in bed.disk.names("partitions/t-0") if name.endswith(".view")]
    bed.flip(f"partitions/t-0/{views[-1]}", 8)
    await bed.start()
    await check_known(bed)


@simulated
async def test_a_fold_that_meets_damage_refuses_one_partition(bed: Bed) -> None:
    """A sealed segment is not walked by recovery, but without views it is read for the fold."""
    await fill(bed, segment_bytes="150")
    await bed.create("other")
    await bed.commit("other", make(b"x"))
    bed.kill()
    names = bed.disk.names("partitions/t-0")
    for name in names:
        if name.endswith(".view"):
            bed.disk.remove(f"partitions/t-0/{name}")
    bed.flip(f"partitions/t-0/{0:020d}.log", 8)
    await bed.start()
    assert bed.served_partition("t").partition.refused
    assert bed.values("other") == [b"x"]
