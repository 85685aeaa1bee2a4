"""The catalog: records folded, the newest counting, as docs/formats/catalog.md has them."""

import json
from dataclasses import replace
from uuid import UUID

from entrepot.broker.catalog import (
    Catalog,
    StoredQueue,
    Topic,
    cluster_id_record,
    is_topic_name,
    producer_id_record,
    queue_deleted_record,
    queue_record,
    start_record,
    topic_deleted_record,
    topic_record,
)
from entrepot.broker.queue.settings import QueueSettings, WhenFull
from entrepot.core.names import PartitionId, TopicName
from entrepot.core.record import Record

ID = UUID("12345678-1234-4678-9234-567812345678")
TOPIC = Topic(TopicName("orders"), ID, 3, {"retention.ms": "5"})
SEEN = Topic(TopicName("work"), UUID(int=1), 2, {"retention.ms": "6"}, is_queue=True)
HIDDEN = Topic(TopicName("my work"), UUID(int=2), 1, is_queue=True, is_hidden=True)
QUEUE = StoredQueue(
    "/",
    "work",
    SEEN,
    settings=QueueSettings(when_full=WhenFull.REFUSE, priority_max=1),
    arguments=(("x-max-priority", 1), ("y", ("bool", True))),
)
OTHER = StoredQueue("v", "my work", HIDDEN, auto_delete=True)


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


# --- queues


def test_the_bytes_of_a_queues_records() -> None:
    assert queue_record(QUEUE) == Record(
        b'queue:["/", "work"]',
        b'{"id": "00000000-0000-0000-0000-000000000001", "partitions": 2, '
        b'"settings": {"retention.ms": "6"}, "is_queue": true, "is_hidden": false, '
        b'"auto_delete": false, "queue_settings": {"when_full": "refuse", "priority_max": 1}, '
        b'"arguments": [["x-max-priority", 1], ["y", ["bool", true]]]}',
    )
    assert queue_deleted_record("/", "w\udcff") == Record(b'queue:["/", "w\\udcff"]', None)


def test_a_queue_of_an_older_release() -> None:
    written = queue_record(QUEUE)
    facts = json.loads(written.value or b"")
    del facts["queue_settings"]
    catalog = folded(Record(written.key, json.dumps(facts).encode()))
    assert catalog.queues == {("/", "work"): replace(QUEUE, settings=None)}


def test_a_fold_with_queues() -> None:
    catalog = folded(topic_record(TOPIC), queue_record(QUEUE), queue_record(OTHER))
    assert catalog.queues == {("/", "work"): QUEUE, ("v", "my work"): OTHER}
    assert catalog.topics == {"orders": TOPIC, "work": SEEN}
    assert catalog.by_id == {ID: TOPIC, SEEN.id: SEEN}
    assert list(catalog.all_topics()) == [TOPIC, SEEN, HIDDEN]
    assert [each.directory_name for each in catalog.all_topics()] == [
        "orders",
        "work",
        "$queue-00000000-0000-0000-0000-000000000002",
    ]


def test_a_queue_that_goes() -> None:
    catalog = folded(
        queue_record(QUEUE),
        queue_record(OTHER),
        queue_deleted_record("/", "work"),
        queue_deleted_record("v", "my work"),
        queue_deleted_record("v", "my work"),  # With its virtual host, at the same time.
    )
    assert (catalog.queues, catalog.topics, catalog.by_id) == ({}, {}, {})


def test_names_of_queues_that_are_names_of_topics() -> None:
    names = ["work", "a.b_c-d", "", "..", "a b", "a/b", "x" * 250]
    assert [is_topic_name(name) for name in names] == [True, True] + [False] * 5
