"""The catalog: records folded, the newest counting, as docs/formats/catalog.md has them."""

from uuid import UUID

from entrepot.broker.catalog import (
    Catalog,
    Topic,
    cluster_id_record,
    producer_id_record,
    start_record,
    topic_deleted_record,
    topic_record,
)
from entrepot.core.names import PartitionId, TopicName
from entrepot.core.record import Record

ID = UUID("12345678-1234-4678-9234-567812345678")
TOPIC = Topic(TopicName("orders"), ID, 3, {"retention.ms": "5"})


def folded(*records: Record) -> Catalog:
    catalog = Catalog()
    for record in records:
        catalog.apply(record)
    return catalog


def test_the_bytes_of_the_records() -> None:
    assert topic_record(TOPIC) == Record(
        b"topic:orders",
        b'{"id":"12345678-1234-4678-9234-567812345678","partitions":3,'
        b'"settings":{"retention.ms":"5"}}',
    )
    assert topic_deleted_record(TOPIC.name) == Record(b"topic:orders", None)
    assert start_record(PartitionId(ID, 2), 99) == Record(f"start:{ID}:2".encode(), b"99")
    assert producer_id_record(1_000) == Record(b"producer-id-next:", b"1000")
    assert cluster_id_record("abc") == Record(b"cluster-id:", b"abc")


def test_a_fold() -> None:
    catalog = folded(
        topic_record(TOPIC),
        start_record(PartitionId(ID, 2), 99),
        producer_id_record(1_000),
        cluster_id_record("abc"),
    )
    assert catalog.topics == {"orders": TOPIC}
    assert catalog.by_id == {ID: TOPIC}
    assert catalog.offset_starts == {PartitionId(ID, 2): 99}
    assert (catalog.producer_id_next, catalog.cluster_id) == (1_000, "abc")


def test_the_newest_counts() -> None:
    larger = Topic(TOPIC.name, ID, 5, {})
    catalog = folded(
        topic_record(TOPIC),
        topic_record(larger),
        start_record(PartitionId(ID, 0), 1),
        start_record(PartitionId(ID, 0), 7),
    )
    assert catalog.topics == {"orders": larger}
    assert catalog.by_id == {ID: larger}
    assert catalog.offset_starts == {PartitionId(ID, 0): 7}


def test_a_deletion_takes_everything_along() -> None:
    catalog = folded(
        topic_record(TOPIC), start_record(PartitionId(ID, 2), 9), topic_deleted_record(TOPIC.name)
    )
    assert (catalog.topics, catalog.by_id, catalog.offset_starts) == ({}, {}, {})


def test_a_topic_made_anew_has_another_id() -> None:
    again = Topic(TOPIC.name, UUID(int=9), 1, {})
    catalog = folded(topic_record(TOPIC), topic_deleted_record(TOPIC.name), topic_record(again))
    assert catalog.by_id == {UUID(int=9): again}


def test_kinds_of_later_versions_are_passed_over() -> None:
    assert folded(Record(b"something-new:x", b"y"), topic_record(TOPIC)).topics == {"orders": TOPIC}
