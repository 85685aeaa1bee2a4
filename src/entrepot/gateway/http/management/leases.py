"""Leases of a queue's messages, for clients without a connection. An addition to RabbitMQ's API.

A lease holds messages of the queue's lanes, given as ranges: lane, first offset, end. Until it
ends nobody else gets them; settled messages are gone, and messages that are released, or left
when the lease ends, are ready again in their old place. A restart forgets all leases: a client
may then ask for the messages it had, and is told which it got, which others have, and which are
about to be dead letters; the rest are gone.

A client that continues the work of another sees how long ago the lease was renewed, so as not to
interrupt one that is still working, and takes the lease over: its old id is invalid from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.timed_leases import TimedLease
from entrepot.broker.served_partition import heard
from entrepot.core import limits
from entrepot.core.errors import UnknownLease
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import Fields, bad
from entrepot.gateway.http.management.messages import Pieces, check_sizes, describe
from entrepot.gateway.http.management.queues import find_queue
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]
Span = tuple[int, range]  # (lane, offsets).

SECONDS = 30


async def lease(call: Call) -> Row:
    """Lease the next messages, or given ones as far as they are free."""
    queue, fields = _readable(call), call.fields
    wanted = _spans(fields, "ranges")
    count = fields.number("count", 1)
    if not wanted and not 1 <= count <= limits.LEASE_MESSAGES_MAX:
        raise bad(f"count: from 1 to {limits.LEASE_MESSAGES_MAX}")
    with_messages, encoding = fields.truth("messages"), fields.text("encoding", "auto")
    if encoding not in ("auto", "base64"):
        raise bad("encoding: auto or base64")
    if with_messages and wanted:
        raise bad("messages: not with ranges, which may be any number of messages")
    if with_messages:
        count = min(count, http_limits.MESSAGES_MAX)
    leases, expiry_fails = queue.timed_leases, fields.truth("expiry_fails")
    made = leases.open(_lasts_ms(fields, "seconds"), is_attempt=expiry_fails)
    try:
        pieces = await _taken(queue, made, wanted, count, with_bodies=with_messages)
        check_sizes(pieces)
        messages = await call.broker.turns.run(_messages(pieces, encoding))
    except BaseException:  # Also when the client has disconnected.
        leases.release_all(made, is_attempt=False)
        raise
    leases.close_if_empty(made)
    row: Row = {"lease": made.id if pieces else None, "until_ms": made.until_ms}
    row["ranges"] = [each for lane, taken in pieces for each in _ranges(lane, taken)]
    if wanted:
        row["leased_by_others"] = _among(wanted, partial(leases.leased_by_others, made))
        row["dying"] = _among(wanted, leases.dying)
    if with_messages:
        row["messages"] = messages
    return row


async def change(call: Call) -> Row:
    """Settle, reject and release messages of a lease, in this order; perhaps renew or take it
    over."""
    queue, fields = _readable(call), call.fields
    try:
        held = queue.timed_leases.find(call.path["lease"])
    except UnknownLease as error:
        raise HttpError(404, str(error)) from None
    leases, failed = queue.timed_leases, fields.truth("failed")
    settled, rejected, released = (_spans(fields, name) for name in ("settle", "reject", "release"))
    idle_ms = leases.idle_ms(held)
    if "renew_seconds" in fields:
        leases.renew(held, _lasts_ms(fields, "renew_seconds"))
    if fields.truth("take_over"):
        leases.take_over(held)

    def release(held: TimedLease, lane: int, offsets: range) -> int:
        return leases.release(held, lane, offsets, is_attempt=failed)

    row: Row = {
        "settled": _each(leases.settle, held, settled),
        "rejected": _each(leases.reject, held, rejected),
        "released": _each(release, held, released),
        "left": held.count,
        "lease": held.id,
        "until_ms": held.until_ms,
        "idle_ms": idle_ms,
    }
    leases.close_if_empty(held)
    if settled:
        await heard(queue.when_settlements_committed)
    return row


def _readable(call: Call) -> Queue:
    call.require(Operation.READ, ResourceKind.QUEUE, call.path["name"])
    return find_queue(call)


# --- taking


async def _taken(
    queue: Queue, made: TimedLease, wanted: list[Span], count: int, *, with_bodies: bool
) -> Pieces:
    """Take the messages, some in each turn."""
    pieces: Pieces = []
    for lane, rest in wanted:
        while rest:
            found, rest = queue.timed_leases.take_at(made, lane, rest)
            pieces += _without_bodies(found)
            await asyncio.sleep(0)
    if wanted:
        return pieces
    weight = 0
    while count > 0 and not (with_bodies and weight >= http_limits.MESSAGES_BYTES_MAX):
        found = queue.timed_leases.take(made, count)
        if not found:
            break
        count -= sum(len(taken.offsets) for _, taken in found)
        weight += sum(len(body) for _, taken in found for _, body in taken.run.messages)
        pieces += found if with_bodies else _without_bodies(found)
        await asyncio.sleep(0)
    return pieces


def _among(wanted: list[Span], found: Callable[[int, range], list[range]]) -> list[list[int]]:
    return [
        [lane, each.start, each.stop] for lane, offsets in wanted for each in found(lane, offsets)
    ]


def _without_bodies(pieces: Pieces) -> Pieces:
    """Drop the bodies: only messages that are sent need be kept until all are found."""
    return [(lane, taken._replace(run=taken.run._replace(messages=()))) for lane, taken in pieces]


def _ranges(lane: int, taken: Taken) -> Iterator[list[int]]:
    """Yield ranges [lane, first, end, deliveries before], one for adjacent equal counts."""
    offsets, attempts = taken.offsets, taken.attempts
    start = 0
    for place in range(1, len(offsets) + 1):
        if place == len(offsets) or (attempts is not None and attempts[place] != attempts[start]):
            before = 0 if attempts is None else attempts[start]
            yield [lane, offsets[start], offsets[place - 1] + 1, before]
            start = place


def _messages(pieces: Pieces, encoding: str) -> Steps[list[Row]]:
    """Describe the messages, but for those that were taken without bodies."""
    rows = []
    for lane, taken in pieces:
        for place in range(len(taken.run.messages)):
            row = yield from describe(taken, place, encoding=encoding, bytes_max=None)
            rows.append(row | {"lane": lane})
    return rows


# --- settling and releasing


def _each(way: Callable[[TimedLease, int, range], int], held: TimedLease, spans: list[Span]) -> int:
    return sum(way(held, lane, offsets) for lane, offsets in spans)


# --- reading the request


def _lasts_ms(fields: Fields, name: str) -> int:
    lasts_ms = fields.number(name, SECONDS) * 1_000
    if not 0 < lasts_ms <= limits.LEASE_MS_MAX:
        raise bad(f"{name}: from 1 to {limits.LEASE_MS_MAX // 1_000}")
    return lasts_ms


def _spans(fields: Fields, name: str) -> list[Span]:
    found = [_span(name, each) for each in fields.sequence(name)]
    if len(found) > limits.LEASE_RANGES_MAX:
        raise bad(f"{name}: more than {limits.LEASE_RANGES_MAX} ranges")
    if sum(len(offsets) for _, offsets in found) > limits.QUEUE_TIMED_LEASED_MAX:
        raise bad(f"{name}: more than {limits.QUEUE_TIMED_LEASED_MAX} messages")
    return found


def _span(name: str, value: object) -> Span:
    """Return a range of the request; further elements after lane, first and end are ignored."""
    if isinstance(value, list) and len(value) >= 3:
        lane, first, end = value[:3]
        if all(type(each) is int and 0 <= each < 2**63 for each in (lane, first, end)):
            return lane, range(first, end)
    raise bad(f"{name}: not a list of ranges, [lane, first, end]")
