"""What replicas do, without a cluster: one leads, another cuts and copies."""

from functools import partial

from entrepot.core.batch import check, walk
from entrepot.log.partition import Partition
from tests.unit.log.bed import Bed, make

COPY_BYTES = 200  # Of one fetch: a few batches.


def content(partition: Partition) -> bytes:
    """All bytes of the log, visible or not."""
    found, offset = [], partition.offset_start
    while (part := partition.read(offset, 1, to_end=True)) is not None:
        data = part.file.read(part.position, part.size)
        (header,) = [header for _, header in walk(data)]
        check(data, allow_gaps=True)
        found.append(data)
        offset = header.offset_end
    return b"".join(found)


def kept(partition: Partition) -> bytes:
    """The bytes of batches that have records: compaction leaves, and copying makes, others."""
    data = content(partition)
    return b"".join(data[at : at + each.size] for at, each in walk(data) if each.count)


def epochs_of(data: bytes) -> list[tuple[int, int]]:
    """The epochs as the batches have them."""
    starts: list[tuple[int, int]] = []
    for _, header in walk(data):
        if not starts or header.leader_epoch != starts[-1][0]:
            starts.append((header.leader_epoch, header.offset_first))
    return starts


def lead(bed: Bed, name: str, epoch: int, *values: bytes) -> None:
    """Write in an epoch of one's own, a batch for each value."""
    bed[name].begin_epoch(epoch)
    for value in values:
        bed.append(name, make(value, value))


async def agree(bed: Bed, leader: str, follower: str) -> None:
    """Cut off what the leader does not have."""
    ours, theirs = bed[follower], bed[leader]
    ours.begin_epoch(theirs.leader_epoch)
    is_final = False
    while ours.epochs.last >= 0 and not is_final:
        answer = theirs.end_of_epoch(ours.epochs.last)
        offset, is_final = ours.epochs.cut_for(answer, ours.offset_end)
        await bed.do(bed.log.truncate(ours, offset))


def copy(bed: Bed, leader: str, follower: str, fetches: int) -> None:
    """Append what the leader has next, so many times."""
    ours, theirs = bed[follower], bed[leader]
    for _ in range(fetches):
        part = theirs.read(ours.offset_end, COPY_BYTES, to_end=True)
        if part is None:
            return
        data = part.file.read(part.position, part.size)
        batches = [(header, data[at : at + header.size]) for at, header in walk(data)]
        bed.call(partial(bed.log.append, is_stamped=True), ours, batches)
