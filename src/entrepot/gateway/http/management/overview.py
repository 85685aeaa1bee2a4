"""The broker as a whole: version, totals, health, and whether it accepts clients.

`application` is an addition for what rabbitmqctl's stop_app, start_app and reset do: here they
close the connections of queues' clients, accept them again, and delete queues.
"""

from __future__ import annotations

from typing import Any

from entrepot.broker.router.event import ExchangeType
from entrepot.broker.virtual_host.records import DEFAULT_VHOST
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.queues import message_counts, streams_of
from entrepot.gateway.rabbitmq.exchange_arguments import type_name
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]
_PARTITIONS_STEP = 100

# The version of RabbitMQ whose API this is: clients decide by it what they can ask for.
RABBITMQ_VERSION = "4.0.0"
STOPPED = "broker forced connection closure with reason 'shutdown'"  # RabbitMQ's words.


async def overview(call: Call) -> Row:
    context = call.context
    queues = [queue for vhost in call.vhosts for queue in vhost.queues.values()]
    up = [queue for queue in queues if queue.fault is None]
    ready, unacked = await message_counts(call, up)
    facts = [session.facts() for session in call.broker.sessions]
    channels = [channel for each in facts for channel in each.channels]
    return {
        "product_name": "entrepot",
        "product_version": context.version,
        "rabbitmq_version": RABBITMQ_VERSION,
        "management_version": RABBITMQ_VERSION,
        "cluster_name": context.node,
        "node": context.node,
        "rates_mode": "none",
        "exchange_types": _exchange_types(),
        "message_stats": {},
        "queue_totals": {
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
        },
        "object_totals": {
            "connections": len(facts),
            "channels": len(channels),
            "consumers": sum(len(channel.consumers) for channel in channels),
            "exchanges": sum(vhost.router.exchange_count for vhost in call.vhosts),
            "queues": len(queues) + sum(len(streams_of(call, vhost)) for vhost in call.vhosts),
        },
        "listeners": [
            {"node": context.node, "protocol": name, "ip_address": host, "port": port}
            for name, (host, port) in context.listeners().items()
        ],
        "contexts": [],
        "internal_errors": call.broker.faults.count,
    }


def _exchange_types() -> list[Row]:
    return [{"name": type_name(each), "description": "", "enabled": True} for each in ExchangeType]


async def nodes(call: Call) -> list[Row]:
    """List this node and, in a cluster, the others: those that are there, and those that hold
    something and are away. Of others only what all nodes know."""
    return [_node(call), *await call.broker.turns.run(_others(call))]


def _others(call: Call) -> Steps[list[Row]]:
    cluster, here = call.broker.cluster, call.broker.node_id
    if cluster is None:
        return []
    found = {
        peer.id: {"name": f"entrepot-{peer.id}@{peer.host}", "type": "disc", "running": True}
        for peer in cluster.peers()
        if peer.id != here
    }
    for count, held in enumerate(call.broker.held(), 1):
        for number in held.holders.replicas:
            if number != here and number not in found:
                name = f"entrepot-{number}"
                found[number] = {"name": name, "type": "disc", "running": False}
        if count % _PARTITIONS_STEP == 0:
            yield
    return [row for _, row in sorted(found.items())]


async def node(call: Call) -> Row:
    for row in await nodes(call):
        if row["name"] == call.path["name"]:
            return row
    raise HttpError(404, "Not Found")


def _node(call: Call) -> Row:
    context = call.context
    return {
        "name": context.node,
        "type": "disc",
        "running": call.broker.sessions.is_accepting,
        "uptime": context.clock.now_ms() - context.started_ms,
        "mem_alarm": False,
        "disk_free_alarm": False,
        "partitions": [],
        "exchange_types": _exchange_types(),
    }


def cluster_name(call: Call) -> Row:
    return {"name": call.context.node}


def is_alive(call: Call) -> Row:
    """Report that the broker is up. Raises UnknownVhost, and HttpError while no clients are
    accepted."""
    if "vhost" in call.path:
        call.broker.vhosts.get(call.path["vhost"])
    if not call.broker.sessions.is_accepting:
        raise HttpError(503, "the application is stopped")
    return {"status": "ok"}


async def faults(call: Call) -> list[Row]:
    """List partitions, tiers and queues that cannot be used, or not fully, and why. Not in
    RabbitMQ's API."""
    call.require_administrator()
    rows: list[Row] = [
        {"kind": "partition", "name": name, "state": state, "reason": reason}
        for name, state, reason in call.broker.partition_faults()
    ]
    for tier in call.broker.copier.troubles():
        reason = f"{tier.reason} ({tier.failures} failures in a row; what is not copied stays here)"
        rows.append({"kind": "tier", "name": tier.name, "state": "away", "reason": reason})
    queues = [queue for vhost in call.vhosts for queue in vhost.all_queues]
    for queue, fault in await call.in_turns((queue, queue.fault) for queue in queues):
        if fault is not None:
            name = f"{queue.name} in vhost {queue.vhost}"
            rows.append({"kind": "queue", "name": name, "state": "down", "reason": fault})
    return rows


def nothing(call: Call) -> list[Row]:
    """Return an empty list, for kinds of things that exist in RabbitMQ only."""
    return []


# The application: the part of the broker that serves queues' clients.


def application(call: Call) -> Row:
    return {"running": call.broker.sessions.is_accepting}


def run(call: Call) -> None:
    """Accept clients or, with `{"running": false}`, close all connections and refuse new ones."""
    call.require_administrator()
    call.fields.require("running")
    if call.fields.truth("running"):
        call.broker.sessions.accept()
    else:
        call.broker.sessions.send_away(STOPPED)


async def reset(call: Call) -> None:
    """Delete all queues, exchanges, bindings and virtual hosts. Topics and users stay."""
    call.require_administrator()
    if call.broker.sessions.is_accepting:
        raise HttpError(400, "the application is running: stop it before it is reset")
    vhosts = call.broker.vhosts
    for name in list(vhosts.names):
        if name != DEFAULT_VHOST:
            await vhosts.delete(name)
    vhost = vhosts.get(DEFAULT_VHOST)
    for name in list(vhost.queues):
        await vhost.delete_queue(name, None)
    for binding in list(vhost.router.bindings()):
        await vhost.unbind(binding)
    for exchange in list(vhost.router.exchanges()):
        if not vhost.router.is_predeclared(exchange.name):
            await vhost.delete_exchange(exchange.name)


async def bridges(call: Call) -> list[Row]:
    """List the bridges to other brokers. RabbitMQ's API has no such call."""
    return [
        {
            "name": each.name,
            "address": each.address,
            "state": "connected" if each.is_connected else "waiting",
            "problem": each.problem,
            "waiting": each.waiting,
            "received": each.received,
            "connections": each.connections,
        }
        for each in call.broker.bridges.facts()
    ]
