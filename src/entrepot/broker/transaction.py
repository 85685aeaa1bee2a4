"""A transaction, as a value: what is known of a transactional id, and what may come next.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing ...

Each verb takes the state there is and returns the one that follows, or raises what is
wrong with the request; recording it and acting on it are the coordinator's. What is
prepared is decided: the markers in the partitions follow from it, after a crash too.

Who owns a transactional id is told by the producer's epoch: a newcomer gets the next one,
and whoever still uses an older one is fenced. In transaction version 2 every end of a
transaction moves the epoch as well, so that not even the same producer's delayed batches
fall into its next transaction. When the epochs of a producer id are used up, another id
takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from entrepot.broker.consumer_group.offsets import Place
from entrepot.core import limits
from entrepot.core.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidProducerMapping,
    InvalidTransactionState,
    NotInTransaction,
    PeerError,
)

NONE = -1  # No producer id, no epoch, no time.
_EPOCH_LAST = 2**15 - 2  # The last one a producer gets; one more is left to fence it with.
VERSION_EPOCHS = 2  # From this transaction version on, every end moves the epoch.
TIMEOUT_NEVER = 2**31 - 1  # Kafka's mark of two-phase commit: somebody else will decide.


class State(IntEnum):  # Persisted: Kafka's numbers.
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
_COMMITS = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


class Producer(NamedTuple):
    """Who asks."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    producer: Producer
    timeout_ms: int
    updated_ms: int
    state: State = State.EMPTY
    # The epoch before, when its owner moved it: a retry of that request names it.
    epoch_before: int = NONE
    id_before: int = NONE  # The producer id whose epochs were used up.
    id_next: int = NONE  # The one that takes over once the markers are written.
    partitions: Mapping[Place, None] = field(default_factory=dict)  # In the order they came.
    started_ms: int = NONE
    version: int = 0  # Transaction version of the last end. 0: before versions, or ours.

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
    """A transactional id that nobody had."""
    return Transaction(transactional_id, Producer(producer_id, 0), timeout_ms, now_ms)


def initialise(
    current: Transaction, timeout_ms: int, known: Producer | None, spare_id: int, now_ms: int
) -> Transaction:
    """A producer takes the transactional id, or, naming who it is, a fresh epoch.

    The transaction before it has ended: an open one is aborted first. The spare id is
    used when `is_exhausted`.
    """
    check_open(current)
    assert current.state is not State.ONGOING
    if known is not None:
        _check_known(current, known)
    before = current.producer.epoch if known is not None else NONE
    if known is not None and known.epoch == current.epoch_before:
        producer, before, id_before = current.producer, current.epoch_before, current.id_before
    elif current.is_exhausted:
        assert spare_id != NONE
        producer, id_before = Producer(spare_id, 0), current.producer.id
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


def check_initialise(current: Transaction, known: Producer | None) -> None:
    """Raises what `initialise` would raise once the open transaction is aborted."""
    check_open(current)
    if known is not None:
        _check_known(current, known)


def _check_known(current: Transaction, known: Producer) -> None:
    """A producer that goes on is the owner, or repeats a request that was answered."""
    if known == current.producer:
        return
    is_same = known.id == current.producer.id
    was_rotated = known.id == current.id_before and known.epoch >= _EPOCH_LAST
    if not (is_same or was_rotated) or known.epoch != current.epoch_before:
        raise _fenced(current, known.epoch)


def add(
    current: Transaction,
    producer: Producer,
    partitions: Iterable[Place],
    now_ms: int,
) -> Transaction | None:
    """Partitions join the transaction, or begin it; None when they are all in it."""
    check_owner(current, producer)
    check_open(current)
    before = current.partitions if current.state is State.ONGOING else {}
    after = {**before, **dict.fromkeys(partitions)}
    if len(after) > limits.TRANSACTION_PARTITIONS_MAX:
        raise PeerError(f"more than {limits.TRANSACTION_PARTITIONS_MAX} partitions")
    if current.state is State.ONGOING:
        if len(after) == len(before):
            return None
        return replace(current, partitions=after, updated_ms=now_ms)
    return replace(
        current,
        state=State.ONGOING,
        partitions=after,
        started_ms=now_ms,
        updated_ms=now_ms,
    )


def check_member(current: Transaction, producer: Producer, place: Place) -> None:
    """Whether the producer may write there now."""
    check_owner(current, producer)
    check_open(current)
    if current.state is not State.ONGOING or place not in current.partitions:
        raise NotInTransaction(f"{place.topic}-{place.partition} is not in the transaction")


def end(
    current: Transaction,
    producer: Producer,
    *,
    commit: bool,
    version: int,
    spare_id: int,
    now_ms: int,
) -> Transaction | None:
    """The owner decides; None when it only repeats what was done.

    The spare id is used when `is_exhausted` and the version moves epochs.
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
    if current.state is not State.ONGOING and (commit or version < VERSION_EPOCHS):
        raise _wrong_state(current, commit)
    decided = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    prepared = replace(current, state=decided, updated_ms=now_ms, version=version)
    if current.state is not State.ONGOING:
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
    """We decide: the open transaction is aborted and its owner has lost its epoch."""
    assert current.state is State.ONGOING
    return replace(
        current,
        state=State.PREPARE_ABORT,
        producer=_bumped(current.producer),
        epoch_before=NONE,
        version=0,
        updated_ms=now_ms,
    )


def has_written(prepared: Transaction, epoch: int) -> bool:
    """Whether what its producer wrote in that epoch, and has not ended, is to end with it.

    After a crash it may be of the next one, if its first batch survived and the records of the
    last one's end and of its own beginning did not. That takes version 2, where a batch joins by
    itself; and there the next transaction has the next epoch. Or it is of one before, which
    nobody knew of and which could not be aborted yet: that must not be committed.
    """
    moves_epoch = prepared.version >= VERSION_EPOCHS
    if prepared.is_committed:
        return epoch == prepared.producer.epoch - moves_epoch
    return not moves_epoch or epoch < prepared.producer.epoch


def is_writing(current: Transaction, place: Place, epoch: int) -> bool:
    """Whether what its producer wrote there in that epoch, and has not ended, is known of."""
    if place not in current.partitions:
        return False
    if current.state is State.ONGOING:
        return epoch == current.producer.epoch
    return current.state in PREPARED and has_written(current, epoch)


def complete(prepared: Transaction, now_ms: int) -> Transaction:
    """The markers are written."""
    assert prepared.state in PREPARED
    done = replace(
        prepared,
        state=State.COMPLETE_COMMIT if prepared.is_committed else State.COMPLETE_ABORT,
        partitions={},
        updated_ms=now_ms,
    )
    if prepared.id_next == NONE:
        return done
    return replace(
        done,
        producer=Producer(prepared.id_next, 0),
        id_before=prepared.producer.id,
        id_next=NONE,
    )


def check_owner(current: Transaction, producer: Producer) -> None:
    if producer.id != current.producer.id:
        raise InvalidProducerMapping(
            f"transactional id {current.transactional_id!r} belongs to producer "
            f"{current.producer.id}, not {producer.id}"
        )
    if producer.epoch != current.producer.epoch:
        raise _fenced(current, producer.epoch)


def check_open(current: Transaction) -> None:
    if current.state in PREPARED:
        raise ConcurrentTransactions("the transaction before is still being ended")


def _is_repeated_end(current: Transaction, producer: Producer) -> bool:
    """Whether this asks for the end that moved the epoch to where it is."""
    if current.version < VERSION_EPOCHS or current.state not in PREPARED + COMPLETE:
        return False
    if producer == (current.id_before, _EPOCH_LAST) and current.producer.epoch == 0:
        return True
    return producer == (current.producer.id, current.producer.epoch - 1)


def _bumped(producer: Producer) -> Producer:
    return Producer(producer.id, producer.epoch + 1)


def _fenced(current: Transaction, epoch: int) -> FencedProducer:
    return FencedProducer(
        f"transactional id {current.transactional_id!r} has epoch {current.producer.epoch}, "
        f"not {epoch}"
    )


def _wrong_state(current: Transaction, commit: bool) -> InvalidTransactionState:
    verb = "commit" if commit else "abort"
    return InvalidTransactionState(f"cannot {verb}: the transaction is {current.state.name}")
