"""Defines the errors that are expected: mistakes of peers, and failures of the disk.

A mistake of a peer is a `PeerError`; the peer gets an answer in its protocol. A failure of the
disk is a `StorageError`; the partition stops and reports it, and the broker goes on. Any other
exception is a bug in the broker, which `core/faults.py` logs and counts.
"""

from collections.abc import Sequence


class PeerError(Exception):
    """A mistake of the peer. The text is for its user."""


class MalformedFrame(PeerError):
    """Bytes that violate the protocol. The connection is closed."""


class InvalidBatch(PeerError):
    """A record batch that is damaged, or inconsistent with its header."""


class InvalidRecord(PeerError):
    """Records that the topic's settings do not allow."""

    def __init__(self, text: str, places: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.places = places  # Indexes in the batch; only the first ones, if there are very many.


class BatchTooLarge(PeerError):
    """A batch that is larger than the topic allows."""


class InvalidTimestamp(PeerError):
    """A timestamp further from the broker's clock than the topic allows."""


class UnknownTopic(PeerError):
    """There is no topic of that name or id, or no such partition of it."""


class UnknownTopicId(UnknownTopic):
    """There is no topic of that id. Clients then refresh what they know of the topic."""


class TopicDenied(PeerError):
    """The peer has no right to this topic. Does not tell whether the topic exists."""


class TopicExists(PeerError):
    """There is a topic or a queue of that name."""


class InvalidName(PeerError):
    """A name that is not legal, or that is reserved."""


class InvalidPartitions(PeerError):
    """A partition count that is not allowed."""


class InvalidConfig(PeerError):
    """An unknown setting, or an invalid value of one."""


class OffsetOutOfRange(PeerError):
    """An offset below the log start or above the high watermark."""


class StaleEpoch(PeerError):
    """The request has an older leader epoch than the partition."""


class UnknownEpoch(PeerError):
    """The request has a newer leader epoch than the partition."""


class OutOfOrderSequence(PeerError):
    """An idempotent producer's batch that does not follow its last one."""


class DuplicateSequence(PeerError):
    """A batch with sequence numbers that were written before, in other batches."""


class FencedProducer(PeerError):
    """A producer epoch older than one already seen."""


class FencedCoordinator(PeerError):
    """A marker of a coordinator, or of an attempt, that was superseded."""


class InvalidTransactionState(PeerError):
    """A request that the transaction's state does not allow."""


class NotInTransaction(InvalidTransactionState):
    """A transactional batch for a partition that was not added to the transaction."""


class ConcurrentTransactions(PeerError):
    """The previous transaction is still being ended. The client retries."""


class InvalidProducerMapping(PeerError):
    """The producer id is not the one that belongs to the transactional id."""


class InvalidTransactionTimeout(PeerError):
    """A transaction timeout that is too long, or not positive."""


class TooManyTransactions(PeerError):
    """More transactional ids than the coordinator remembers."""


class UnknownExchange(PeerError):
    """There is no exchange of that name."""


class UnknownQueue(PeerError):
    """There is no queue of that name."""


class ExchangeRefused(PeerError):
    """A request that is never allowed: the exchange is the broker's own, or internal."""


class ExchangeMismatch(PeerError):
    """The exchange exists with other settings than those declared."""


class ExchangeInUse(PeerError):
    """The exchange was to be deleted only if unused, and it has bindings."""


class InvalidExchange(PeerError):
    """An unknown type, an invalid argument, or more exchanges than allowed."""


class InvalidBinding(PeerError):
    """A key or an argument that is invalid for the exchange, or more bindings than allowed."""


class InvalidRoutingHeader(PeerError):
    """An invalid value of a header that decides where a message is routed."""


# Virtual hosts and what is in them.


class UnknownVhost(PeerError):
    """There is no virtual host of that name."""


class VhostRefused(PeerError):
    """A virtual host that cannot be created or deleted."""


class QueueLocked(PeerError):
    """The queue is exclusive to another connection."""


class QueueNameRefused(PeerError):
    """The name is reserved for the broker."""


class QueueHasConsumers(PeerError):
    """The queue was to be deleted only if unused, and it has consumers."""


class QueueNotEmpty(PeerError):
    """The queue was to be deleted only if empty, and it has messages."""


class QueuesUnavailable(PeerError):
    """More queues than allowed, or a broker that was started without queues."""


class InvalidPermission(PeerError):
    """An invalid or unsupported regular expression in a permission."""


class InvalidSelector(PeerError):
    """A selector that cannot be parsed, or is too long. The text says where the mistake is."""


# Queues.


class InvalidLink(PeerError):
    """There is no such link to another queue manager, or there cannot be."""


class InvalidQueue(PeerError):
    """An unknown argument of a queue, or an invalid value of one."""


class QueueMismatch(PeerError):
    """The queue exists with other settings than those declared."""


class QueueInUse(PeerError):
    """The queue has an exclusive consumer, or consumers although one asks to be exclusive, or as
    many as allowed."""


class InvalidRecordState(PeerError):
    """A record of a share group that is not locked for this consumer, or no longer."""


class InvalidAcknowledgement(PeerError):
    """An acknowledgement in a share group of an unknown type, out of order, or incomplete."""


class StorageError(Exception):
    """The disk failed, or the partition is stopped since it did. The write is not acknowledged."""


class Corruption(StorageError):
    """Damaged data that had been permanent. It is never repaired automatically."""


class DamagedBatch(Corruption):
    """A damaged batch found by a reader. Batches before and after it can still be read."""


class NotLeader(StorageError):
    """Another node leads the partition, or nobody. The client asks who it is, and goes there."""


class StillLoading(StorageError):
    """This node leads since a moment ago, and still reads what it has to know."""


class NotEnoughReplicas(StorageError):
    """Fewer replicas are in sync than the topic requires. Nothing was written."""


class NotEnoughReplicasAfterAppend(StorageError):
    """It is written, but by the time it was committed too few replicas were in sync."""


class OffsetNotAvailable(PeerError):
    """A new leader does not know yet how far records are committed. Soon it will."""


class InvalidReplication(PeerError):
    """A replication factor for which there are not enough nodes, or that is none."""


class InvalidAssignment(PeerError):
    """An assignment of replicas to nodes that is impossible."""


class ElectionNotNeeded(PeerError):
    """The partition is led by whom the election would give it to."""


class NoLeaderToElect(PeerError):
    """None of the replicas that may lead the partition is there."""


class NotMoving(PeerError):
    """The partition does not move to other nodes, so that cannot be ended."""


class ClusterChanged(PeerError):
    """What was to be changed was changed by another node meanwhile. The client may try again."""


class StoreUnavailable(Exception):
    """An object store that cannot be reached, or does not do what is asked. The text says why."""


class CoordinatorUnavailable(Exception):
    """The coordinator does not answer, or refuses. What was asked for may be done all the same."""


class LeaseLost(Exception):
    """A lease of the coordinator that is gone: its time is over, or it was revoked."""


class RevisionCompacted(Exception):
    """Changes that the coordinator has forgotten. Read everything, and watch from there."""


class QueueDown(StorageError):
    """A queue that is not served: its data cannot be read, or a bug has stopped it."""


# --- leases of queues' messages until a time


class UnknownLease(PeerError):
    """There is no such lease, or it has ended."""


class TooManyLeases(PeerError):
    """The queue has too many timed leases, or too many messages in them."""


class UnknownReceipt(PeerError):
    """A receipt that this queue never gave."""


class NotLeased(PeerError):
    """The message of a receipt is not leased by it any more: it is settled, or ready again."""


class LeaseTooLong(PeerError):
    """A lease that would last too long since the message was delivered."""


class SessionRefused(PeerError):
    """A session or subscription that would exceed a limit."""
