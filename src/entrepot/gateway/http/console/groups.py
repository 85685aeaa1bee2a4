"""Consumer and share groups: how far each has read, and setting that anew, with a look before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.faults import GroupError
from entrepot.broker.consumer_group.messages import Listed
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import (
    Assignment,
    CommittedOffset,
    assigned_partitions,
    subscribed_topics,
)
from entrepot.broker.queue.stream_reader import offset_at
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.errors import StorageError, UnknownTopic
from entrepot.core.steps import Steps
from entrepot.gateway.http.console import topics
from entrepot.gateway.http.console.paging import Listing, page
from entrepot.gateway.http.management.call import Call, denied
from entrepot.gateway.http.management.contents import time_ms
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]

SHARE = "share"
_MEMBERS_MAX = 500
_PARTITIONS_MAX = 2_000  # Shown of one group.


async def list_page(call: Call) -> Row:
    listing = Listing[Listed](
        name=lambda group: group.group_id,
        columns={
            "kind": lambda group: group.kind,
            "state": lambda group: group.state,
            "lag": lambda group: _lag(call, group),
        },
        describe=lambda group: _listed(call, group),
    )
    return await call.broker.turns.run(page(visible(call), listing, call.query))


def visible(call: Call) -> Iterator[Listed]:
    broker = call.broker
    for group in (*broker.groups.list(), *broker.share_groups.listed()):
        if _may(call, Operation.DESCRIBE, group.group_id):
            yield group


def _may(call: Call, operation: Operation, group_id: str) -> bool:
    if operation is Operation.DESCRIBE and call.sees_all:
        return True
    return call.principal.may(operation, ResourceKind.GROUP, group_id)


def _listed(call: Call, group: Listed) -> Row:
    return {
        "name": group.group_id,
        "kind": group.kind,
        "state": group.state,
        "lag": _lag(call, group),
    }


def _lag(call: Call, group: Listed) -> int:
    return sum(row["lag"] for row in _positions(call, group.group_id, group.kind == SHARE))


def _positions(call: Call, group_id: str, is_share: bool) -> Iterator[Row]:
    """Yield how far the group is in each partition."""
    with suppress(GroupError, StorageError):
        if is_share:
            yield from _share_positions(call, group_id)
        else:
            yield from _committed_positions(call, group_id)


def _committed_positions(call: Call, group_id: str) -> Iterator[Row]:
    broker = call.broker
    for place, committed in broker.groups.fetch_offsets(group_id, None).items():
        if isinstance(committed, CommittedOffset):
            with suppress(UnknownTopic):
                served = broker.served_partition(broker.topic(place.topic), place.partition)
                yield _position(place, committed.offset, served)


def _share_positions(call: Call, group_id: str) -> Iterator[Row]:
    groups = call.broker.share_groups
    for topic in groups.topics(group_id):
        for index in range(topic.partition_count):
            with suppress(UnknownTopic, StorageError):
                share = groups.partition(group_id, topic, index)
                place = TopicPartition(topic.name, index)
                found = _position(place, share.ledger.offset_low, share.served)
                yield found | {"lag": max(0, share.lag)}


def _position(place: TopicPartition, offset: int, served: ServedPartition) -> Row:
    start, end = served.partition.offset_start, served.partition.high_watermark
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": offset,
        "start": start,
        "end": end,
        "lag": max(0, end - max(offset, start)),
    }


def find(call: Call, operation: Operation) -> Listed:
    """Return the group of the path. Raises HttpError."""
    name = call.path["group"]
    if not _may(call, operation, name):
        raise denied(f"{operation.value} of group '{name}' refused for user '{call.user}'")
    for group in (*call.broker.groups.list(), *call.broker.share_groups.listed()):
        if group.group_id == name:
            return group
    raise HttpError(404, f"there is no group {name!r}")


async def show(call: Call) -> Row:
    """Show a group: members, how far it is in each partition, and what the user may do."""
    group = find(call, Operation.DESCRIBE)
    is_share = group.kind == SHARE
    rows = await call.broker.turns.run(_shown(call, group.group_id, is_share))
    rights = {
        "reset": _may(call, Operation.READ, group.group_id),
        "delete": _may(call, Operation.DELETE, group.group_id),
    }
    return {
        "name": group.group_id,
        "kind": group.kind,
        "state": group.state,
        "lag": sum(row["lag"] for row in rows),
        "partitions": rows[:_PARTITIONS_MAX],
        "members": list(_members(call, group)),
        "may": rights,
    }


def _shown(call: Call, group_id: str, is_share: bool) -> Steps[list[Row]]:
    rows = []
    for row in _positions(call, group_id, is_share):
        if topics.may(call, Operation.DESCRIBE, row["topic"]):
            rows.append(row)
        yield
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def _members(call: Call, group: Listed) -> Iterator[Row]:
    """Yield the members, each with what it reads."""
    broker, name = call.broker, group.group_id
    if group.kind == SHARE:
        for each in broker.share_groups.describe(name).members[:_MEMBERS_MAX]:
            row = _member(each.id, each.client_id, each.client_host, each.topics)
            yield row | {"assigned": _named(call, each.assignment)}
    elif group.kind == "consumer":
        for member in broker.groups.describe_modern(name).members[:_MEMBERS_MAX]:
            said = member.subscription
            row = _member(member.id, said.client_id, said.client_host, said.topics)
            yield row | {"assigned": _named(call, member.current.assigned)}
    else:
        for stored in broker.groups.describe(name).members[:_MEMBERS_MAX]:
            found = subscribed_topics(stored.subscription) or ()
            row = _member(stored.id, stored.client_id, stored.client_host, found)
            yield row | {"assigned": _sorted(assigned_partitions(stored.assignment))}


def _member(member: str, client: str, host: str, names: tuple[str, ...]) -> Row:
    return {
        "id": member,
        "client": client,
        "host": host.removeprefix("/"),  # Kafka's tools show one before an address.
        "topics": list(names[:50]),
    }


def _named(call: Call, assignment: Assignment) -> Row:
    """Return the partitions of each topic that is there, by its name."""
    topics = call.broker.catalog.by_id
    return _sorted(
        {topics[topic].name: tuple(numbers) for topic, numbers in assignment.items()
         if topic in topics}
    )  # fmt: skip


def _sorted(assigned: dict[str, tuple[int, ...]]) -> Row:
    return {name: sorted(numbers)[:_PARTITIONS_MAX] for name, numbers in sorted(assigned.items())}


async def of_topic(call: Call) -> Row:
    """List who reads a topic: a row for each partition that a group has committed an offset of."""
    topic = topics.find(call, Operation.DESCRIBE)
    rows, is_cut = await call.broker.turns.run(_readers(call, topic.name))
    return {"items": rows, "cut": is_cut}


def _readers(call: Call, topic: str) -> Steps[tuple[list[Row], bool]]:
    rows: list[Row] = []
    for group in visible(call):
        yield
        found = _positions(call, group.group_id, group.kind == SHARE)
        rows += [row | {"group": group.group_id} for row in found if row["topic"] == topic]
        if len(rows) > _PARTITIONS_MAX:
            break
    rows.sort(key=lambda row: (row["group"], row["partition"]))
    return rows[:_PARTITIONS_MAX], len(rows) > _PARTITIONS_MAX


async def reset(call: Call) -> Row:
    """Set where a group without members goes on reading, or only say what that would be.

    `to` is first, last, an offset or, with `time`, a time; `topic` and `partition` say where, if
    not everywhere. Without `confirm` nothing is changed.
    """
    group, fields = find(call, Operation.READ), call.fields
    is_share = group.kind == SHARE
    rows = await call.broker.turns.run(_shown(call, group.group_id, is_share))
    wanted, only = fields.text("topic"), fields.number("partition", -1)
    chosen = [
        row
        for row in rows
        if wanted in ("", row["topic"]) and only in (-1, row["partition"])
    ]  # fmt: skip
    for row in chosen:
        if not call.principal.may(Operation.READ, ResourceKind.TOPIC, row["topic"]):
            raise denied(f"read of topic '{row['topic']}' refused for user '{call.user}'")
    changes = []
    for row in chosen:
        target = _target(call, row)
        changes.append(row | {"to": target, "again": max(0, row["offset"] - target)})
    if fields.truth("confirm"):
        await _apply(call, group.group_id, is_share, changes)
    return {"changes": changes, "done": fields.truth("confirm")}


def _target(call: Call, row: Row) -> int:
    """Return the offset that a partition would be set to."""
    fields, served = call.fields, _served(call, row)
    start, end = served.partition.offset_start, served.partition.high_watermark
    if "time" in fields:
        return offset_at(served, time_ms(fields, "time"))
    if "offset" in fields:
        return max(start, min(end, fields.number("offset")))
    to = fields.text("to", "first")
    if to not in ("first", "last"):
        raise bad("to: first or last; or an offset, or a time")
    return start if to == "first" else end


def _served(call: Call, row: Row) -> ServedPartition:
    return call.broker.served_partition(call.broker.topic(row["topic"]), row["partition"])


async def _apply(call: Call, group_id: str, is_share: bool, changes: list[Row]) -> None:
    broker = call.broker
    if is_share:
        wanted: dict[str, dict[int, int]] = {}
        for row in changes:
            wanted.setdefault(row["topic"], {})[row["partition"]] = row["to"]
        offsets = [(broker.topic(name), places) for name, places in wanted.items()]
        faults: list[object] = list(
            (await broker.share_groups.alter_offsets(group_id, offsets)).values()
        )
    else:
        new = {
            TopicPartition(row["topic"], row["partition"]): CommittedOffset(row["to"], -1, "", 0)
            for row in changes
        }
        if new:
            faults = list((await broker.groups.commit_offsets(group_id, "", -1, new)).values())
        else:
            faults = []
    if faults:
        raise bad(f"{len(faults)} partitions were not set: {faults[0]}")


async def delete(call: Call) -> None:
    group = find(call, Operation.DELETE)
    groups = call.broker.share_groups if group.kind == SHARE else call.broker.groups
    await groups.delete(group.group_id)
