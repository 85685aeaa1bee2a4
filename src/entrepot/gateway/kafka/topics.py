"""Finding topics and streams as Kafka's requests name them: by name, or by id."""

from uuid import UUID

from entrepot.broker.catalog import Topic
from entrepot.broker.stream import Stream
from entrepot.gateway.kafka.context import Context


def topic_key(name: str | None, identity: UUID | None) -> str | UUID:
    """A name, however empty, before the versions that have ids; else an id, perhaps null."""
    return name if name is not None else identity or UUID(int=0)


def topic_of(context: Context, name_or_id: str | UUID | None) -> Topic:
    if isinstance(name_or_id, str):
        return context.broker.topic(name_or_id)
    return context.broker.topic_by_id(name_or_id or UUID(int=0))


def stream_of(context: Context, name_or_id: str | UUID | None, index: int) -> Stream:
    return context.broker.stream(topic_of(context, name_or_id), index)
