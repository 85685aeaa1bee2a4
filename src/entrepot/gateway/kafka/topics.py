"""Finds topics and their partitions as Kafka's requests name them: by name, or by id.

The caller gives the operation that the topic is looked up for. A client without the right to it
gets the same answer for an existing and for a missing name.
"""

from uuid import UUID

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import HIDDEN_PREFIX, Topic
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.errors import TopicDenied, UnknownTopic
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.refusal import check_on_cluster

_TOPIC = ResourceKind.TOPIC  # Python 3.11 finds members of an enumeration slowly.


def topic_key(name: str | None, identity: UUID | None) -> str | UUID:
    """Return the name or the id that a request has for a topic. Without both, the id is zero."""
    return name if name is not None else identity or UUID(int=0)


def topic_of(context: Context, operation: Operation, name_or_id: str | UUID | None) -> Topic:
    """Find a topic. Raises TopicDenied, UnknownTopic or UnknownTopicId."""
    if isinstance(name_or_id, str):
        check_allowed(context, operation, name_or_id)
        return context.broker.topic(name_or_id)
    topic = context.broker.topic_by_id(name_or_id or UUID(int=0))
    check_allowed(context, operation, topic.name)
    return topic


def served_partition_of(
    context: Context, operation: Operation, name_or_id: str | UUID | None, index: int
) -> ServedPartition:
    """Find a partition that this node leads. Raises NotLeader, and what `topic_of` does."""
    served = context.broker.served_partition(topic_of(context, operation, name_or_id), index)
    if served.role is not None:
        served.check_leads()
    return served


def copied_partition_of(context: Context, name_or_id: str | UUID, index: int) -> ServedPartition:
    """Find a partition that this node leads, for another replica. What only its virtual host sees
    has the name of its directory. Raises what `served_partition_of` does."""
    broker, identity = context.broker, name_or_id
    if isinstance(identity, str) and identity.startswith(HIDDEN_PREFIX):
        try:
            identity = UUID(identity.removeprefix(HIDDEN_PREFIX))
        except ValueError:
            raise UnknownTopic(f"there is no topic {identity!r}") from None
    if isinstance(identity, UUID) and identity in broker.catalog.hidden:
        check_on_cluster(context, Operation.CLUSTER_ACTION)
        served = broker.served_partition(broker.any_topic_by_id(identity), index)
        served.check_leads()
        return served
    return served_partition_of(context, Operation.DESCRIBE, name_or_id, index)


def check_allowed(context: Context, operation: Operation, name: str) -> None:
    if not context.principal.may(operation, _TOPIC, name):
        raise TopicDenied(f"not allowed to {operation.value} the topic")


def check_may_create(context: Context, name: str) -> None:
    """Check that the client may create all topics, or this one. Raises TopicDenied."""
    if not context.allows_on_cluster(Operation.CREATE):
        check_allowed(context, Operation.CREATE, name)
