"""What a follower takes over with the records that it copies."""

from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13.response import PartitionData
from kio.static.primitive import i32, i64

from entrepot.cluster.replica import Follower
from entrepot.cluster.state import Assignment, Node
from entrepot.clustering.fetcher import Fetcher, Followed
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import make, simulated


@simulated
async def test_what_the_leader_has_deleted_is_hidden_before_it_is_in_sync(bed: Bed) -> None:
    """A follower that had begun anew moved its first offset with the next answer only. When it was
    to lead as soon as it was in sync, deleted records could be read again."""
    await bed.start()
    await bed.create("t")
    served = bed.served_partition("t")
    partition = served.partition
    partition.replicate(0)
    net: Any = None
    fetcher = Fetcher(2, Node(1, "", 0), net, bed.clock, bed.broker.log)
    state = Follower(Assignment((1, 2), (1,), 1, 0), partition.epochs, is_empty=True)
    followed = Followed("t", served, state, lambda: None)
    fetcher.follow(followed)
    data = PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        high_watermark=i64(5),
        log_start_offset=i64(3),
        aborted_transactions=None,
        records=make(b"a", b"b", b"c", b"d", b"e"),
    )
    bed.call(fetcher._take, followed, data)
    await bed.do(fetcher._durable(followed))
    assert (partition.high_watermark, partition.offset_start) == (5, 3)
    assert bed.values("t") == [b"d", b"e"]
