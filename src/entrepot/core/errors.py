"""What is wrong, and how far it reaches.

A peer's mistake is a `PeerError`: it gets an answer in its own protocol. What the
disk does to us is a `StorageError`: the partition says why, the broker goes on.
Our own mistakes are any other exception: `faults` says what becomes of them.
"""

from collections.abc import Sequence


class PeerError(Exception):
    """The other side's mistake. The text is written for the person behind it."""


class MalformedFrame(PeerError):
    """Bytes that are not the protocol. The connection is closed."""


class InvalidBatch(PeerError):
    """A record batch that is damaged or not what it says it is."""


class InvalidRecord(PeerError):
    """Records that their topic does not take."""

    def __init__(self, text: str, places: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.places = places  # In their batch; the first of them, if there are very many.


class BatchTooLarge(PeerError):
    """Over the topic's largest batch."""


class InvalidTimestamp(PeerError):
    """Further from the broker's clock than the topic allows."""


class UnknownTopic(PeerError):
    """No topic, or no partition of it, by that name or id."""


class UnknownTopicId(UnknownTopic):
    """A name and an id fail differently: a wrong id means that a client's knowledge is old."""


class TopicDenied(PeerError):
    """The peer may not do that to this topic; whether there is one is not said."""


class TopicExists(PeerError):
    pass


class InvalidName(PeerError):
    pass


class InvalidPartitions(PeerError):
    """A partition count that cannot be had."""


class InvalidConfig(PeerError):
    """An unknown setting, or a value it does not take."""


class OffsetOutOfRange(PeerError):
    """Below the log start or above the high watermark."""


class StaleEpoch(PeerError):
    """The peer knows an older leader than there is."""


class UnknownEpoch(PeerError):
    """The peer knows a newer leader than we do."""


class OutOfOrderSequence(PeerError):
    """An idempotent producer's batch that does not follow its last one."""


class DuplicateSequence(PeerError):
    """Records that were written before, but in other batches."""


class FencedProducer(PeerError):
    """A producer epoch older than one already seen."""


class InvalidTransactionState(PeerError):
    """Not what the transaction's state allows."""


class NotInTransaction(InvalidTransactionState):
    """A transactional batch for a partition that the transaction does not have."""


class ConcurrentTransactions(PeerError):
    """The transaction before is still being ended; ask again."""


class InvalidProducerMapping(PeerError):
    """The producer id is not the one that belongs to the transactional id."""


class InvalidTransactionTimeout(PeerError):
    """Longer than a transaction may take, or not a time."""


class TooManyTransactions(PeerError):
    """More transactional ids than the coordinator remembers."""


class UnknownExchange(PeerError):
    pass


class UnknownQueue(PeerError):
    pass


class ExchangeRefused(PeerError):
    """What nobody may do to this exchange: it is the broker's own, or internal."""


class ExchangeMismatch(PeerError):
    """Declared before, otherwise."""


class ExchangeInUse(PeerError):
    """To be deleted only if unused, and it has bindings."""


class InvalidExchange(PeerError):
    """A type that is not there, an argument it does not take, or one exchange too many."""


class InvalidBinding(PeerError):
    """A key or an argument that the exchange does not take, or one binding too many."""


class InvalidRoutingHeader(PeerError):
    """CC or BCC, and not a list."""


# Virtual hosts and what is in them.


class UnknownVhost(PeerError):
    pass


class VhostRefused(PeerError):
    """A virtual host that cannot be made, or not deleted."""


class QueueLocked(PeerError):
    """Another connection's own."""


class QueueNameRefused(PeerError):
    """A name that is the broker's to give."""


class QueueHasConsumers(PeerError):
    """To be deleted only if unused, and it has consumers."""


class QueueNotEmpty(PeerError):
    """To be deleted only if empty, and it has messages."""


class QueuesUnavailable(PeerError):
    """A queue too many, or a broker that was started without queues."""


class InvalidPermission(PeerError):
    """A regular expression that is none, or is not supported."""


# Queues.


class InvalidQueue(PeerError):
    """An argument that a queue does not take, or a value that the argument does not."""


class QueueMismatch(PeerError):
    """Declared before, otherwise."""


class QueueInUse(PeerError):
    """Somebody consumes alone, or wants to."""


class InvalidRecordState(PeerError):
    """A record of a share group that is not, or no longer, locked for this consumer."""


class InvalidAcknowledgement(PeerError):
    """Of a share group's records: of an unknown type, out of order, or of too few."""


class StorageError(Exception):
    """The disk failed, or a partition is stopped because it did. Nothing was acknowledged."""


class Corruption(StorageError):
    """Damage in what was already permanent. Never repaired by guessing."""


class DamagedBatch(Corruption):
    """Damage that a reader came upon. What is before and behind it can still be read."""


class QueueDown(StorageError):
    """A queue that is not served: it cannot be read, or a mistake of ours has stopped it."""


# --- leases of queues' messages until a time


class UnknownLease(PeerError):
    """It was never there, or is over."""


class TooManyLeases(PeerError):
    """More than a queue keeps."""
