"""Topics, as the console lists and shows them; and one record produced to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.served_partition import ServedPartition, committed
from entrepot.broker.topic_config import SETTINGS
from entrepot.core import batch
from entrepot.core.errors import UnknownTopic
from entrepot.core.partitioner import partition_of
from entrepot.core.ports import Buffer
from entrepot.core.record import Record
from entrepot.core.steps import Steps
from entrepot.gateway.http.console.paging import Listing, page
from entrepot.gateway.http.console.values import read_bytes, read_headers
from entrepot.gateway.http.management.call import Call, denied
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http import limits as http_limits

Row = dict[str, Any]


async def list_page(call: Call) -> Row:
    """List a page of the topics that the user may describe; with `internal`, the broker's own."""
    has_internal = call.query.get("internal") == "true"
    listing = Listing[Topic](
        name=lambda topic: topic.name,
        columns={
            "partitions": lambda topic: topic.partition_count,
            "records": lambda topic: _sum(call, topic)[0],
            "bytes": lambda topic: _sum(call, topic)[1],
        },
        describe=lambda topic: _row(call, topic),
    )
    return await call.broker.turns.run(page(visible(call, has_internal), listing, call.query))


def visible(call: Call, has_internal: bool = False) -> Iterator[Topic]:
    broker = call.broker
    for topic in list(broker.topics.values()):
        is_wanted = has_internal or not broker.is_internal(topic.name)
        if is_wanted and not topic.is_queue and may(call, Operation.DESCRIBE, topic.name):
            yield topic


def may(call: Call, operation: Operation, name: str) -> bool:
    if operation is Operation.DESCRIBE and call.sees_all:
        return True
    return call.principal.may(operation, ResourceKind.TOPIC, name)


def find(call: Call, operation: Operation) -> Topic:
    """Return the topic of the path, a queue's messages too. Raises HttpError, UnknownTopic."""
    return named(call, call.path["topic"], operation)


def named(call: Call, name: str, operation: Operation) -> Topic:
    """Return a topic that the user may use so. Raises HttpError, UnknownTopic."""
    if not may(call, operation, name):
        raise denied(f"{operation.value} of topic '{name}' refused for user '{call.user}'")
    return call.broker.topic(name)


def _sum(call: Call, topic: Topic) -> tuple[int, int]:
    """Return how many records and bytes a topic has; none if it is deleted by now."""
    with suppress(UnknownTopic):
        served = call.broker.served_partitions(topic)
        return sum(each.record_count for each in served), sum(
            each.partition.size for each in served
        )
    return 0, 0


def _row(call: Call, topic: Topic) -> Row | None:
    try:
        fault = call.broker.fault_of(topic)
    except UnknownTopic:
        return None
    records, size = _sum(call, topic)
    return {
        "name": topic.name,
        "partitions": topic.partition_count,
        "records": records,
        "bytes": size,
        "internal": call.broker.is_internal(topic.name),
        "fault": fault,
    }


async def show(call: Call) -> Row:
    """Show a topic: its partitions, its settings and where they come from, and who reads it."""
    topic = find(call, Operation.DESCRIBE)
    described = _row(call, topic)
    if described is None:
        raise UnknownTopic(f"there is no topic {topic.name!r}")
    partitions = await call.broker.turns.run(_partitions(call, topic))
    is_foreign = topic.is_queue or call.broker.is_internal(topic.name)
    rights = {
        "read": may(call, Operation.READ, topic.name),
        "write": not is_foreign and may(call, Operation.WRITE, topic.name),
        "delete": not is_foreign and may(call, Operation.DELETE, topic.name),
        "alter": not is_foreign and may(call, Operation.ALTER, topic.name),
        "set": not is_foreign and may(call, Operation.ALTER_CONFIGS, topic.name),
    }
    return described | {
        "queue": topic.is_queue,
        "partition_details": partitions,
        "settings": _settings(call, topic),
        "may": rights,
    }


def _partitions(call: Call, topic: Topic) -> Steps[list[Row]]:
    rows = []
    for index in range(min(topic.partition_count, http_limits.PAGE_ROWS_MAX)):
        served = call.broker.served_partition(topic, index)
        partition = served.partition
        rows.append(
            {
                "partition": index,
                "start": partition.offset_start,
                "end": partition.high_watermark,
                "stable": served.last_stable_offset,
                "bytes": partition.size,
                "segments": len(partition.segments),
                "fault": partition.stopped or partition.damage,
            }
        )
        yield
    return rows


def _settings(call: Call, topic: Topic) -> list[Row]:
    """Return the topic's settings, each with its value and where that was set."""
    layers, found = call.broker.server_settings.layers(), []
    sources = (
        ("this topic", topic.settings),
        ("this node, while running", layers.own),
        ("all nodes, while running", layers.shared),
        ("the server's configuration", layers.static),
    )
    for name, setting in SETTINGS.items():
        source = next((told for told, values in sources if values.get(name)), ("default"))
        values = next((values for _, values in sources if values.get(name)), {})
        value = values.get(name, setting.default)
        found.append({"name": name, "value": value, "source": source, "doc": setting.doc})
    return found


async def produce(call: Call) -> Row:
    """Append one record, and answer when it is permanent."""
    topic, fields = find(call, Operation.WRITE), call.fields
    call.broker.check_foreign(topic.name)
    key, value = read_bytes(fields, "key"), read_bytes(fields, "value")
    headers = read_headers(fields)
    index = fields.number("partition", -1)
    if index < 0:
        index = 0 if key is None else partition_of(key, topic.partition_count)
        if key is None:
            index = call.broker.entropy.below(topic.partition_count)
    served = call.broker.served_partition(topic, index)
    if served.config.policy.compacts and key is None:
        raise bad("a compacted topic takes no record without a key")
    if value is not None and len(value) > call.context.message_bytes_max:
        raise bad(f"value: more than {call.context.message_bytes_max} bytes")
    record = Record(key, value, headers)
    offset = await _append(call, served, record)
    return {"partition": index, "offset": offset}


async def _append(call: Call, served: ServedPartition, record: Record) -> int:
    data: Buffer = batch.build([record], now_ms=call.context.clock.now_ms())
    chunks = None
    if is_looked_into := served.takes_long(data):
        data = await served.look_into(data, call.broker.codec_worker, call.broker.turns)
        chunks = await served.write_ahead_of(data)
    appended = served.append(data, is_looked_into=is_looked_into, chunks=chunks)
    # Shielded: the commit is watched to its end, whoever waits for the answer.
    waiting = committed(served.partition, appended.offset_end)
    await asyncio.shield(asyncio.ensure_future(waiting))
    return appended.offset_first


async def create(call: Call) -> None:
    """Create a topic."""
    name = call.path["topic"]
    may_here = may(call, Operation.CREATE, name)
    if not may_here and not call.principal.may(Operation.CREATE, ResourceKind.CLUSTER):
        raise denied(f"create of topic '{name}' refused for user '{call.user}'")
    fields = call.fields
    count = fields.number("partitions") if "partitions" in fields else None
    settings = {each: str(value) for each, value in fields.table("settings").items()}
    await call.broker.create_topic(name, count, settings)


async def change_setting(call: Call) -> None:
    """Set a setting of a topic, or with null let the server's apply again."""
    topic, fields = find(call, Operation.ALTER_CONFIGS), call.fields
    call.broker.check_foreign(topic.name)
    name = call.path["setting"]
    settings = {each: text for each, text in topic.settings.items() if each != name}
    if "value" in fields:
        settings[name] = fields.text("value").strip()
    await call.broker.alter_settings(topic, settings)


async def add_partitions(call: Call) -> None:
    """Let a topic have more partitions; `count` is how many it has then."""
    topic, fields = find(call, Operation.ALTER), call.fields
    call.broker.check_foreign(topic.name)
    fields.require("count")
    call.broker.check_partition_count(topic, fields.number("count"))
    await call.broker.create_partitions(topic, fields.number("count"), None)


async def delete(call: Call) -> None:
    await call.broker.delete_topic(find(call, Operation.DELETE))
