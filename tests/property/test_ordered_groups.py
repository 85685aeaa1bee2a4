"""Random sequences of everything a queue can do, in queues that have ordered groups.

The world is that of `test_conservation`. In the end everything comes out: no group stays blocked.
"""

import asyncio

import pytest

from entrepot.broker.queue.front import Front
from entrepot.broker.queue.lane import Lane
from entrepot.broker.queue.ordered_groups import OrderedGroups
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings
from entrepot.core import limits
from sim.loop import SimLoop, run
from tests.property.test_conservation import TURN, World
from tests.unit.broker.virtual_host.bed import Host


async def drain(world: World, queue: Queue) -> None:
    """Give back all that is held, and take everything."""
    for consumer in world.consumers:
        queue.remove_consumer(consumer)
        queue.release(consumer)
    for lease in world.leases:
        queue.timed_leases.release_all(lease, is_attempt=False)
    await asyncio.sleep(20)
    for _ in range(1_000):
        queue.release(world)  # Also what it got meanwhile.
        if queue.get(world, auto_ack=True) is None:
            await asyncio.sleep(1)
            if not queue.ready_count or queue.fault is not None:
                return


def test_nothing_is_missing_with_ordered_groups(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third message is of one group, in queues of all kinds; in the end all come out."""
    open_front, add = Front.__init__, OrderedGroups._add

    def open_grouped(self: Front, lane: Lane, settings: QueueSettings) -> None:
        open_front(self, lane, settings)
        self.groups = OrderedGroups(lane)

    def add_to_group(self: OrderedGroups, offset: int, name: str | None) -> None:
        add(self, offset, str(offset % 3))

    monkeypatch.setattr(Front, "__init__", open_grouped)
    monkeypatch.setattr(OrderedGroups, "_add", add_to_group)
    monkeypatch.setattr(limits, "QUEUE_GROUPED_MAX", 20)
    monkeypatch.setattr(limits, "QUEUE_TURN_MESSAGES_MAX", TURN)

    async def main(loop: SimLoop) -> None:
        world = World(Host(loop), loop.random("steps"))
        await world.live()
        queue = world.queue
        if queue.fault is None:
            await drain(world, queue)
            # A dead letter that is refused blocks its group until it is not.
            is_blocked = queue.account().dying > 0
            assert queue.ready_count == 0 or is_blocked, (queue.account(), world.trace)

    run(seed, main)
