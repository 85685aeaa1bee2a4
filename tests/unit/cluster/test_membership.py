"""When a node believes that the others take it for alive."""

import asyncio

import pytest

from entrepot.cluster.membership import Membership
from entrepot.cluster.state import Node, node_key
from sim.clock import SimClock
from sim.coordinator import SimService
from tests.unit.log.bed import Life, simulated

LEASE_S = 6


class Taking:
    """Node 1, which takes part."""

    def __init__(self, bed: Life) -> None:
        self.service = SimService(bed.loop.random("service"))
        node = Node(1, "localhost", 9092)
        door = self.service.door()
        self.membership = Membership(door, SimClock(bed.loop), node, LEASE_S)
        self._task = bed.loop.create_task(self.membership.run())

    async def until_member(self) -> int:
        """Return the lease it has."""
        while not self.membership.is_member:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)
        return self.membership._lease

    def stop(self) -> None:
        self._task.cancel()


@simulated
async def test_a_lease_that_is_lost_is_believed_at_once(bed: Life) -> None:
    """It was found by the world of queues, seed 20015: a home that had been told that its lease was
    gone went on until its own clock said so, and delivered what another home had settled."""
    taking = Taking(bed)
    lease = await taking.until_member()
    taking.service.lose_lease(lease)
    await asyncio.sleep(0.2)  # The watch says that this node's registration is gone.
    assert not taking.membership.is_member
    assert await taking.until_member() > lease
    taking.stop()


@simulated
async def test_a_lease_that_is_lost_while_nothing_is_heard(
    bed: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: Membership, lease: int) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Membership, "_follow", nothing)
    taking = Taking(bed)
    lease = await taking.until_member()
    taking.service.lose_lease(lease)
    await asyncio.sleep(LEASE_S / 4 + 0.2)  # It is told when it keeps its lease alive.
    assert not taking.membership.is_member
    taking.stop()


@simulated
async def test_its_own_clock_ends_it_when_nobody_answers(bed: Life) -> None:
    taking = Taking(bed)
    await taking.until_member()
    assert await taking.service.door().get(node_key(1)) is not None
    taking.service.cut_off("here")
    await asyncio.sleep(LEASE_S)
    assert not taking.membership.is_member
    taking.stop()
