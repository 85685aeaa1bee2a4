"""Small reads of a partition: what follows the last read, and the newest batch."""

import pytest

from entrepot.core import limits
from entrepot.log.policy import Durability, Policy
from entrepot.log.segment import Segment
from tests.unit.log.bed import Bed, make, simulated

ONE = len(make(b"x"))  # Bytes of a batch with one small record.
OS = Policy(durability=Durability.OS)


@simulated
async def test_what_follows_the_last_read_is_given_as_bytes(bed: Bed) -> None:
    await bed.start("t", policy=OS)
    bed.append("t", make(b"a"), make(b"b"), make(b"c"))
    bed.append("t", make(b"d"))
    partition = bed["t"]
    stored = bed.read_file(partition.segments[0].path)
    assert partition.read_next(0, ONE) is None, "nothing was read before it"
    assert partition.read(0, ONE) is not None
    assert partition.read_next(1, 2 * ONE) == stored[ONE : 3 * ONE]
    assert partition.read_next(1, ONE) is None, "the reader has gone on"
    assert partition.read_next(2, ONE) == stored[2 * ONE : 3 * ONE]
    assert partition.read_next(3, ONE - 1) is None, "its first batch is not whole"
    assert partition.read_next(3, 100 * ONE) == stored[3 * ONE :]
    assert partition.read_next(4, 100 * ONE) is None, "the end"


@simulated
async def test_much_is_not_given_as_bytes(bed: Bed) -> None:
    await bed.start("t", policy=OS)
    bed.append("t", make(b"a"), make(b"x" * limits.SENDFILE_BYTES_MIN))
    assert bed["t"].read(0, ONE) is not None
    assert bed["t"].read_next(1, limits.MIB) is None


@simulated
async def test_bytes_are_given_below_the_watermark_only(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    bed.append("t", make(b"c"))
    partition = bed["t"]
    assert partition.read(0, ONE) is not None
    found = partition.read_next(1, 100 * ONE)
    assert found is not None
    assert len(found) == ONE
    assert partition.read_next(2, 100 * ONE) is None


@simulated
async def test_a_segment_that_was_replaced_is_not_read_on(bed: Bed) -> None:
    await bed.start("t", policy=OS)
    bed.append("t", make(b"a"), make(b"b"))
    partition = bed["t"]
    bed["t"].roll()
    assert partition.read(0, ONE) is not None
    partition.exchange(partition.segments[:1], Segment(partition.directory, 0, 0))
    assert partition.read_next(1, ONE) is None


@pytest.mark.parametrize("durability", Durability)
@simulated
async def test_listeners_find_the_newest_batch_in_memory(bed: Bed, durability: Durability) -> None:
    await bed.start("t", policy=Policy(durability=durability))
    partition = bed["t"]
    heard: list[bytes | None] = []
    partition.listen("me", lambda: heard.append(partition.newest(partition.high_watermark - 1)))
    for value in (b"a", b"b"):
        bed.append("t", make(value))
        assert durability is not Durability.FSYNC or partition.newest(0) is None
        await bed.committed()
        assert partition.newest(partition.high_watermark - 1) is None, "it is forgotten"
    stored = bed.read_file(partition.segments[0].path)
    assert heard == [stored[:ONE], stored[ONE:]]


@simulated
async def test_of_several_batches_none_is_the_newest(bed: Bed) -> None:
    await bed.start("t")
    partition = bed["t"]
    heard: list[bytes | None] = []
    partition.listen("me", lambda: heard.extend(map(partition.newest, range(4))))
    bed.append("t", make(b"a"), make(b"b"))
    bed.append("t", make(b"c" * limits.MIB))
    await bed.committed()
    assert heard == [None] * 4
