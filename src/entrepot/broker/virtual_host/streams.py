"""Where the messages of queues and streams are: the topics, and what is set on them.

A stream that AMQP declares is a topic with one partition. In the first virtual host, and with
a name that a topic may have, it is a topic for everybody; else only its virtual host knows
it. The same goes for the partitions of a queue, which Kafka's clients can read that way.
"""

from __future__ import annotations

from uuid import UUID

from entrepot.broker.catalog import StoredQueue, Topic, is_topic_name
from entrepot.broker.queue.arguments import QueueArguments, QueueSpec, parse_arguments
from entrepot.broker.router.value import Frozen, FrozenTable
from entrepot.broker.virtual_host.records import DEFAULT_VHOST
from entrepot.core import limits
from entrepot.core.names import TopicName

_TYPE = "x-queue-type"
# The arguments of a stream that are settings of its topic.
_AGE, _SIZE, _SEGMENT = "x-max-age", "x-max-length-bytes", "x-stream-max-segment-size-bytes"
_SETTINGS = {_AGE: "retention.ms", _SIZE: "retention.bytes", _SEGMENT: "segment.bytes"}


def queue_topic(vhost: str, name: str, arguments: QueueArguments, identity: UUID) -> Topic:
    """For a queue that survives. What is not settled is kept, whatever the settings say."""
    kept_bytes = -1 if arguments.retention_bytes is None else arguments.retention_bytes
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": str(arguments.retention_ms),
        "retention.bytes": str(kept_bytes),
        "segment.bytes": str(limits.QUEUE_SEGMENT_BYTES),
    }
    is_hidden = not _is_for_everybody(vhost, name)
    count = arguments.lane_count
    return Topic(TopicName(name), identity, count, settings, is_queue=True, is_hidden=is_hidden)


def stream_topic(vhost: str, name: str, arguments: QueueArguments, identity: UUID) -> Topic:
    is_hidden = not _is_for_everybody(vhost, name)
    settings = _stream_settings(arguments)
    return Topic(TopicName(name), identity, 1, settings, is_hidden=is_hidden)


def _is_for_everybody(vhost: str, name: str) -> bool:
    return vhost == DEFAULT_VHOST and is_topic_name(name)


def _stream_settings(arguments: QueueArguments) -> dict[str, str]:
    """As RabbitMQ has it, nothing is taken from a stream unless somebody says so."""
    settings = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(limits.STREAM_BATCH_BYTES_MAX),
        "retention.ms": str(arguments.age_ms_max or -1),
    }
    if arguments.length_bytes_max is not None:
        settings["retention.bytes"] = str(arguments.length_bytes_max)
    if arguments.segment_bytes is not None:
        least, most = limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX
        settings["segment.bytes"] = str(min(max(arguments.segment_bytes, least), most))
    return settings


def spec_of(vhost: str, topic: Topic, stored: StoredQueue | None, wanted: QueueSpec) -> QueueSpec:
    """A stream as it would have been declared, to be compared with what is wanted.

    A topic's settings are others' to change, too: so of a topic for everybody, those count
    that the declaration speaks of.
    """
    if stored is not None:
        return QueueSpec(topic.name, durable=True, arguments=stored.arguments)
    found: dict[str, Frozen] = dict(wanted.arguments)
    if found.get(_TYPE) == "stream":
        durable = QueueSpec(topic.name, durable=True, arguments=wanted.arguments)
        settings = _stream_settings(parse_arguments(vhost, durable))
        for argument, setting in _SETTINGS.items():
            has, wants = topic.settings.get(setting), settings.get(setting)
            if argument in found and has != wants:
                found[argument] = _as_argument(argument, has)
    found[_TYPE] = "stream"
    arguments: FrozenTable = tuple(sorted(found.items()))
    return QueueSpec(topic.name, durable=True, arguments=arguments)


def _as_argument(argument: str, setting: str | None) -> Frozen:
    if setting is None or int(setting) < 0:
        return None
    return f"{int(setting) // 1_000}s" if argument == _AGE else int(setting)
