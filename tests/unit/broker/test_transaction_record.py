"""The record of a transaction, byte by byte as Kafka's own classes write it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity, Transaction, TransactionStatus
from entrepot.broker.transaction_record import (
    forgotten_record,
    read_record,
    transaction_record,
)
from entrepot.core.errors import Corruption
from entrepot.core.record import Record

PAY = Transaction("pay", ProducerIdentity(1_000, 3), 60_000, 1_750_000_000_123)


def test_the_key() -> None:
    assert transaction_record(PAY).key == bytes.fromhex("0000 0003") + b"pay"
    assert forgotten_record("pay") == Record(bytes.fromhex("0000 0003") + b"pay", None)


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    assert transaction_record(PAY).value == bytes.fromhex(
        "0001 00000000000003e8 0003 0000ea60 00 00 000001977420dc7b ffffffffffffffff 00"
    )


def test_an_ongoing_one_has_its_partitions_by_topic() -> None:
    places = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 0)]
    ongoing = replace(
        PAY,
        state=TransactionStatus.ONGOING,
        partitions=dict.fromkeys(places),
        started_ms=1_750_000_000_000,
    )
    assert transaction_record(ongoing).value == bytes.fromhex(
        "0001 00000000000003e8 0003 0000ea60 01"
        "03 02 61 02 00000000 00  02 62 03 00000000 00000001 00"
        "000001977420dc7b 000001977420dc00 00"
    )


def test_producer_ids_and_the_version_are_tagged() -> None:
    done = replace(PAY, state=TransactionStatus.COMPLETE_ABORT, id_before=5, id_next=6, version=2)
    assert transaction_record(done).value == bytes.fromhex(
        "0001 00000000000003e8 0003 0000ea60 05 01 000001977420dc7b ffffffffffffffff"
        "03 00 08 0000000000000005 01 08 0000000000000006 02 02 0002"
    )


@given(
    st.text(max_size=300),
    st.sampled_from(TransactionStatus),
    st.dictionaries(
        st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), st.none()
    ),
    st.integers(-1, 2**63 - 1),
    st.sampled_from((0, 2)),
)
def test_what_is_written_is_read_back(
    transactional_id: str,
    state: TransactionStatus,
    partitions: dict[TopicPartition, None],
    number: int,
    version: int,
) -> None:
    written = Transaction(
        transactional_id,
        ProducerIdentity(number, 3),
        60_000,
        number,
        state,
        id_before=number,
        id_next=number,
        partitions={} if state is TransactionStatus.EMPTY else partitions,
        started_ms=number,
        version=version,
    )
    assert read_record(transaction_record(written)) == (transactional_id, written)


def test_what_is_forgotten_is_none() -> None:
    assert read_record(forgotten_record("pay")) == ("pay", None)


@given(st.integers(0, 60))
def test_a_record_that_is_cut_off_is_damage(size: int) -> None:
    whole = transaction_record(
        replace(PAY, state=TransactionStatus.ONGOING, partitions={TopicPartition("a", 0): None})
    )
    assert whole.key is not None
    assert whole.value is not None
    with pytest.raises(Corruption):
        read_record(whole._replace(value=whole.value[: size % len(whole.value)]))
    with pytest.raises(Corruption):
        read_record(whole._replace(key=whole.key[: size % len(whole.key)]))


def test_another_version_is_not_guessed_at() -> None:
    record = transaction_record(PAY)
    assert record.key is not None
    assert record.value is not None
    with pytest.raises(Corruption, match="version 2"):
        read_record(record._replace(value=b"\0\2" + record.value[2:]))
    with pytest.raises(Corruption, match="another version"):
        read_record(record._replace(key=b"\0\1" + record.key[2:]))
