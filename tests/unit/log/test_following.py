"""A log that follows another: its offsets, its epochs, and a watermark that waits."""

import pytest

from entrepot.core import limits
from entrepot.core.errors import InvalidBatch, StaleEpoch, StorageError
from entrepot.log.epochs import EpochEnd
from entrepot.log.journal import read_journals
from entrepot.log.partition import Partition
from entrepot.log.policy import Durability, Policy
from tests.unit.log.bed import Bed, headed, identity, make, simulated
from tests.unit.log.replicas import content, copy, lead

MANY = [f"t{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 1)]


def stamped(value: bytes, offset: int, epoch: int) -> bytes:
    data = bytearray(make(value))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


@simulated
async def test_alone_what_is_durable_is_visible(bed: Bed) -> None:
    await bed.start("t")
    bed.append("t", make(b"a"))
    assert (bed["t"].offset_durable, bed["t"].high_watermark) == (0, 0)
    await bed.committed()
    assert (bed["t"].offset_durable, bed["t"].high_watermark) == (1, 1)
    assert bed["t"].epochs.starts == [(0, 0)]
    assert "epochs" not in bed.names("t")


@pytest.mark.parametrize("durability", list(Durability))
def test_replicated_the_watermark_waits(durability: Durability) -> None:
    @simulated
    async def story(bed: Bed) -> None:
        await bed.start("t", policy=Policy(durability=durability))
        partition, told, waited = bed["t"], list[int](), list[StorageError | None]()
        partition.replicate(0)
        partition.on_durable = lambda: told.append(partition.offset_durable)
        bed.append("t", make(b"a"), make(b"b"))
        bed.append("t", make(b"c"))
        partition.when_committed(2, waited.append)
        await bed.committed()
        assert told[-1] == partition.offset_durable == 3
        assert (partition.high_watermark, bed.values("t"), waited) == (0, [], [])
        assert partition.read(0, 1, to_end=True) is not None
        bed.call(partition.show, 2)
        assert (partition.high_watermark, bed.values("t")) == (2, [b"a", b"b"])
        assert waited == [None]
        bed.call(partition.show, 1)  # It never goes back,
        assert partition.high_watermark == 2
        bed.call(partition.show, 10)  # nor beyond what is here.
        assert partition.high_watermark == 3
        assert bed.values("t") == [b"a", b"b", b"c"]

    story()


@simulated
async def test_a_follower_that_lags_makes_nobody_write_twice(bed: Bed) -> None:
    await bed.start(*MANY)
    for name in MANY:
        bed[name].replicate(0)
    for value in (b"one", b"two", b"three"):
        for name in MANY:
            bed.append(name, make(value))
        await bed.committed()
    assert bed.log.committer.rounds_journaled == 3
    entries = [each for each in read_journals(bed.disk) if each.partition == identity("t0")]
    assert [each.offset_first for each in entries] == [0, 1, 2]


@simulated
async def test_a_copy_has_the_bytes_of_its_leader(bed: Bed) -> None:
    await bed.start("a", "b", policy=Policy(segment_bytes=400))
    lead(bed, "a", 2, *(b"%d" % number for number in range(20)))
    lead(bed, "a", 5, b"x", b"y")
    copy(bed, "a", "b", 100)
    await bed.committed()
    assert content(bed["b"]) == content(bed["a"])
    assert bed["b"].epochs.starts == bed["a"].epochs.starts == [(2, 0), (5, 40)]
    assert bed["b"].leader_epoch == 5
    assert bed["b"].end_of_epoch(3) == EpochEnd(2, 40)
    assert bed["b"].high_watermark == 44


@simulated
async def test_what_does_not_follow_is_refused(bed: Bed) -> None:
    await bed.start("t")
    partition: Partition = bed["t"]

    def add(*batches: bytes) -> None:
        partition.append(headed(*batches), is_stamped=True)

    add(stamped(b"a", 0, 3))
    for offset in (0, 2):
        with pytest.raises(InvalidBatch, match="should follow"):
            add(stamped(b"b", offset, 3))
    with pytest.raises(StaleEpoch):
        add(stamped(b"b", 1, 2))
    with pytest.raises(InvalidBatch):  # All or none.
        add(stamped(b"b", 1, 3), stamped(b"c", 3, 3))
    assert partition.offset_end == 1
    with pytest.raises(StaleEpoch):
        partition.begin_epoch(2)
    partition.begin_epoch(3)
    partition.begin_epoch(4)
    partition.append(headed(make(b"d")))
    assert partition.epochs.starts == [(3, 0), (4, 1)]


@pytest.mark.parametrize("how", ["kill", "crash", "stop"])
def test_epochs_survive(how: str) -> None:
    @simulated
    async def story(bed: Bed) -> None:
        names, policy = [*MANY, "t"], Policy(segment_bytes=400)
        await bed.start(*names, policy=policy)
        for epoch in (1, 4, 9):
            lead(bed, "t", epoch, *(b"%d" % number for number in range(8)))
            await bed.committed()
        lead(bed, "t", 10, b"last")
        for name in MANY:  # So that it goes through the journal.
            bed.append(name, make(b""))
        await bed.committed()
        before = content(bed["t"])
        await bed.stop() if how == "stop" else getattr(bed, how)()
        await bed.start(*names, policy=policy)
        assert content(bed["t"]) == before
        assert bed["t"].epochs.starts == [(1, 0), (4, 16), (9, 32), (10, 48)]
        assert bed["t"].leader_epoch == 10

    story()
