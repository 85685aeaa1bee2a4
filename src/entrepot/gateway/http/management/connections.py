"""Connections, their channels and their consumers, as the sessions describe them.

Administrators and monitors see all of them, other users their own. Administrators close any, others
their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from entrepot.broker.sessions import ChannelFacts, ConnectionFacts, ConsumerFacts, Session
from entrepot.gateway.http.management.call import Call, denied
from entrepot.gateway.http.management.messages import to_json
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]

_REASON = "Closed via management plugin"  # RabbitMQ's words.
_REASON_SIZE_MAX = 200


def list_connections(call: Call) -> list[Row]:
    return [describe(call, facts) for _, facts in visible(call)]


def show_connection(call: Call) -> Row:
    return describe(call, _find(call)[1])


def close_connection(call: Call) -> None:
    session, facts = _find(call)
    if not call.principal.is_administrator and facts.user != call.user:
        raise denied("Not administrator user")
    reason = call.headers.get("x-reason", "")[:_REASON_SIZE_MAX]
    session.close(reason if reason.isprintable() and reason else _REASON)


def list_channels(call: Call) -> list[Row]:
    return [
        describe_channel(call, facts, channel)
        for _, facts in visible(call)
        for channel in facts.channels
    ]


def channels_of_connection(call: Call) -> list[Row]:
    facts = _find(call)[1]
    return [describe_channel(call, facts, channel) for channel in facts.channels]


def show_channel(call: Call) -> Row:
    for _, facts in visible(call):
        for channel in facts.channels:
            if _channel_name(facts, channel) == call.path["name"]:
                rows = [
                    describe_consumer(call, facts, channel, consumer)
                    for consumer in channel.consumers
                ]
                return describe_channel(call, facts, channel) | {"consumer_details": rows}
    raise HttpError(404, "Not Found")


def list_consumers(call: Call) -> list[Row]:
    vhosts = [vhost.name for vhost in call.vhosts]
    return [
        describe_consumer(call, facts, channel, consumer)
        for _, facts in visible(call)
        for channel in facts.channels
        for consumer in channel.consumers
        if facts.vhost in vhosts
    ]


def consumers_of(call: Call, vhost: str, queue: str) -> list[Row]:
    """List the consumers of a queue, whoever they belong to."""
    return [
        describe_consumer(call, facts, channel, consumer)
        for facts in (session.facts() for session in call.broker.sessions)
        for channel in facts.channels
        for consumer in channel.consumers
        if (facts.vhost, consumer.queue) == (vhost, queue)
    ]


def consumer_counts(call: Call) -> Counter[tuple[str, str]]:
    """Return how many consumers there are, by virtual host and queue."""
    return Counter(
        (facts.vhost, consumer.queue)
        for facts in (session.facts() for session in call.broker.sessions)
        for channel in facts.channels
        for consumer in channel.consumers
    )


def owner_details(call: Call, owner: object) -> Row:
    """Describe the connection that an exclusive queue belongs to."""
    for session in call.broker.sessions:
        facts = session.facts()
        if facts.owner is owner:
            return _connection_details(facts)
    return {}


def visible(call: Call) -> Iterator[tuple[Session, ConnectionFacts]]:
    """Yield the sessions that the user may see, of the path's virtual host if it has one."""
    for session in call.broker.sessions:
        facts = session.facts()
        is_asked_for = "vhost" not in call.path or facts.vhost == call.vhost.name
        if is_asked_for and (call.sees_all or facts.user == call.user):
            yield session, facts


def all_visible(call: Call) -> Iterator[tuple[Session, ConnectionFacts]]:
    """Yield the sessions that the user may see, also those that use topics alone.

    RabbitMQ's lists are of those that use queues.
    """
    yield from visible(call)
    for session in call.broker.topic_sessions:
        facts = session.facts()
        if call.sees_all or facts.user == call.user:
            yield session, facts


def _find(call: Call) -> tuple[Session, ConnectionFacts]:
    for session, facts in all_visible(call):
        if facts.name == call.path["name"]:
            return session, facts
    raise HttpError(404, "Not Found")


# As RabbitMQ writes them.


def describe(call: Call, facts: ConnectionFacts) -> Row:
    here, there = facts.name.rpartition(" -> ")[2], facts.peer
    return {
        "name": facts.name,
        "node": call.context.node,
        "type": "network",
        "protocol": facts.protocol,
        "state": facts.state,
        "user": facts.user,
        "vhost": facts.vhost,
        "host": _host(here),
        "port": _port(here),
        "peer_host": _host(there),
        "peer_port": _port(there),
        "ssl": facts.is_tls,
        "auth_mechanism": facts.mechanism,
        "channels": len(facts.channels),
        "channel_max": facts.channel_max,
        "frame_max": facts.frame_max,
        "timeout": facts.heartbeat_s,
        "connected_at": facts.connected_ms,
        "client_properties": to_json(facts.client_properties),
    }


def describe_channel(call: Call, facts: ConnectionFacts, channel: ChannelFacts) -> Row:
    return {
        "name": _channel_name(facts, channel),
        "number": channel.number,
        "node": call.context.node,
        "user": facts.user,
        "vhost": facts.vhost,
        "state": "running",
        "connection_details": _connection_details(facts),
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": channel.unacked,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": channel.uncommitted,
        "acks_uncommitted": channel.uncommitted_acks,
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.prefetch_global,
        "confirm": channel.is_confirming,
        "transactional": channel.is_transactional,
    }


def describe_consumer(
    call: Call, facts: ConnectionFacts, channel: ChannelFacts, consumer: ConsumerFacts
) -> Row:
    return {
        "consumer_tag": consumer.tag,
        "queue": {"name": consumer.queue, "vhost": facts.vhost},
        "channel_details": {
            "name": _channel_name(facts, channel),
            "number": channel.number,
            "node": call.context.node,
            "user": facts.user,
            "connection_name": facts.name,
            "peer_host": _host(facts.peer),
            "peer_port": _port(facts.peer),
        },
        "ack_required": not consumer.auto_ack,
        "exclusive": consumer.is_exclusive,
        "active": consumer.is_active,
        "activity_status": "up" if consumer.is_active else "waiting",
        "prefetch_count": consumer.prefetch,
        "arguments": to_json(consumer.arguments),
    }


def _connection_details(facts: ConnectionFacts) -> Row:
    there = facts.peer
    return {"name": facts.name, "peer_host": _host(there), "peer_port": _port(there)}


def _channel_name(facts: ConnectionFacts, channel: ChannelFacts) -> str:
    return f"{facts.name} ({channel.number})"


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _port(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else 0
