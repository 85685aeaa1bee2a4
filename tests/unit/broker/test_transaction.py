"""The machine, verb by verb. What it refuses is as much a part of it as what it does."""

from dataclasses import replace

import pytest

from entrepot.broker import transaction
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import NONE, ProducerIdentity, Transaction, TransactionStatus
from entrepot.core import limits
from entrepot.core.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidProducerMapping,
    InvalidTransactionState,
    NotInTransaction,
    PeerError,
)

ME, OTHER, BEFORE = ProducerIdentity(7, 3), ProducerIdentity(8, 3), ProducerIdentity(7, 2)
LAST = 32_766  # The last epoch a producer is given.
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
V1, V2 = 0, 2


def known(state: TransactionStatus, producer: ProducerIdentity = ME, **more: object) -> Transaction:
    partitions = {P0: None} if state in (TransactionStatus.ONGOING, *transaction.PREPARED) else {}
    start = Transaction("pay", producer, 60_000, 100, state, partitions=partitions, started_ms=50)
    return replace(start, **more)


def end(
    current: Transaction, who: ProducerIdentity = ME, *, commit: bool = True, version: int = V1
):
    return transaction.end(current, who, commit=commit, version=version, spare_id=99, now_ms=200)


# --- taking the transactional id


def test_a_new_id_starts_with_epoch_0() -> None:
    fresh = transaction.begin("pay", 7, 60_000, 100)
    assert (fresh.producer, fresh.state, fresh.partitions) == (
        ProducerIdentity(7, 0),
        TransactionStatus.EMPTY,
        {},
    )


@pytest.mark.parametrize("state", [TransactionStatus.EMPTY, *transaction.COMPLETE])
def test_a_newcomer_gets_the_next_epoch(state: TransactionStatus) -> None:
    taken = transaction.initialise(known(state), 5_000, None, NONE, 200)
    assert (taken.producer, taken.state) == (ProducerIdentity(7, 4), TransactionStatus.EMPTY)
    assert (taken.timeout_ms, taken.updated_ms, taken.started_ms) == (5_000, 200, NONE)
    with pytest.raises(FencedProducer):
        transaction.add(taken, ME, [P0], 300)


def test_the_owner_gets_the_next_epoch_and_may_ask_twice() -> None:
    bumped = transaction.initialise(known(TransactionStatus.EMPTY), 5_000, ME, NONE, 200)
    assert bumped.producer == ProducerIdentity(7, 4)
    again = transaction.initialise(bumped, 5_000, ME, NONE, 300)
    assert again.producer == ProducerIdentity(7, 4)
    assert transaction.initialise(again, 5_000, again.producer, NONE, 400).producer.epoch == 5


@pytest.mark.parametrize("who", [BEFORE, OTHER, ProducerIdentity(7, 4)])
def test_who_is_not_the_owner_gets_nothing(who: ProducerIdentity) -> None:
    with pytest.raises(FencedProducer):
        transaction.initialise(known(TransactionStatus.COMPLETE_COMMIT), 5_000, who, NONE, 200)
    with pytest.raises(FencedProducer):
        transaction.check_initialise(known(TransactionStatus.ONGOING), who)


def test_a_newcomer_makes_the_owner_a_stranger_although_it_asked_before() -> None:
    bumped = transaction.initialise(known(TransactionStatus.EMPTY), 5_000, ME, NONE, 200)
    taken = transaction.initialise(bumped, 5_000, None, NONE, 300)
    with pytest.raises(FencedProducer):
        transaction.initialise(taken, 5_000, ME, NONE, 400)


@pytest.mark.parametrize("asked", [None, ProducerIdentity(7, LAST)])
def test_after_the_last_epoch_comes_another_producer_id(asked: ProducerIdentity | None) -> None:
    current = known(TransactionStatus.COMPLETE_ABORT, ProducerIdentity(7, LAST))
    rotated = transaction.initialise(current, 5_000, asked, 99, 200)
    assert (rotated.producer, rotated.id_before) == (ProducerIdentity(99, 0), 7)
    if asked is not None:
        again = transaction.initialise(rotated, 5_000, asked, NONE, 300)
        assert again.producer == ProducerIdentity(99, 0)


@pytest.mark.parametrize("state", transaction.PREPARED)
def test_nothing_is_taken_while_the_markers_are_on_the_way(state: TransactionStatus) -> None:
    for verb in (
        lambda: transaction.initialise(known(state), 5_000, None, NONE, 200),
        lambda: transaction.check_initialise(known(state), ME),
        lambda: transaction.add(known(state), ME, [P1], 200),
        lambda: transaction.check_member(known(state), ME, P0),
    ):
        with pytest.raises(ConcurrentTransactions):
            verb()


# --- partitions


@pytest.mark.parametrize("state", [TransactionStatus.EMPTY, *transaction.COMPLETE])
def test_the_first_partition_begins_a_transaction(state: TransactionStatus) -> None:
    ongoing = transaction.add(known(state), ME, [P0], 200)
    assert ongoing is not None
    assert (ongoing.state, ongoing.started_ms) == (TransactionStatus.ONGOING, 200)
    assert list(ongoing.partitions) == [P0]


def test_partitions_are_added_once() -> None:
    more = transaction.add(known(TransactionStatus.ONGOING), ME, [P0, P1], 200)
    assert more is not None
    assert (list(more.partitions), more.started_ms, more.updated_ms) == ([P0, P1], 50, 200)
    assert transaction.add(more, ME, [P1], 300) is None


def test_a_transaction_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_PARTITIONS_MAX", 3)
    current = transaction.add(
        known(TransactionStatus.EMPTY), ME, [TopicPartition("t", n) for n in range(3)], 1
    )
    assert current is not None
    assert transaction.add(current, ME, [TopicPartition("t", 2)], 1) is None
    with pytest.raises(PeerError):
        transaction.add(current, ME, [TopicPartition("t", 3)], 1)


def test_only_the_owner_adds_and_writes() -> None:
    for who, error in ((BEFORE, FencedProducer), (OTHER, InvalidProducerMapping)):
        for state in (
            TransactionStatus.EMPTY,
            TransactionStatus.ONGOING,
            TransactionStatus.COMPLETE_COMMIT,
        ):
            with pytest.raises(error):
                transaction.add(known(state), who, [P0], 200)
            with pytest.raises(error):
                transaction.check_member(known(state), who, P0)


def test_only_partitions_of_the_open_transaction_are_written() -> None:
    transaction.check_member(known(TransactionStatus.ONGOING), ME, P0)
    with pytest.raises(NotInTransaction):
        transaction.check_member(known(TransactionStatus.ONGOING), ME, P1)
    for state in (TransactionStatus.EMPTY, *transaction.COMPLETE):
        with pytest.raises(NotInTransaction):
            transaction.check_member(known(state), ME, P0)


# --- the end

DONE, BUSY, WRONG = "done", ConcurrentTransactions, InvalidTransactionState


@pytest.mark.parametrize(
    ("state", "commit", "v1", "v2"),
    [
        (TransactionStatus.EMPTY, True, WRONG, WRONG),
        (TransactionStatus.EMPTY, False, WRONG, TransactionStatus.PREPARE_ABORT),
        (
            TransactionStatus.ONGOING,
            True,
            TransactionStatus.PREPARE_COMMIT,
            TransactionStatus.PREPARE_COMMIT,
        ),
        (
            TransactionStatus.ONGOING,
            False,
            TransactionStatus.PREPARE_ABORT,
            TransactionStatus.PREPARE_ABORT,
        ),
        (TransactionStatus.PREPARE_COMMIT, True, BUSY, BUSY),
        (TransactionStatus.PREPARE_COMMIT, False, WRONG, WRONG),
        (TransactionStatus.PREPARE_ABORT, True, WRONG, WRONG),
        (TransactionStatus.PREPARE_ABORT, False, BUSY, BUSY),
        (TransactionStatus.COMPLETE_COMMIT, True, DONE, WRONG),
        (TransactionStatus.COMPLETE_COMMIT, False, WRONG, TransactionStatus.PREPARE_ABORT),
        (TransactionStatus.COMPLETE_ABORT, True, WRONG, WRONG),
        (TransactionStatus.COMPLETE_ABORT, False, DONE, TransactionStatus.PREPARE_ABORT),
    ],
)
def test_ending(state: TransactionStatus, commit: bool, v1: object, v2: object) -> None:
    """By the owner, with the epoch it has."""
    for version, expected in ((V1, v1), (V2, v2)):
        if isinstance(expected, type):
            with pytest.raises(expected):
                end(known(state), commit=commit, version=version)
            continue
        prepared = end(known(state), commit=commit, version=version)
        if expected is DONE:
            assert prepared is None
        else:
            assert prepared is not None
            assert prepared.state is expected
            assert prepared.producer == ProducerIdentity(7, 3 if version == V1 else 4)
            assert list(prepared.partitions) == ([P0] if state is TransactionStatus.ONGOING else [])


@pytest.mark.parametrize("who", [BEFORE, OTHER, ProducerIdentity(7, 4)])
def test_only_the_owner_ends(who: ProducerIdentity) -> None:
    error = InvalidProducerMapping if who is OTHER else FencedProducer
    for state in (
        TransactionStatus.EMPTY,
        TransactionStatus.ONGOING,
        TransactionStatus.COMPLETE_COMMIT,
    ):
        for version in (V1, V2):
            with pytest.raises(error):
                end(known(state), who, version=version)


@pytest.mark.parametrize("commit", [True, False])
def test_in_version_2_the_end_moves_the_epoch_and_may_be_repeated(commit: bool) -> None:
    prepared = end(known(TransactionStatus.ONGOING), commit=commit, version=V2)
    assert prepared is not None
    with pytest.raises(ConcurrentTransactions):
        end(prepared, commit=commit, version=V2)
    done = transaction.complete(prepared, 300)
    assert done.producer == ProducerIdentity(7, 4)
    assert done.state in transaction.COMPLETE
    assert end(done, commit=commit, version=V2) is None
    with pytest.raises(InvalidTransactionState):
        end(done, commit=not commit, version=V2)
    with pytest.raises(FencedProducer):
        transaction.add(done, ME, [P0], 400)
    ongoing = transaction.add(done, ProducerIdentity(7, 4), [P0], 400)
    assert ongoing is not None
    with pytest.raises(FencedProducer):
        end(ongoing, commit=commit, version=V2)


def test_in_version_2_the_last_epoch_ends_with_another_producer_id() -> None:
    owner = ProducerIdentity(7, LAST)
    prepared = end(known(TransactionStatus.ONGOING, owner), owner, version=V2)
    assert prepared is not None
    assert (prepared.producer, prepared.id_next) == (ProducerIdentity(7, LAST + 1), 99)
    done = transaction.complete(prepared, 300)
    assert (done.producer, done.id_before, done.id_next) == (ProducerIdentity(99, 0), 7, NONE)
    assert end(done, owner, version=V2) is None
    with pytest.raises(InvalidProducerMapping):
        end(done, ProducerIdentity(7, LAST - 1), version=V2)


def test_what_we_abort_ourselves_costs_the_owner_its_epoch() -> None:
    prepared = transaction.abort_and_fence(known(TransactionStatus.ONGOING, version=V2), 200)
    assert (prepared.state, prepared.producer) == (
        TransactionStatus.PREPARE_ABORT,
        ProducerIdentity(7, 4),
    )
    done = transaction.complete(prepared, 300)
    assert (done.state, list(done.partitions)) == (TransactionStatus.COMPLETE_ABORT, [])
    for version in (V1, V2):
        for commit in (True, False):
            with pytest.raises(FencedProducer):
                end(done, commit=commit, version=version)


def test_even_the_last_epoch_can_be_fenced() -> None:
    prepared = transaction.abort_and_fence(
        known(TransactionStatus.ONGOING, ProducerIdentity(7, LAST)), 200
    )
    assert prepared.producer.epoch == LAST + 1 == 2**15 - 1
    done = transaction.complete(prepared, 300)
    assert transaction.initialise(done, 5_000, None, 99, 400).producer == ProducerIdentity(99, 0)
