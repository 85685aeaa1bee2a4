"""Finding topics and streams as Kafka's requests name them: by name, or by id.

Whoever looks for a topic says what for: nobody finds what they may not use, and for a
name they do not learn whether there is such a topic.
"""

from uuid import UUID

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.stream import Stream
from entrepot.core.errors import TopicDenied
from entrepot.gateway.kafka.context import Context


def topic_key(name: str | None, identity: UUID | None) -> str | UUID:
    """A name, however empty, before the versions that have ids; else an id, perhaps null."""
    return name if name is not None else identity or UUID(int=0)


def topic_of(context: Context, operation: Operation, name_or_id: str | UUID | None) -> Topic:
    """Raises TopicDenied, UnknownTopic or UnknownTopicId."""
    if isinstance(name_or_id, str):
        check_allowed(context, operation, name_or_id)
        return context.broker.topic(name_or_id)
    topic = context.broker.topic_by_id(name_or_id or UUID(int=0))
    check_allowed(context, operation, topic.name)
    return topic


def stream_of(
    context: Context, operation: Operation, name_or_id: str | UUID | None, index: int
) -> Stream:
    return context.broker.stream(topic_of(context, operation, name_or_id), index)


def check_allowed(context: Context, operation: Operation, name: str) -> None:
    if not context.allows(operation, ResourceKind.TOPIC, name):
        raise TopicDenied(f"not allowed to {operation.value} the topic")


def check_may_create(context: Context, name: str) -> None:
    """Who may create topics at all may create this one."""
    if not context.allows_on_cluster(Operation.CREATE):
        check_allowed(context, Operation.CREATE, name)
