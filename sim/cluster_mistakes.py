"""Mistakes that `cluster_world` must find."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from msgspec.structs import replace

from entrepot.broker.served_partition import ServedPartition
from entrepot.cluster.replica import Leader
from entrepot.cluster.state import Assignment
from entrepot.clustering import roles
from entrepot.clustering.node import ClusterNode
from entrepot.clustering.roles import PartitionRole
from entrepot.log.epochs import EpochEnd
from entrepot.log.partition import Partition

if TYPE_CHECKING:
    from sim.cluster_world import ClusterWorld


class _LonelyLeader(Leader):
    @property
    def watermark(self) -> int:
        return self.offset_durable


async def _change_alone(node: ClusterNode, role: PartitionRole, wanted: tuple[int, ...]) -> None:
    """Change the in-sync set without asking anybody."""
    leader = role.leader
    assert leader is not None
    present = leader.assignment
    leader.assignment = replace(present, in_sync=wanted)
    leader.refused()
    role._advance()


_follow = PartitionRole.follow


def _followed(world: ClusterWorld, *, by_watermark: bool) -> Callable[..., None]:
    """Return a way to follow during which some leaders die when a replica is about to cut.

    `by_watermark` is the mistake: it cuts off what is above its own watermark. That is fetched
    again at once, which would hide nearly all of it.
    """

    def follow(
        role: PartitionRole, name: str, served: ServedPartition, assignment: Assignment, *rest: Any
    ) -> None:
        _follow(role, name, served, assignment, *rest)
        assert role.followed is not None
        state, partition = role.followed.state, served.partition
        right = state.answered

        def answered(answer: EpochEnd, offset_end: int) -> int | None:
            if partition.high_watermark < offset_end:
                world.crash_perhaps(assignment.leader)
            if not by_watermark:
                return right(answer, offset_end)
            state.is_fetching = True
            return partition.high_watermark

        state.answered = answered  # type: ignore[method-assign]

    return follow


@contextlib.contextmanager
def planted(bug: str | None, world: ClusterWorld) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        match bug:
            case "leader-alone":
                stack.enter_context(patch.object(roles, "Leader", _LonelyLeader))
            case "cut-at-watermark" | "cut-rightly":  # The second is none: it must not be found.
                follow = _followed(world, by_watermark=bug == "cut-at-watermark")
                stack.enter_context(patch.object(PartitionRole, "follow", follow))
            case "unfenced-leader":
                always = property(lambda role: role.leader is not None)
                stack.enter_context(patch.object(PartitionRole, "leads", always))
                stack.enter_context(patch.object(ClusterNode, "_change_in_sync", _change_alone))
                nothing = patch.object(Partition, "check_epoch", lambda partition, epoch: None)
                stack.enter_context(nothing)
            case _:
                assert bug is None, bug
        yield
