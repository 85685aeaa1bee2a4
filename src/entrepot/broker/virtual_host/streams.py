"""The topics that store the messages of queues and streams, and the settings of these topics.

A stream that is declared like a queue is a topic with one partition. In the first virtual
host, if a topic may have its name, all clients can use it as a topic; otherwise it is hidden, and
only its virtual host knows it. The same goes for a queue: unless hidden, it can be read as a topic.
"""

from __future__ import annotations

from uuid import UUID

from entrepot.broker.catalog import StoredQueue, Topic, is_topic_name
from entrepot.broker.queue.settings import QueueSettings, QueueSpec
from entrepot.broker.virtual_host.records import DEFAULT_VHOST
from entrepot.core import limits
from entrepot.core.names import TopicName


def queue_topic(
    vhost: str, name: str, settings: QueueSettings, identity: UUID, *, is_reserved: bool = False
) -> Topic:
    """Return the topic of a durable queue, with one partition for each lane.

    Its retention deletes only settled messages.
    """
    kept_bytes = -1 if settings.retention_bytes is None else settings.retention_bytes
    topic_settings = {
        "cleanup.policy": "delete",
        "retention.ms": str(settings.retention_ms),
        "retention.bytes": str(kept_bytes),
        "segment.bytes": str(limits.QUEUE_SEGMENT_BYTES),
    }
    is_hidden = is_reserved or not _is_for_everybody(vhost, name)
    count = settings.lane_count
    return Topic(
        TopicName(name), identity, count, topic_settings, is_queue=True, is_hidden=is_hidden
    )


def stream_topic(
    vhost: str, name: str, settings: QueueSettings, identity: UUID, *, is_reserved: bool = False
) -> Topic:
    is_hidden = is_reserved or not _is_for_everybody(vhost, name)
    return Topic(TopicName(name), identity, 1, _stream_settings(settings), is_hidden=is_hidden)


def _is_for_everybody(vhost: str, name: str) -> bool:
    return vhost == DEFAULT_VHOST and is_topic_name(name)


def _stream_settings(settings: QueueSettings) -> dict[str, str]:
    """Return the topic's settings. By default a stream keeps everything."""
    found = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(limits.STREAM_BATCH_BYTES_MAX),
        "retention.ms": str(settings.age_ms_max or -1),
    }
    if settings.length_bytes_max is not None:
        found["retention.bytes"] = str(settings.length_bytes_max)
    if settings.segment_bytes is not None:
        found["segment.bytes"] = str(settings.segment_bytes)
    return found


def spec_of(topic: Topic, stored: StoredQueue | None) -> QueueSpec:
    """Return the declaration that would make this stream."""
    if stored is not None:
        return QueueSpec(
            topic.name,
            durable=True,
            settings=QueueSettings(is_stream=True),
            arguments=stored.arguments,
        )
    settings = QueueSettings(
        is_stream=True,
        age_ms_max=_number(topic, "retention.ms"),
        length_bytes_max=_number(topic, "retention.bytes"),
        segment_bytes=_number(topic, "segment.bytes"),
    )
    return QueueSpec(topic.name, durable=True, settings=settings)


def _number(topic: Topic, name: str) -> int | None:
    """Return a setting of a topic. None means: not set, or no limit."""
    value = int(topic.settings.get(name, -1))
    return None if value < 0 else value
