"""Accounts of queues: where all their messages are, and what does not add up.

RabbitMQ has nothing like it. See `broker.queue.conservation` for what the figures mean.
"""

from __future__ import annotations

import asyncio
from typing import Any

from entrepot.broker.queue.queue import Queue
from entrepot.broker.virtual_host.waiting_room import QUEUE_NAME as DELAYED
from entrepot.gateway.http.management.call import Call

Row = dict[str, Any]


async def list_all(call: Call) -> list[Row]:
    """Of all queues, what waits at delayed exchanges included. Streams keep no account."""
    rows: list[Row] = []
    for vhost in call.vhosts:
        for queue in vhost.all_queues:
            if queue.is_stopped or not queue.is_gone:  # It may be by its turn.
                rows.append(_describe(queue))
                await asyncio.sleep(0)  # Each may take a while, and others have their turn.
    return rows


def show(call: Call) -> Row:
    name, vhost = call.path["name"], call.vhost
    delayed = vhost.delayed if name == DELAYED else None
    return _describe(delayed or vhost.queue(name))


def _describe(queue: Queue) -> Row:
    figures = queue.account()._asdict()
    if queue.fault is not None:
        figures["wrong"] = [f"the queue is down: {queue.fault}"]
    is_ok = not figures["wrong"]
    return {"name": queue.name, "vhost": queue.vhost, **figures, "ok": is_ok}
