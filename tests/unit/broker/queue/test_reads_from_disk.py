"""How much is read from the disk at once: as many runs as take a turn, for all queues together."""

import asyncio
from collections.abc import Sequence

from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.queue import Queue
from entrepot.core import limits
from tests.unit.broker.queue.bed import Eater
from tests.unit.broker.virtual_host.bed import Host
from tests.unit.log.bed import simulated

TURN = limits.QUEUE_TURN_BYTES_MAX // limits.QUEUE_READ_RUN_BYTES
COUNT = 4 * TURN
READS_MAX = 2 * TURN  # What is read with the last one of a turn may be as much again.


async def filled(bed: Host, *names: str, **arguments: object) -> list[Queue]:
    """Queues with messages that are a batch each, and in no cache."""
    await bed.start()
    for name in names:
        await bed.queue(name, **arguments)
        for number in range(COUNT):
            await bed.publish("", name, b"%d" % number)
    await bed.restart("crash")
    await asyncio.sleep(1)
    queues = [bed.vhost.queue(name) for name in names]
    for queue in queues:
        forget(queue)
    return queues


def forget(queue: Queue) -> None:
    """Empty the cache of a queue's messages."""
    for lane in queue.lanes:
        assert isinstance(lane, LogLane)
        lane._cache.drop_before(lane._shelf, lane.offset_end)


def loaded(queues: Sequence[Queue]) -> int:
    return sum(lane.loaded for queue in queues for lane in queue.lanes)


def read_by(bed: Host, queues: Sequence[Queue], *calls: object) -> int:
    """Return how many runs of the queues these calls read, all in one iteration of the loop."""
    before = loaded(queues)
    for call in calls:
        bed.call(call)
    return loaded(queues) - before


EXPECTED = " ".join(str(number) for number in range(COUNT))


@simulated
async def test_queues_read_together_what_one_may(bed: Host) -> None:
    queues = await filled(bed, *"abcdefgh")
    eaters = [Eater() for _ in queues]
    for queue, eater in zip(queues, eaters, strict=True):
        bed.call(queue.add_consumer, eater)
    assert 0 < read_by(bed, queues, *[queue.dispatch for queue in queues]) <= READS_MAX
    await asyncio.sleep(10)
    assert [eater.has for eater in eaters] == [EXPECTED] * len(queues)


@simulated
async def test_who_goes_does_not_make_others_wait_for_what_it_had(bed: Host) -> None:
    (queue,) = await filled(bed, "q", max_length_bytes=1_000_000)
    eater = Eater()
    bed.call(queue.add_consumer, eater)
    await asyncio.sleep(10)
    assert eater.has == EXPECTED
    bed.call(queue.remove_consumer, eater)
    await asyncio.sleep(1)
    forget(queue)
    assert read_by(bed, [queue], lambda: queue.release(eater)) <= READS_MAX
    await asyncio.sleep(10)
    assert queue._ready_bytes == len(EXPECTED.replace(" ", ""))


@simulated
async def test_what_came_back_one_by_one_is_read_in_turns(bed: Host) -> None:
    (queue,) = await filled(bed, "q")
    first, second = Eater(), Eater("second")
    bed.call(queue.add_consumer, first)
    await asyncio.sleep(10)
    bed.call(queue.remove_consumer, first)
    bed.call(queue.settle, first, 0, range(1, COUNT, 2))
    bed.call(queue.release, first)
    await asyncio.sleep(1)
    forget(queue)
    bed.call(queue.add_consumer, second)
    assert 0 < read_by(bed, [queue], queue.dispatch) <= READS_MAX
    await asyncio.sleep(10)
    assert second.has == " ".join(str(number) for number in range(0, COUNT, 2))


@simulated
async def test_groups_are_searched_for_in_turns(bed: Host) -> None:
    (queue,) = await filled(bed, "q")
    queue.become_fair()
    eater = Eater()
    bed.call(queue.add_consumer, eater)
    assert 0 < read_by(bed, [queue], queue.dispatch) <= READS_MAX
    await asyncio.sleep(10)
    assert eater.has == EXPECTED
