"""Topics for queues and streams, and how a stream compares with what is declared."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from entrepot.broker.catalog import StoredQueue, Topic
from entrepot.broker.queue.settings import PLAIN, QueueSettings
from entrepot.broker.topic_config import check_settings, topic_config
from entrepot.broker.virtual_host.streams import queue_topic, spec_of, stream_topic
from entrepot.core.errors import QueueMismatch
from entrepot.core.names import TopicName
from entrepot.core.value import freeze_table
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration

ID = UUID(int=7)


def declared(name: str = "s", **arguments: Any) -> QueueDeclaration:
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return QueueDeclaration("/", name, freeze_table(table))


def stream(vhost: str = "/", name: str = "s", **arguments: Any) -> Topic:
    settings = declared(name, queue_type="stream", **arguments).spec().settings
    return stream_topic(vhost, name, settings, ID)


@pytest.mark.parametrize(
    ("vhost", "name", "is_hidden"),
    [
        ("/", "work", False),
        ("other", "work", True),
        ("/", "my work", True),
        ("/", "x" * 250, True),
        ("/", "..", True),
    ],
)
def test_who_sees_it(vhost: str, name: str, is_hidden: bool) -> None:
    for topic in (
        queue_topic(vhost, name, PLAIN, ID),
        stream(vhost, name),
    ):
        assert topic.is_hidden is is_hidden
        assert topic.directory_name == (f"$queue-{ID}" if is_hidden else name)


def test_nobody_sees_what_has_a_reserved_name() -> None:
    assert queue_topic("/", "work", PLAIN, ID, is_reserved=True).is_hidden
    assert stream_topic("/", "work", PLAIN, ID, is_reserved=True).is_hidden


def test_a_queue_has_a_partition_for_each_priority() -> None:
    topic = queue_topic("/", "q", QueueSettings(priority_max=3), ID)
    assert (topic.partition_count, topic.is_queue) == (4, True)


def test_what_is_set_on_a_queue_counts_before_the_servers_defaults() -> None:
    settings = QueueSettings(retention_ms=5, retention_bytes=6)
    topic = queue_topic("/", "q", settings, ID)
    check_settings(topic.settings)
    policy = topic_config(topic.settings, {"cleanup.policy": "compact"}).policy
    assert (policy.retention_ms, policy.retention_bytes) == (5, 6)
    assert (policy.expires, policy.compacts) == (True, False)
    usual = queue_topic("/", "q", PLAIN, ID)
    policy = topic_config(usual.settings, {"retention.bytes": "1"}).policy
    assert (policy.retention_ms, policy.retention_bytes) == (24 * 3_600_000, -1)


def test_nothing_goes_from_a_stream_unless_somebody_says_so() -> None:
    policy = topic_config(stream().settings, {"retention.ms": "1"}).policy
    assert (policy.retention_ms, policy.retention_bytes) == (-1, -1)
    made = stream(max_age="2D", max_length_bytes=100, stream_max_segment_size_bytes=3_000_000_000)
    check_settings(made.settings)
    policy = topic_config(made.settings, {}).policy
    assert (policy.retention_ms, policy.retention_bytes) == (2 * 24 * 3_600_000, 100)
    assert policy.segment_bytes == 2**31 - 1


def compare(topic: Topic, wanted: QueueDeclaration, stored: StoredQueue | None = None) -> None:
    wanted.check_same(spec_of(topic, stored))


def test_the_same() -> None:
    made = stream(max_age="2D", max_length_bytes=100)
    for wanted in (
        {},
        {"max_age": "48h"},
        {"max_age": "2D", "max_length_bytes": 100},
        {"queue_leader_locator": "balanced"},
    ):
        compare(made, declared(queue_type="stream", **wanted))


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({}, "arg 'x-queue-type' .* received 'classic' but current is 'stream'"),
        ({"queue_type": "quorum"}, "received 'quorum' but current is 'stream'"),
        (
            {"queue_type": "stream", "max_age": "1D"},
            "arg 'x-max-age' .* received '1D' but current is '172800s'",
        ),
        (
            {"queue_type": "stream", "max_length_bytes": 7},
            "arg 'x-max-length-bytes' .* received the value '7' of type '.*' but current is none",
        ),
    ],
)
def test_not_the_same(wanted: dict[str, Any], text: str) -> None:
    with pytest.raises(QueueMismatch, match=text):
        compare(stream(max_age="2D"), declared(**wanted))


def test_transient_streams_are_not_the_same() -> None:
    with pytest.raises(QueueMismatch, match="'durable'"):
        compare(stream(), replace(declared(queue_type="stream"), durable=False))


def test_a_hidden_one_knows_how_it_was_declared() -> None:
    made = declared(queue_type="stream", max_age="2D")
    topic = Topic(TopicName("s"), ID, 1, is_hidden=True)
    stored = StoredQueue("v", "s", topic, arguments=made.arguments)
    compare(topic, made, stored)
    with pytest.raises(QueueMismatch):
        compare(topic, declared(queue_type="stream"), stored)
