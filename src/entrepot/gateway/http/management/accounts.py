"""Accounts of queues: how many messages are in which state, and what does not add up.

RabbitMQ has nothing like it. See `broker.queue.conservation` for what the figures mean.
"""

from __future__ import annotations

import asyncio
from typing import Any

from entrepot.broker.queue.queue import Queue
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.rabbitmq.names import DELAY_QUEUE

Row = dict[str, Any]


async def list_all(call: Call) -> list[Row]:
    """List the accounts of all queues, those of delayed exchanges included. Streams have none."""
    rows: list[Row] = []
    for vhost in call.vhosts:
        for queue in vhost.all_queues:
            # It may have been deleted since the list was made.
            if queue.is_stopped or not queue.is_gone:
                rows.append(_describe(queue))
                await asyncio.sleep(0)  # Each may take a while; let other tasks run.
    return rows


def show(call: Call) -> Row:
    name, vhost = call.path["name"], call.vhost
    delayed = vhost.delayed if name == DELAY_QUEUE else None
    return _describe(delayed or vhost.queue(name))


def _describe(queue: Queue) -> Row:
    figures = queue.account()._asdict()
    if queue.fault is not None:
        figures["wrong"] = [f"the queue is down: {queue.fault}"]
    is_ok = not figures["wrong"]
    return {"name": queue.name, "vhost": queue.vhost, **figures, "ok": is_ok}
