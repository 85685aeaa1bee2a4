"""A transaction as a value: the state of a transactional id, and its transitions.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing ...

Each function takes the current state and returns the next one, or raises an error of the
request; the coordinator stores the state and acts on it. A prepared transaction is decided:
its markers are written to the partitions, after a crash too.

The producer's epoch tells who owns a transactional id: a new owner gets the next epoch, and a
producer with an older one is fenced. In transaction version 2 every end of a transaction
raises the epoch as well, so that not even the same producer's delayed batches fall into its
next transaction. When the epochs of a producer id are used up, it is replaced by another id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.core import limits
from entrepot.core.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidProducerMapping,
    InvalidTransactionState,
    NotInTransaction,
    PeerError,
)

NONE = -1  # Stands for: no producer id, no epoch, no time.
_EPOCH_LAST = 2**15 - 2  # The last epoch a producer gets; one more is left to fence it.
VERSION_EPOCHS = 2  # From this transaction version on, every end raises the epoch.
# Kafka's value for two-phase commit: no timeout, somebody else will end it.
TIMEOUT_NEVER = 2**31 - 1


class TransactionStatus(IntEnum):  # Persisted: Kafka's numbers.
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


PREPARED = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
COMPLETE = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
_COMMITS = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)


class ProducerIdentity(NamedTuple):
    """A producer's id and epoch, as a request names them."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer: ProducerIdentity
    timeout_ms: int
    updated_ms: int
    state: TransactionStatus = TransactionStatus.EMPTY
    # The previous epoch, if the owner itself raised it: a repeated request names that one. NONE
    # otherwise.
    epoch_before: int = NONE
    id_before: int = NONE  # The previous producer id, whose epochs are used up.
    id_next: int = NONE  # The producer id that replaces this one once the markers are written.
    # In the order in which they were added.
    partitions: Mapping[TopicPartition, None] = field(default_factory=dict)
    started_ms: int = NONE
    # Transaction version of the last end; 0 means: ended by the broker, or by a client without one.
    version: int = 0

    @property
    def is_committed(self) -> bool:
        return self.state in _COMMITS

    @property
    def has_timeout(self) -> bool:
        return self.timeout_ms != TIMEOUT_NEVER

    @property
    def is_exhausted(self) -> bool:
        return self.producer.epoch >= _EPOCH_LAST


def begin(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Return the first state of a transactional id."""
    return Transaction(transactional_id, ProducerIdentity(producer_id, 0), timeout_ms, now_ms)


def initialise(
    current: Transaction,
    timeout_ms: int,
    known: ProducerIdentity | None,
    spare_id: int,
    now_ms: int,
) -> Transaction:
    """Give a producer the transactional id or, if it names itself with `known`, a new epoch.

    The transaction before it must have ended. `spare_id` is used when `is_exhausted`.
    """
    check_open(current)
    assert current.state is not TransactionStatus.ONGOING
    if known is not None:
        _check_known(current, known)
    before = current.producer.epoch if known is not None else NONE
    if known is not None and known.epoch == current.epoch_before:
        producer, before, id_before = current.producer, current.epoch_before, current.id_before
    elif current.is_exhausted:
        assert spare_id != NONE
        producer, id_before = ProducerIdentity(spare_id, 0), current.producer.id
    else:
        producer, id_before = _bumped(current.producer), current.id_before
    return Transaction(
        current.transactional_id,
        producer,
        timeout_ms,
        now_ms,
        epoch_before=before,
        id_before=id_before,
    )


def check_initialise(current: Transaction, known: ProducerIdentity | None) -> None:
    """Raise what `initialise` would raise once the open transaction is aborted."""
    check_open(current)
    if known is not None:
        _check_known(current, known)


def _check_known(current: Transaction, known: ProducerIdentity) -> None:
    """Raise FencedProducer unless this is the owner, or repeats a request that was answered."""
    if known == current.producer:
        return
    is_same = known.id == current.producer.id
    was_rotated = known.id == current.id_before and known.epoch >= _EPOCH_LAST
    if not (is_same or was_rotated) or known.epoch != current.epoch_before:
        raise _fenced(current, known.epoch)


def add(
    current: Transaction,
    producer: ProducerIdentity,
    partitions: Iterable[TopicPartition],
    now_ms: int,
) -> Transaction | None:
    """Add partitions to the transaction, or begin it; None when all are in it already."""
    check_owner(current, producer)
    check_open(current)
    before = current.partitions if current.state is TransactionStatus.ONGOING else {}
    after = {**before, **dict.fromkeys(partitions)}
    if len(after) > limits.TRANSACTION_PARTITIONS_MAX:
        raise PeerError(f"more than {limits.TRANSACTION_PARTITIONS_MAX} partitions")
    if current.state is TransactionStatus.ONGOING:
        if len(after) == len(before):
            return None
        return replace(current, partitions=after, updated_ms=now_ms)
    return replace(
        current,
        state=TransactionStatus.ONGOING,
        partitions=after,
        started_ms=now_ms,
        updated_ms=now_ms,
    )


def check_member(current: Transaction, producer: ProducerIdentity, place: TopicPartition) -> None:
    """Raise unless the producer may write to the partition now."""
    check_owner(current, producer)
    check_open(current)
    if current.state is not TransactionStatus.ONGOING or place not in current.partitions:
        raise NotInTransaction(f"{place.topic}-{place.partition} is not in the transaction")


def end(
    current: Transaction,
    producer: ProducerIdentity,
    *,
    commit: bool,
    version: int,
    spare_id: int,
    now_ms: int,
) -> Transaction | None:
    """Commit or abort, as the owner asks; None when it repeats a request that was done.

    `spare_id` is used when `is_exhausted` and the version raises epochs.
    """
    is_repeated = _is_repeated_end(current, producer)
    if not is_repeated:
        check_owner(current, producer)
    if current.state in PREPARED:
        if current.is_committed == commit:
            raise ConcurrentTransactions("the transaction is being ended")
        raise _wrong_state(current, commit)
    if current.state in COMPLETE and (is_repeated or version < VERSION_EPOCHS):
        if current.is_committed == commit:
            return None
        raise _wrong_state(current, commit)
    if current.state is not TransactionStatus.ONGOING and (commit or version < VERSION_EPOCHS):
        raise _wrong_state(current, commit)
    decided = TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT
    prepared = replace(current, state=decided, updated_ms=now_ms, version=version)
    if current.state is not TransactionStatus.ONGOING:
        prepared = replace(prepared, partitions={}, started_ms=now_ms)
    if version < VERSION_EPOCHS:
        return prepared
    assert spare_id != NONE or not current.is_exhausted
    return replace(
        prepared,
        producer=_bumped(current.producer),
        epoch_before=current.producer.epoch,
        id_next=spare_id if current.is_exhausted else NONE,
    )


def abort_and_fence(current: Transaction, now_ms: int) -> Transaction:
    """Abort the open transaction on the broker's decision, and fence its owner."""
    assert current.state is TransactionStatus.ONGOING
    return replace(
        current,
        state=TransactionStatus.PREPARE_ABORT,
        producer=_bumped(current.producer),
        epoch_before=NONE,
        version=0,
        updated_ms=now_ms,
    )


def ends_open_batches(prepared: Transaction, epoch: int) -> bool:
    """Return whether batches with this epoch, found open in a partition, end with the prepared
    transaction.

    After a crash they may be of the next transaction, if its first batch survived but the records
    of the prepared one's end and of its own beginning did not. That can happen only in version 2,
    where a batch joins by itself; there the next transaction has the next epoch. Or they may be of
    an earlier one that was not recorded and could not be aborted yet: that must not be committed.
    """
    moves_epoch = prepared.version >= VERSION_EPOCHS
    if prepared.is_committed:
        return epoch == prepared.producer.epoch - moves_epoch
    return not moves_epoch or epoch < prepared.producer.epoch


def owns_open_batches(current: Transaction, place: TopicPartition, epoch: int) -> bool:
    """Return whether batches with this epoch, found open in that partition, are of this
    transaction."""
    if place not in current.partitions:
        return False
    if current.state is TransactionStatus.ONGOING:
        return epoch == current.producer.epoch
    return current.state in PREPARED and ends_open_batches(current, epoch)


def complete(prepared: Transaction, now_ms: int) -> Transaction:
    """Return the state after all markers are written."""
    assert prepared.state in PREPARED
    done = replace(
        prepared,
        state=TransactionStatus.COMPLETE_COMMIT
        if prepared.is_committed
        else TransactionStatus.COMPLETE_ABORT,
        partitions={},
        updated_ms=now_ms,
    )
    if prepared.id_next == NONE:
        return done
    return replace(
        done,
        producer=ProducerIdentity(prepared.id_next, 0),
        id_before=prepared.producer.id,
        id_next=NONE,
    )


def check_owner(current: Transaction, producer: ProducerIdentity) -> None:
    """Raise unless the producer owns the transactional id."""
    if producer.id != current.producer.id:
        raise InvalidProducerMapping(
            f"transactional id {current.transactional_id!r} belongs to producer "
            f"{current.producer.id}, not {producer.id}"
        )
    if producer.epoch != current.producer.epoch:
        raise _fenced(current, producer.epoch)


def check_open(current: Transaction) -> None:
    """Raise ConcurrentTransactions while the transaction is being ended."""
    if current.state in PREPARED:
        raise ConcurrentTransactions("the transaction before is still being ended")


def _is_repeated_end(current: Transaction, producer: ProducerIdentity) -> bool:
    """Return whether this repeats the request that ended the transaction and raised the epoch."""
    if current.version < VERSION_EPOCHS or current.state not in PREPARED + COMPLETE:
        return False
    if producer == (current.id_before, _EPOCH_LAST) and current.producer.epoch == 0:
        return True
    return producer == (current.producer.id, current.producer.epoch - 1)


def _bumped(producer: ProducerIdentity) -> ProducerIdentity:
    return ProducerIdentity(producer.id, producer.epoch + 1)


def _fenced(current: Transaction, epoch: int) -> FencedProducer:
    return FencedProducer(
        f"transactional id {current.transactional_id!r} has epoch {current.producer.epoch}, "
        f"not {epoch}"
    )


def _wrong_state(current: Transaction, commit: bool) -> InvalidTransactionState:
    verb = "commit" if commit else "abort"
    return InvalidTransactionState(f"cannot {verb}: the transaction is {current.state.name}")
