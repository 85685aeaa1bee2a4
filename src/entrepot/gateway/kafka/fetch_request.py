"""Reads what a fetch asks for: which partitions, and from where on."""

from __future__ import annotations

from entrepot.core.steps import Steps, finish
from entrepot.gateway.kafka.fetch_session import Key, Wanted
from entrepot.gateway.kafka.topics import topic_key
from entrepot.wire.kafka.fetch import FetchRequest


def asked_at_once(request: FetchRequest) -> tuple[list[Wanted], list[Key]]:
    """Do what `asked_in_steps` does, at once, for a request that is not long."""
    if len(request.topics) == 1 and not request.forgotten:
        name, topic_id, partitions = request.topics[0]
        if len(partitions) == 1:
            index, leader_epoch, offset, _, _, bytes_max = partitions[0]
            key = topic_key(name, topic_id), index
            return [Wanted(key, offset, bytes_max, leader_epoch)], []
    return finish(asked_in_steps(request))


def asked_in_steps(request: FetchRequest) -> Steps[tuple[list[Wanted], list[Key]]]:
    """Return the partitions that a request wants, and those it wants no longer. Of a partition that
    is named twice, the last counts."""
    asked: dict[Key, Wanted] = {}
    for topic in request.topics:
        name = topic_key(topic.name, topic.id)
        for each in topic.partitions:
            yield
            key = name, each.partition_index
            asked[key] = Wanted(
                key, each.fetch_offset, each.partition_max_bytes, each.current_leader_epoch
            )
    forgotten = [
        (topic_key(topic.name, topic.id), index)
        for topic in request.forgotten
        for index in topic.partitions
    ]
    return list(asked.values()), forgotten
