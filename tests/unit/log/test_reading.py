"""Reading what an earlier process wrote: it is looked at before it is passed on."""

import asyncio
import errno
import logging

import pytest

from entrepot.core import limits
from entrepot.core.errors import Corruption, DamagedBatch, StorageError
from entrepot.log.log import CLEAN_EVERY_S
from entrepot.log.policy import Policy
from sim.clock import START_MS
from tests.unit.log.bed import Bed, make, simulated

ONE = len(make(b"x"))
COUNT = 8
SEALED = Policy(segment_bytes=COUNT * ONE, retention_ms=-1)
SEGMENT = "partitions/t-0/00000000000000000000.log"
OFFSET, LENGTH, CHECKSUM, LARGEST_TIME, BODY = 7, 11, 20, 41, ONE - 1


async def restarted(bed: Bed, *, count: int = COUNT + 1) -> None:
    """After a clean stop: batches of one record, the first eight in a sealed segment."""
    await bed.start("t", policy=SEALED)
    for _ in range(count):
        bed.append("t", make(b"x"))
    await bed.committed()
    await bed.stop()
    await bed.start("t", policy=SEALED)


@pytest.mark.parametrize("field", [OFFSET, LENGTH, CHECKSUM, BODY])
@simulated
async def test_a_fold_checks_every_batch(
    bed: Bed, field: int, caplog: pytest.LogCaptureFixture
) -> None:
    await restarted(bed)
    assert len(list(bed["t"].batches())) == COUNT + 1
    bed.flip(SEGMENT, 3 * ONE + field)
    for _ in range(2):
        with pytest.raises(DamagedBatch, match=f"{SEGMENT}: .* at byte {3 * ONE}"):
            list(bed["t"].batches())
    said = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert said == [f"cannot be read: {bed['t'].damage}"], "once"


@pytest.mark.parametrize("field", [OFFSET, LENGTH])
@simulated
async def test_what_no_checksum_covers_is_looked_at(bed: Bed, field: int) -> None:
    await restarted(bed)
    bed.flip(SEGMENT, 3 * ONE + field)
    for offset in range(3):
        with pytest.raises(DamagedBatch, match=f"at byte {3 * ONE}"):
            bed["t"].read(offset, 1 << 20)
    found = bed["t"].read(COUNT, 1 << 20)
    assert found is not None, "other segments can be read"
    assert bed["t"].stopped is None


@simulated
async def test_headers_are_looked_at_once_and_a_few_at_a_time(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_HEADERS_MAX", 3)
    await restarted(bed)
    partition = bed["t"]
    sizes = []
    for offset in (0, 0, 3, 6, 0, 2):
        found = partition.read(offset, 1 << 20)
        assert found is not None
        sizes.append(found.size // ONE)
    assert sizes == [3, 6, 5, 2, 8, 6], "what was looked at is not looked at again"


@simulated
async def test_what_this_process_wrote_is_passed_on(bed: Bed) -> None:
    await bed.start("t", policy=SEALED)
    for _ in range(COUNT + 1):
        bed.append("t", make(b"x"))
    await bed.committed()
    assert bed["t"].segments[0].sealed
    bed.flip(SEGMENT, 3 * ONE + OFFSET)
    found = bed["t"].read(0, 1 << 20)
    assert found is not None
    assert found.size == COUNT * ONE


@simulated
async def test_a_file_that_is_not_all_there(bed: Bed) -> None:
    await bed.start("t")
    for _ in range(3):
        bed.append("t", make(b"x"))
    await bed.committed()
    await bed.stop()
    bed.disk.open(SEGMENT).truncate(ONE)
    await bed.start("t")
    reason = f"{SEGMENT} has {ONE} bytes, "
    with pytest.raises(Corruption, match=reason):
        bed["t"].read(0, 1)
    with pytest.raises(StorageError, match=reason):
        bed.append("t", make(b"behind the gap"))


@simulated
async def test_times_are_looked_up_in_whole_batches(bed: Bed) -> None:
    await restarted(bed)
    assert bed["t"].offset_for_time(START_MS) == (0, START_MS)
    bed.flip(SEGMENT, LARGEST_TIME)  # To an earlier one.
    with pytest.raises(DamagedBatch, match="checksum"):
        bed["t"].offset_for_time(START_MS)


@simulated
async def test_what_the_disk_cannot_give_back_is_damage(bed: Bed) -> None:
    await restarted(bed)
    bed.disk.fail_next("read", errno.ENOMEM, SEGMENT)
    with pytest.raises(OSError, match="memory"):
        list(bed["t"].batches())
    assert bed["t"].damage is None, "it may be over soon"
    bed.disk.fail_next("read", errno.EIO, SEGMENT)
    with pytest.raises(Corruption, match=f"{SEGMENT}: Input/output error"):
        list(bed["t"].batches())


@simulated
async def test_compaction_leaves_damage_alone(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    policy = Policy(segment_bytes=2 * ONE, retention_ms=-1, compacts=True, expires=False)
    await bed.start("t", policy=policy)
    for _ in range(5):
        bed.append("t", make(b"x"))
    await bed.committed()
    bed.flip(SEGMENT, ONE + BODY)
    before = bed.read_file(SEGMENT)

    await asyncio.sleep(5 * CLEAN_EVERY_S)
    said = [each.getMessage() for each in caplog.records]
    assert sum("cannot be read" in line for line in said) == 1
    assert sum("compaction has to wait" in line for line in said) == 1
    assert bed.read_file(SEGMENT) == before
