"""What this node is for one partition: its leader, a follower, or nothing.

A node that has lost its lease may lead no more, and does not know it from the coordinator: so
whether it leads is asked of its membership each time.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from entrepot.broker.served_partition import ServedPartition
from entrepot.cluster.replica import Follower, Leader
from entrepot.cluster.state import Assignment
from entrepot.clustering.fetcher import Fetcher, Followed
from entrepot.core.errors import NotLeader
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock


class PartitionRole:
    """Implements `broker.replication.Role`."""

    def __init__(
        self,
        identity: PartitionId,
        clock: Clock,
        is_member: Callable[[], bool],
        catches_up: Callable[[PartitionRole], None],
    ) -> None:
        self.identity = identity
        self.epoch = -1  # Of the role.
        self.leader: Leader | None = None
        self.followed: Followed | None = None
        self.fetcher: Fetcher | None = None  # That copies it.
        self.is_dropping = False  # What is here: others hold it now.
        self.is_ready = True  # What is folded out of the partition is there; see `broker.led`.
        self._served: ServedPartition | None = None
        self._clock = clock
        self._is_member = is_member
        self._catches_up = catches_up  # Called when a follower may belong into the in-sync set.

    # --- for the broker

    @property
    def leads(self) -> bool:
        return self.leader is not None and self._is_member()

    @property
    def in_sync_count(self) -> int:
        return 0 if self.leader is None else len(self.leader.assignment.in_sync)

    @property
    def knows_end(self) -> bool:
        leader, served = self.leader, self._served
        return (
            leader is not None
            and served is not None
            and served.partition.high_watermark >= leader.offset_begun
        )

    def fetched(self, node: int, offset: int) -> None:
        leader, served = self.leader, self._served
        if leader is None or served is None:
            return
        end = served.partition.offset_end
        leader.fetched(node, offset, end, self._clock.monotonic())
        self._advance()
        if node not in leader.assignment.in_sync:
            self._catches_up(self)

    # --- changes

    def lead(
        self, node: int, served: ServedPartition, assignment: Assignment, revision: int
    ) -> None:
        """Begin to lead in a new epoch. Raises StaleEpoch."""
        self.resign()
        partition = served.partition
        partition.begin_epoch(assignment.leader_epoch)
        self.epoch = assignment.leader_epoch
        now_s = self._clock.monotonic()
        self._served = served
        self.leader = Leader(node, assignment, revision, partition.offset_end, now_s)
        partition.on_durable = self._durable
        self._durable()

    def told(self, assignment: Assignment, revision: int) -> None:
        """Take in a change of the in-sync set that this node leads."""
        assert self.leader is not None
        self.leader.told(assignment, revision)
        self._advance()

    def follow(
        self,
        name: str,
        served: ServedPartition,
        assignment: Assignment,
        fetcher: Fetcher,
        when_cut: Callable[[], None],
    ) -> None:
        """Begin to follow in a new epoch. Raises StaleEpoch."""
        self.resign()
        served.partition.begin_epoch(assignment.leader_epoch)
        self.epoch = assignment.leader_epoch
        self._served = served
        state = Follower(assignment, served.partition.epochs, is_empty=not served.partition.size)
        self.followed = Followed(name, served, state, when_cut)
        self.fetcher = fetcher
        fetcher.follow(self.followed)

    def resign(self) -> None:
        """End the present role. Whoever waits for a commit hears that another node leads."""
        if self.leader is not None:
            assert self._served is not None
            self.leader = None
            self._served.partition.on_durable = lambda: None
            self._served.partition.fail_waiters(NotLeader("another node leads the partition"))
        if self.fetcher is not None:
            self.fetcher.leave(self.identity)
        self.followed = self.fetcher = None

    @property
    def is_cutting(self) -> bool:
        """Return whether the log is being cut: no role may begin meanwhile."""
        is_cut = self.followed is not None and self.followed.is_cutting
        return is_cut or self.is_dropping

    # --- as the leader

    def propose(self, lag_s: float, alive: dict[int, int]) -> tuple[int, ...] | None:
        """Return the in-sync set there should be; None if it is so, or one is on its way."""
        leader, served = self.leader, self._served
        if leader is None or served is None or served.partition.stopped is not None:
            return None
        partition, now_s = served.partition, self._clock.monotonic()
        return leader.propose(now_s, lag_s, partition.offset_end, partition.high_watermark, alive)

    def hand_over(self, alive: dict[int, int]) -> Assignment | None:
        """Return who should hold the partition if its log here has failed; None if it has not, or
        nobody else has everything."""
        leader, served = self.leader, self._served
        if leader is None or served is None or served.partition.stopped is None:
            return None
        present = leader.assignment
        left = tuple(each for each in present.in_sync if each != leader.node and each in alive)
        if not left or leader.proposed is not None:
            return None
        first = next(each for each in present.replicas if each in left)
        return msgspec.structs.replace(
            present, in_sync=left, leader=first, leader_epoch=present.leader_epoch + 1
        )

    def _durable(self) -> None:
        assert self.leader is not None
        assert self._served is not None
        if self._served.partition.stopped is None:
            self.leader.durable(self._served.partition.offset_durable)
            self._advance()

    def _advance(self) -> None:
        assert self.leader is not None
        assert self._served is not None
        partition, watermark = self._served.partition, self.leader.watermark
        if watermark > partition.high_watermark:
            partition.show(watermark)
