"""What the members of a consumer group tell each other, and how their leader divides.

To the broker these are bytes; their format is Kafka's consumer protocol, so a member may
be of any library. It begins with a version: each version appends to the one before, so
what is newer than ours is read as the newest we know. We write the oldest, which says
all we have to say.

The division is Kafka's `range`: of each topic, every subscriber gets a run of partitions.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v0.data import TopicPartition as TopicPartitions
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription
from kio.schema.types import TopicName
from kio.static.primitive import i32

from entrepot.client.client import TopicPartition, by_topic
from entrepot.client.errors import BadAnswer
from entrepot.core.errors import MalformedFrame
from entrepot.wire.kafka.encoding import INT16
from entrepot.wire.kafka.layout import decode, encode

RANGE = "range"
_VERSION = INT16.pack(0)

_Message = TypeVar("_Message")


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]


def encode_subscription(topics: Iterable[str]) -> bytes:
    message = ConsumerProtocolSubscription(topics=tuple(topics), user_data=None)
    return _VERSION + encode(message, ConsumerProtocolSubscription)


def decode_subscription(data: bytes) -> tuple[str, ...]:
    return _decode(ConsumerProtocolSubscription, data).topics


def encode_assignment(parts: Iterable[TopicPartition]) -> bytes:
    assigned = tuple(
        TopicPartitions(topic=TopicName(topic), partitions=tuple(i32(p) for p, _ in partitions))
        for topic, partitions in by_topic(dict.fromkeys(parts))
    )
    message = ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    return _VERSION + encode(message, ConsumerProtocolAssignment)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Nothing at all is what the broker sends to a member that the leader left out."""
    if not data:
        return []
    return [
        TopicPartition(entry.topic, partition)
        for entry in _decode(ConsumerProtocolAssignment, data).assigned_partitions
        for partition in entry.partitions
    ]


def _decode(message: type[_Message], data: bytes) -> _Message:
    try:
        return decode(message, message, memoryview(data), len(_VERSION))
    except MalformedFrame as error:
        raise BadAnswer(f"another member's bytes: {error}") from None


def divide_by_range(
    subscribers: Iterable[Subscriber], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member. `counts` has how many each topic has.

    Members stand in Kafka's order: those with a name of their own first, by that name.
    """
    in_order = sorted(
        subscribers, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )
    divided: dict[str, list[TopicPartition]] = {each.member_id: [] for each in in_order}
    for topic, count in sorted(counts.items()):
        takers = [each.member_id for each in in_order if topic in each.topics]
        first = 0
        for place, member in enumerate(takers):
            size = count // len(takers) + (place < count % len(takers))
            divided[member] += [TopicPartition(topic, first + index) for index in range(size)]
            first += size
    return divided
