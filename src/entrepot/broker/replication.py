"""What the broker knows of a cluster: who leads a partition, and who changes what all nodes share.

A broker alone has none of this: its partitions have no role, and its changes are its own. In a
cluster `entrepot.clustering` implements both protocols.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.core.marker import Marker
from entrepot.core.names import PartitionId
from entrepot.core.record import Record

NOBODY = -1  # As the id of a node.


class Role(Protocol):
    """What this node is for one partition, now."""

    @property
    def leads(self) -> bool:
        """Return whether this node leads it, and is a member of the cluster."""

    @property
    def in_sync_count(self) -> int:
        """Return how many replicas are in sync, as far as the leader knows."""

    @property
    def knows_end(self) -> bool:
        """Return whether the watermark has reached what was there when this node began to lead.
        Before, another leader may have shown more to readers."""

    def fetched(self, node: int, offset: int) -> None:
        """Note that another replica asks for what is at the offset: it has all below."""


class Holders(NamedTuple):
    """Who holds a partition."""

    leader: int  # NOBODY, if none of those in sync is alive.
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    target: tuple[int, ...] = ()  # While it moves: the nodes that will hold it,
    origin: tuple[int, ...] = ()  # and those that did. `replicas` has all of them.
    moves_with: str = ""  # The partition that it moves with, if it does not move by itself.

    @property
    def wanted(self) -> tuple[int, ...]:
        """Return the nodes that hold it, or will when it has moved."""
        return self.target or self.replicas


class Peer(NamedTuple):
    """A node that is alive, and where Kafka's clients find it, and those of queues."""

    id: int
    host: str
    port: int
    rack: str
    tls_port: int = 0  # 0 means: there is none, as of the next.
    queues_port: int = 0


class QueuesHome(Protocol):
    """Which node has the queues; and, on that node, how they are changed."""

    @property
    def is_here(self) -> bool:
        """Return whether this node is the home of all queues, and has them."""

    @property
    def node(self) -> int:
        """Return the node that is the home, or about to be; NOBODY if it is not known."""

    def peer(self) -> Peer | None:
        """Return the other node that is the home, if it is known and alive."""

    def listen(self, token: object, changed: Callable[[], object]) -> None:
        """Call `changed` whenever another node is the home, or none, until `unlisten`."""

    def unlisten(self, token: object) -> None: ...

    async def found(self) -> None:
        """Wait until this node is the home, or knows which other is."""

    # Only for the home.

    def append_change(self, *records: Record) -> None:
        """Record changes of queues, exchanges and bindings for all nodes, in this order. Raises
        StorageError if this node is not the home."""

    def changes_committed(self) -> Awaitable[None]:
        """Wait until all that was recorded so far is permanent. Raises StorageError."""

    def settings(self) -> dict[str, str]:
        """Return settings of queues' topics: how many copies a confirm needs."""

    async def create_queue(self, topic: Topic, record: Record) -> None:
        """Record a queue and give its partitions their nodes. Raises QueueMismatch if there is a
        topic of that name, StorageError."""

    def queue_opened(self, topic: Topic) -> None:
        """Lead the partitions of a new queue, which are open now."""

    async def delete_queue(self, topic: Topic) -> None:
        """Take the partitions of a deleted queue from their nodes."""


class Cluster(Protocol):
    @property
    def queues(self) -> QueuesHome: ...

    @property
    def controller(self) -> int:
        """Return the node that decides, or NOBODY."""

    def peers(self) -> list[Peer]:
        """Return the nodes that are alive, by ascending ids."""

    def holders(self, partition: PartitionId) -> Holders | None:
        """Return who holds a partition; None if that is not known yet."""

    def role(self, partition: PartitionId) -> Role:
        """Return this node's role for a partition. It stays the same object."""

    async def create_topic(
        self,
        topic: Topic,
        replication: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic, with so many replicas, or on these nodes, for each partition. Return
        when this node has it. Raises TopicExists, InvalidReplication, InvalidAssignment."""

    async def delete_topic(self, topic: Topic) -> None:
        """Delete a topic. Return when this node has it no more."""

    async def grow_topic(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Give a topic more partitions."""

    async def elect(self, partition: PartitionId, *, unclean: bool) -> None:
        """Let the preferred replica lead; with `unclean` any that is alive, if nobody leads. Raises
        ElectionNotNeeded, NoLeaderToElect, ClusterChanged."""

    async def reassign(self, partition: PartitionId, replicas: Sequence[int] | None) -> None:
        """Move a partition to these nodes; None means: let it stay. Return when that has begun.
        Raises InvalidAssignment, NotMoving, ClusterChanged."""

    async def change(self, *records: Record) -> None:
        """Change the catalogue of all nodes. Return when this node has the changes. Raises
        ClusterChanged."""

    async def topic_known(self, name: str) -> None:
        """Wait until this node has a topic of that name."""

    async def reserve_producer_ids(self, count: int) -> int:
        """Return the first of so many producer ids that no other node gets."""

    async def ask_coordinator(
        self,
        node: int,
        transactional_id: str,
        producer: ProducerIdentity,
        place: TopicPartition,
        *,
        joins: bool,
    ) -> None:
        """Ask the node that coordinates a transaction whether its producer may write to the
        partition, which `joins` it if it is not in it. Raises what it answers: PeerError, or
        StorageError when it cannot be asked now."""

    async def write_markers(
        self, node: int, marker: Marker, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Let the node that leads these partitions write a marker to them, and wait until that is
        permanent. Return why it was refused where it was. Raises StorageError when it is not known
        what became of it."""
