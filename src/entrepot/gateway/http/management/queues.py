"""Queues: list, show, declare, delete.

A topic is listed as AMQP clients see it: as a queue of type stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.broker.virtual_host.records import DEFAULT_VHOST
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.errors import UnknownQueue, UnknownTopic
from entrepot.core.value import freeze_table, thaw_table
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.connections import (
    consumer_counts,
    consumers_of,
    owner_details,
)
from entrepot.gateway.http.management.messages import to_json
from entrepot.gateway.rabbitmq.queue_arguments import (
    STREAM,
    QueueDeclaration,
    check_queue_name,
    type_of,
)
from entrepot.wire.http.response import NO_CONTENT, Response

Row = dict[str, Any]


async def list_all(call: Call) -> list[Row]:
    return await call.in_turns(_rows(call))


def _rows(call: Call) -> Iterator[Row]:
    readers = consumer_counts(call)
    for vhost in call.vhosts:
        for queue in list(vhost.queues.values()):
            yield describe(call, queue)
        for name, topic in streams_of(call, vhost).items():
            with suppress(UnknownTopic):  # It may have been deleted since the list was made.
                count = readers.get((vhost.name, name), 0)
                yield describe_stream(call, vhost, name, topic, count)


async def message_counts(call: Call, queues: list[Queue]) -> tuple[int, int]:
    """Return how many messages are ready and how many are unacknowledged, in all queues."""
    counts = await call.in_turns((each.ready_count, each.unacked_count) for each in queues)
    return sum(ready for ready, _ in counts), sum(unacked for _, unacked in counts)


def streams_of(call: Call, vhost: VirtualHost) -> dict[str, Topic]:
    """Return the topics that are streams of the virtual host, by name."""
    broker = call.broker
    found: dict[str, Topic] = {}
    if vhost.name == DEFAULT_VHOST:
        found.update((name, topic) for name, topic in broker.topics.items())
    for (home, name), stored in broker.catalog.queues.items():
        if home == vhost.name:
            found[name] = stored.topic
    return {
        name: topic
        for name, topic in found.items()
        if not topic.is_queue and not broker.is_internal(name)
    }


def show(call: Call) -> Row:
    name, vhost = call.path["name"], call.vhost
    topic = vhost.stream(name)
    if topic is not None:
        count = consumer_counts(call).get((vhost.name, name), 0)
        row = describe_stream(call, vhost, name, topic, count)
    else:
        row = describe(call, vhost.queue(name))
    return row | {"consumer_details": consumers_of(call, vhost.name, name)}


def describe(call: Call, queue: Queue) -> Row:
    spec = queue.spec
    ready, unacked = queue.ready_count, queue.unacked_count
    active = queue.active_consumer
    exclusive = [consumer.tag for consumer in queue.consumers if consumer.is_exclusive]
    fault = queue.fault
    row: Row = {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": type_of(queue.settings),
        "durable": spec.durable,
        "auto_delete": spec.auto_delete,
        "exclusive": spec.exclusive,
        "arguments": to_json(thaw_table(spec.arguments)),
        "node": call.context.node,
        "policy": None,
        "consumers": queue.consumer_count,
        "exclusive_consumer_tag": exclusive[0] if exclusive else None,
        "single_active_consumer_tag": None if active is None else active.tag,
    }
    if fault is not None:
        return row | _down(fault)
    row |= {
        "state": "running",
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "messages_deferred": queue.deferred_count,
        "messages_dropped": queue.dropped,
    }
    if queue.owner is not None:
        row["owner_pid_details"] = owner_details(call, queue.owner)
    return row


def _down(fault: str) -> Row:
    """Return the state of a queue that is down; as in RabbitMQ, without message counts."""
    return {"state": "down", "reason": fault}


def describe_stream(
    call: Call, vhost: VirtualHost, name: str, topic: Topic, reader_count: int
) -> Row:
    served_partitions = call.broker.served_partitions(topic)
    messages = sum(each.record_count for each in served_partitions)
    fault = call.broker.fault_of(topic)
    row: Row = {
        "name": name,
        "vhost": vhost.name,
        "type": STREAM,
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-queue-type": STREAM},
        "node": call.context.node,
        "policy": None,
        "consumers": reader_count,
    }
    if fault is not None:
        return row | _down(fault)
    return row | {
        "state": "running",
        "messages": messages,
        "messages_ready": messages,
        "messages_unacknowledged": 0,
        "messages_unreadable": sum(served.unreadable_count for served in served_partitions),
    }


async def declare(call: Call) -> Response:
    name, vhost, fields = call.path["name"], call.vhost, call.fields
    call.require(Operation.CREATE, ResourceKind.QUEUE, name)
    arguments = fields.table("arguments")
    letters = arguments.get("x-dead-letter-exchange")
    if isinstance(letters, str):  # As over AMQP: messages of the queue go to that exchange.
        call.require(Operation.READ, ResourceKind.QUEUE, name)
        call.require(Operation.WRITE, ResourceKind.EXCHANGE, letters)
        key = arguments.get("x-dead-letter-routing-key")
        if letters == DEFAULT_EXCHANGE and isinstance(key, str) and key not in vhost.queues:
            call.require(Operation.WRITE, ResourceKind.QUEUE, key)
    is_there = name in vhost.queues or vhost.stream(name) is not None
    check_queue_name(name)
    declaration = QueueDeclaration(
        vhost.name,
        name,
        freeze_table(arguments),
        durable=fields.truth("durable", default=True),
        auto_delete=fields.truth("auto_delete"),
    )
    await vhost.declare_queue(declaration, call)
    return Response(NO_CONTENT if is_there else 201)


async def delete(call: Call) -> None:
    name, query = call.path["name"], call.query
    call.require(Operation.DELETE, ResourceKind.QUEUE, name)
    if call.vhost.stream(name) is None:
        find_queue(call)
    await call.vhost.delete_queue(
        name,
        call,
        if_unused=query.get("if-unused") == "true",
        if_empty=query.get("if-empty") == "true",
    )


def find_queue(call: Call) -> Queue:
    """Return the queue that the path names.

    Raises UnknownQueue, also for a stream; QueueLocked for another connection's exclusive queue.
    """
    name = call.path["name"]
    if call.vhost.stream(name) is not None:
        raise UnknownQueue(f"queue '{name}' in vhost '{call.vhost.name}' is a stream")
    return call.vhost.queue(name, call)
