"""Queues, as the console lists and shows them; and dead letters that go back where they died."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.ledger import Lease
from entrepot.broker.queue.queue import Queue
from entrepot.core.errors import PeerError, UnknownQueue, UnknownVhost
from entrepot.core.value import thaw_table
from entrepot.gateway.http.console.paging import Listing, page
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.contents import publish_all
from entrepot.gateway.http.management.fields import bad
from entrepot.gateway.http.management.messages import Pieces, to_json
from entrepot.gateway.http.management.queues import find_queue
from entrepot.gateway.rabbitmq.queue_arguments import type_of

Row = dict[str, Any]

_SENT_BACK_MAX = 1_000  # By one request.


async def list_page(call: Call) -> Row:
    """List a page of the queues; streams are listed with the topics."""
    listing = Listing[Queue](
        name=lambda queue: queue.name,
        columns={
            "vhost": lambda queue: queue.vhost,
            "type": lambda queue: type_of(queue.settings),
            "ready": lambda queue: _count(queue, "ready_count"),
            "unacked": lambda queue: _count(queue, "unacked_count"),
            "consumers": lambda queue: queue.consumer_count,
            "state": lambda queue: queue.fault is None,
        },
        describe=lambda queue: None if queue.is_gone and queue.fault is None else row(queue),
    )
    return await call.broker.turns.run(page(_visible(call), listing, call.query))


def _visible(call: Call) -> Iterator[Queue]:
    for vhost in call.vhosts:
        yield from list(vhost.queues.values())


def _count(queue: Queue, name: str) -> int:
    return 0 if queue.fault is not None else getattr(queue, name)


def row(queue: Queue) -> Row:
    """Describe a queue: what it is, and what is in it."""
    spec, fault = queue.spec, queue.fault
    found: Row = {
        "name": to_json(queue.name),
        "vhost": queue.vhost,
        "type": type_of(queue.settings),
        "durable": spec.durable,
        "exclusive": spec.exclusive,
        "auto_delete": spec.auto_delete,
        "consumers": queue.consumer_count,
        "fault": fault,
    }
    if fault is None:
        found |= {
            "ready": queue.ready_count,
            "unacked": queue.unacked_count,
            "deferred": queue.deferred_count,
        }
        accepted, *settled = queue.turnover
        found["accepted"], found["settled"] = accepted, sum(settled)
    return found


def show(call: Call) -> Row:
    """Show one queue, with what the user may do to it."""
    queue = call.vhost.queue(call.path["name"])
    arguments = to_json(thaw_table(queue.spec.arguments))
    may = call.principal.may
    rights = {
        name: may(operation, ResourceKind.QUEUE, queue.name, queue.vhost)
        for name, operation in (
            ("read", Operation.READ),
            ("write", Operation.WRITE),
            ("delete", Operation.DELETE),
        )
    }
    # A message is published through the default exchange.
    rights["publish"] = rights["write"] and may(
        Operation.WRITE, ResourceKind.EXCHANGE, "", queue.vhost
    )
    return row(queue) | {"arguments": arguments, "dropped": dict(queue.dropped), "may": rights}


async def send_back(call: Call) -> Row:
    """Send dead letters back to the queues in which they died: these, or the next ones.

    Each is settled here when it is permanent there. What never died, or died in a queue that is
    gone, stays.
    """
    call.require(Operation.READ, ResourceKind.QUEUE, call.path["name"])
    source, owner = find_queue(call), object()
    try:
        pieces = _taken(call, source, owner)
        sent, reasons = 0, dict[str, None]()
        for name, some in _by_origin(pieces).items():
            # Shielded: when the client disconnects, no message may be left in both.
            work = _send(call, source, owner, name, some)
            try:
                sent += await asyncio.shield(asyncio.ensure_future(work))
            except PeerError as error:
                reasons[str(error)] = None
    finally:
        source.release(owner)
    return {"sent": sent, "stayed": len(pieces) - sent, "reasons": list(reasons)}


def _taken(call: Call, source: Queue, owner: object) -> Pieces:
    """Take the messages that the request names by lane and offset, or the next ones."""
    wanted = call.fields.sequence("messages")
    if not wanted:
        count = min(call.fields.number("count", _SENT_BACK_MAX), _SENT_BACK_MAX, source.ready_count)
        found = (source.get(owner, auto_ack=False) for _ in range(count))
        return [each for each in found if each is not None]
    if len(wanted) > _SENT_BACK_MAX:
        raise bad(f"messages: at most {_SENT_BACK_MAX}")
    lanes = source.lane_count
    pieces: Pieces = []
    for each in wanted:
        if not (isinstance(each, list) and len(each) == 2 and all(type(n) is int for n in each)):
            raise bad("messages: a list of [lane, offset]")
        lane, offset = each
        if not 0 <= lane < lanes or not 0 <= offset < 2**62:
            raise bad("messages: there is no such lane or offset")
        taken, _ = source.take_at(Lease(owner), lane, range(offset, offset + 1))
        pieces += taken
    return pieces


def _by_origin(pieces: Pieces) -> dict[str | None, Pieces]:
    """Group messages by the queue in which each died last; None for those that never did."""
    found: dict[str | None, Pieces] = {}
    for lane, taken in pieces:
        envelope, _ = taken.run.messages[0]
        deaths = envelope.format.deaths(envelope.head)
        found.setdefault(deaths[0].queue if deaths else None, []).append((lane, taken))
    return found


async def _send(call: Call, source: Queue, owner: object, name: str | None, pieces: Pieces) -> int:
    """Send messages to a queue. Return how many are there. Raises PeerError."""
    if name is None:
        raise bad("some messages are no dead letters")
    call.require(Operation.WRITE, ResourceKind.QUEUE, name)
    target = call.vhost.queue(name, call)
    if target is source:
        raise bad(f"some messages died in '{name}' itself")
    refused = await publish_all(target, pieces)
    for place, (lane, taken) in enumerate(pieces):
        if place not in refused:
            source.settle(owner, lane, taken.offsets)
    if refused:
        raise bad(f"queue '{name}' takes no more")
    return len(pieces)


def find_by_name(call: Call, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield (virtual host, name) of the queues whose names have this part."""
    for vhost in call.vhosts:
        with suppress(UnknownVhost, UnknownQueue):
            yield from ((vhost.name, name) for name in list(vhost.queues) if wanted in name.lower())
