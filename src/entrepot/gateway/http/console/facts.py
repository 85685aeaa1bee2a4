"""Pages about the broker itself: transactions, connections, sessions, settings, disk, rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.broker.sessions import ConnectionFacts, Session
from entrepot.broker.subject.name import check_path, to_path, to_subject
from entrepot.broker.subject.retained import RetainedMessage
from entrepot.broker.transaction import Transaction, TransactionStatus
from entrepot.core.errors import UnknownTopic
from entrepot.gateway.http.console.paging import Listing, page
from entrepot.gateway.http.console.values import shown
from entrepot.gateway.http.management import connections, subjects
from entrepot.gateway.http.management.call import Call, denied
from entrepot.gateway.http.management.fields import bad
from entrepot.gateway.http.management.messages import properties_to_json, to_json
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]

_ROWS_MAX = 1_000
_SHOWN_BYTES_MAX = 2**20  # Of a retained message.
_STATES = {
    TransactionStatus.ONGOING: "open",
    TransactionStatus.PREPARE_COMMIT: "committing",
    TransactionStatus.PREPARE_ABORT: "aborting",
}


def _require_monitor(call: Call) -> None:
    if not call.sees_all:
        raise denied("Not monitor user")


def transactions(call: Call) -> Iterator[Transaction]:
    """Yield the transactions that the user may see, also those that have ended."""
    may, kind = call.principal.may, ResourceKind.TRANSACTIONAL_ID
    for each in list(call.broker.transactions.transactions.values()):
        if call.sees_all or may(Operation.DESCRIBE, kind, each.transactional_id):
            yield each


async def list_transactions(call: Call) -> Row:
    """List a page of the transactions under way; ended ones with `all`."""
    has_all = call.query.get("all") == "true"
    found = (each for each in transactions(call) if has_all or each.state in _STATES)
    listing = Listing[Transaction](
        name=lambda each: each.transactional_id,
        columns={
            "started": lambda each: each.started_ms,
            "partitions": lambda each: len(each.partitions),
        },
        describe=lambda each: _transaction(call, each),
    )
    return await call.broker.turns.run(page(found, listing, call.query))


def _may_abort(call: Call, each: Transaction) -> bool:
    """Return whether the user may abort it. One without a timeout is for its query of Spark, which
    knows whether it has to be committed."""
    kind = ResourceKind.TRANSACTIONAL_ID
    return each.has_timeout and call.principal.may(Operation.WRITE, kind, each.transactional_id)


async def abort_transaction(call: Call) -> None:
    """Abort an open transaction, and fence its producer."""
    name = call.path["transaction"]
    found = call.broker.transactions.get(name)
    if found is not None and not found.has_timeout:
        raise bad("it waits for who began it: use entrepot transactions abort")
    if not call.principal.may(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name):
        raise denied(f"write of transactional id '{name}' refused for user '{call.user}'")
    if found is None:
        raise HttpError(404, f"there is no transactional id {name!r}")
    await call.broker.transactions.abort(name)


def _transaction(call: Call, each: Transaction) -> Row:
    return {
        "name": each.transactional_id,
        "state": _STATES.get(each.state, each.state.name.lower().replace("_", " ")),
        "producer": each.producer.id,
        "epoch": each.producer.epoch,
        "started": each.started_ms if each.started_ms >= 0 else None,
        "timeout_ms": each.timeout_ms,
        "partitions": len(each.partitions),
        "places": [f"{place.topic} {place.partition}" for place in islice(each.partitions, 100)],
        "may_abort": each.state is TransactionStatus.ONGOING and _may_abort(call, each),
    }


async def list_connections(call: Call) -> Row:
    """List a page of the connections of all clients but those of HTTP."""
    listing = Listing[tuple[Session, ConnectionFacts]](
        name=lambda each: f"{each[1].name} {_client_id(each[1])}",
        columns={
            "user": lambda each: each[1].user,
            "protocol": lambda each: each[1].protocol,
            "connected": lambda each: each[1].connected_ms,
            "unacked": lambda each: sum(channel.unacked for channel in each[1].channels),
        },
        describe=lambda each: _connection(call, each[1]),
    )
    found = connections.all_visible(call)
    return await call.broker.turns.run(page(found, listing, call.query))


def _client_id(facts: ConnectionFacts) -> str:
    """Return what the client calls itself, where its protocol has that. It can be searched for."""
    return str(facts.client_properties.get("client_id", ""))


def _connection(call: Call, facts: ConnectionFacts) -> Row:
    row = connections.describe(call, facts)
    names = ("name", "protocol", "user", "vhost", "state", "peer_host", "peer_port", "ssl")
    chosen = {name: row[name] for name in (*names, "channels", "connected_at")}
    return chosen | {
        "unacked": sum(channel.unacked for channel in facts.channels),
        "consumers": sum(len(channel.consumers) for channel in facts.channels),
        "mine": facts.user == call.user,
        "client": to_json(_client_id(facts)),
    }


async def list_sessions(call: Call) -> Row:
    """List a page of the sessions of MQTT's clients."""
    listing = Listing[Any](
        name=lambda each: each.client_id,
        columns={
            "user": lambda each: each.user,
            "connected": lambda each: each.receiver is not None,
            "subscriptions": lambda each: len(each.subscriptions),
            "ready": lambda each: subjects.describe(each)["messages_ready"],
        },
        describe=lambda each: subjects.describe(each) | {"name": each.client_id},
    )
    return await call.broker.turns.run(page(subjects.visible(call), listing, call.query))


async def list_retained(call: Call) -> Row:
    """List a page of the retained messages."""
    may, kind = call.principal.may, ResourceKind.TOPIC
    retained = call.broker.vhosts.default.retained
    found = await call.broker.turns.run(retained.matching(subjects.everything()))
    listing = Listing[RetainedMessage](
        name=lambda each: to_path(each.subject),
        columns={
            "bytes": lambda each: len(each.message[1]),
            "published": lambda each: each.time_ms,
        },
        describe=lambda each: {
            "name": to_path(each.subject),
            "bytes": len(each.message[1]),
            "published": each.time_ms,
            "may_write": may(Operation.WRITE, kind, each.subject),
        },
    )
    readable = (each for each in found if may(Operation.READ, kind, each.subject))
    return await call.broker.turns.run(page(readable, listing, call.query))


def show_retained(call: Call) -> Row:
    """Show the retained message of a topic of MQTT, its value cut if it is long."""
    check_path(call.path["topic"])
    subject = to_subject(call.path["topic"])
    if not call.principal.may(Operation.READ, ResourceKind.TOPIC, subject):
        raise denied(f"read of topic '{subject}' refused for user '{call.user}'")
    found = call.broker.vhosts.default.retained.get(subject)
    if found is None:
        raise HttpError(404, "nothing is retained there")
    envelope, body = found.message
    return {
        "name": to_path(subject),
        "published": found.time_ms,
        "value": shown(bytes(body), _SHOWN_BYTES_MAX),
        "properties": properties_to_json(envelope),
    }


def list_settings(call: Call) -> list[Row]:
    """List what the server was started with, and where each value comes from."""
    _require_monitor(call)
    return [each._asdict() for each in call.context.settings()]


async def list_storage(call: Call) -> Row:
    """List a page of what is on the disk: the partitions of topics and of queues."""
    _require_monitor(call)
    listing = Listing[Topic](
        name=lambda topic: topic.name,
        columns={
            "bytes": lambda topic: sum(each.partition.size for each in _served(call, topic)),
            "partitions": lambda topic: topic.partition_count,
        },
        describe=lambda topic: _stored(call, topic),
    )
    topics = iter(list(call.broker.catalog.all_topics()))
    return await call.broker.turns.run(page(topics, listing, call.query))


def _served(call: Call, topic: Topic) -> list[Any]:
    with suppress(UnknownTopic):
        return list(call.broker.served_partitions(topic))
    return []


def _stored(call: Call, topic: Topic) -> Row:
    partitions = [served.partition for served in _served(call, topic)]
    return {
        "name": to_json(topic.name),
        "kind": _kind(call, topic),
        "directory": topic.directory_name,
        "partitions": topic.partition_count,
        "segments": sum(len(each.segments) for each in partitions),
        "bytes": sum(each.size for each in partitions),
        "faults": [text for each in partitions if (text := each.stopped or each.damage)][:10],
    }


def _kind(call: Call, topic: Topic) -> str:
    if call.broker.is_internal(topic.name):
        return "the broker's own"
    return "queue" if topic.is_queue else "topic"


def list_rules(call: Call) -> Row:
    """List the access control lists, which are changed by Kafka's tools, and whether anybody is
    asked for them."""
    call.require_administrator()
    entries = list(call.broker.acls.entries)[:_ROWS_MAX]
    rows = [dict(_rule(acl)) for acl in entries]
    return {"entries": rows, "enforced": call.broker.access.is_enforced}


def _rule(acl: Any) -> Iterator[tuple[str, str]]:
    for name, value in acl._asdict().items():
        yield name, str(getattr(value, "value", value))
