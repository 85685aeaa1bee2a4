"""The metrics of partitions, queues and consumer groups, one by one, up to a limit.

The limit is a setting, and holds for each kind. Beyond it they count in the totals only, and
`entrepot_rows_left_out` says how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.queue.queue import Queue
from entrepot.core.errors import UnknownTopic, UnknownVhost
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Context
from entrepot.gateway.http.management.metrics_text import Column, Labels, Rows

Row = tuple[Labels, tuple[float, ...]]
Look = Callable[[], Row | None]  # None means: it is gone, or cannot be read.

_PARTITION = (
    Column("partition_log_start_offset", "The offset of the oldest record."),
    Column("partition_log_end_offset", "The offset after the newest record."),
    Column("partition_size_bytes", "The size of the partition's segments."),
)
_QUEUE = (
    Column("queue_messages_ready", "Messages that can be delivered."),
    Column("queue_messages_leased", "Messages that are delivered and not acknowledged."),
    Column("queue_messages_deferred", "Messages that are not to be delivered before some time."),
    Column("queue_consumers", "Consumers."),
    Column("queue_messages_accepted", "Messages that came since the queue was opened.", True),
    Column("queue_messages_consumed", "Messages that were settled by their consumers.", True),
    Column("queue_messages_dead_lettered", "Messages that became dead letters elsewhere.", True),
    Column("queue_messages_dropped", "Messages that a policy or a purge removed.", True),
)
_GROUP = (
    Column("group_lag", "Records that the group has not committed to have read."),
    Column("group_committed_offset", "Where the group continues to read."),
)


def all_rows(context: Context) -> Steps[list[Rows]]:
    return [
        (yield from _partitions(context)),
        (yield from _queues(context)),
        (yield from _groups(context)),
    ]


def rows_of(
    kind: str, labels: Labels, columns: Sequence[Column], looks: Iterator[Look], count_max: int
) -> Steps[Rows]:
    """Look at as many as may be listed, and count the others."""
    found: dict[Labels, tuple[float, ...]] = {}
    count = 0
    for look in looks:
        count += 1
        if len(found) < count_max:
            row = look()
            if row is not None:
                found[row[0]] = row[1]
        yield
    return Rows(kind, labels, columns, found, count)


def _partitions(context: Context) -> Steps[Rows]:
    broker = context.broker

    def row(name: str, index: int) -> Row | None:
        with suppress(UnknownTopic):  # It may be deleted by now.
            partition = broker.served_partition(broker.topic(name), index).partition
            sizes = partition.offset_start, partition.offset_end, partition.size
            return (name, str(index)), sizes
        return None

    topics = [
        topic
        for topic in broker.topics.values()
        if not topic.is_queue and not broker.is_internal(topic.name)
    ]
    looks = (
        lambda name=topic.name, index=index: row(name, index)
        for topic in topics
        for index in range(topic.partition_count)
    )
    count_max = context.sources.rows_max
    return (yield from rows_of("partition", ("topic", "partition"), _PARTITION, looks, count_max))


def _queues(context: Context) -> Steps[Rows]:
    def row(queue: Queue) -> Row | None:
        if queue.fault is not None:
            return None
        ready, leased, deferred = queue.ready_count, queue.unacked_count, queue.deferred_count
        now = ready, leased, deferred, queue.consumer_count
        return (queue.vhost, queue.name), (*now, *queue.turnover)

    queues: list[Queue] = []
    for name in list(context.broker.vhosts.names):
        with suppress(UnknownVhost):  # It may be about to be deleted.
            queues += context.broker.vhosts.get(name).queues.values()
    looks = (lambda queue=queue: row(queue) for queue in queues)
    count_max = context.sources.rows_max
    return (yield from rows_of("queue", ("vhost", "queue"), _QUEUE, looks, count_max))


def _groups(context: Context) -> Steps[Rows]:
    broker = context.broker

    def row(group: str, place: TopicPartition, offset: int) -> Row | None:
        topic, index = place
        with suppress(UnknownTopic):
            partition = broker.served_partition(broker.topic(topic), index).partition
            lag = max(0, partition.high_watermark - max(offset, partition.offset_start))
            return (group, topic, str(index)), (lag, offset)
        return None

    looks = (
        lambda group=group, place=place, offset=stored.offset: row(group, place, offset)
        for group in broker.groups.ids
        for place, stored in list(broker.groups.committed(group).items())
    )
    count_max = context.sources.rows_max
    labels = ("group", "topic", "partition")
    return (yield from rows_of("group", labels, _GROUP, looks, count_max))
