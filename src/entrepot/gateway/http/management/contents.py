"""The messages of a queue: get, peek and purge, and three functions that RabbitMQ does not have.

`rewind` makes messages ready again that were settled since an offset or a time. `move` moves
messages to another queue: each is settled here when it is permanent there, so none is lost, and
only a crash between the two leaves one in both. `deferred` lists messages that are not due yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.message import Failure, Publication, Refused, Run, Taken
from entrepot.broker.queue.queue import Queue
from entrepot.core.steps import Steps, finish
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import Fields, bad
from entrepot.gateway.http.management.messages import Pieces, check_sizes, describe
from entrepot.gateway.http.management.queues import find_queue
from entrepot.gateway.rabbitmq.names import DELAY_QUEUE
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]
# Describes these messages; the number is how many are ready in all.
ToRows = Callable[[Pieces, int], Steps[list[Row]]]

# An addition to RabbitMQ's modes: messages stay ready and are not counted as delivered.
PEEK = "peek"
ACK_MODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
MOVED_AT_ONCE = 500


async def take(call: Call) -> list[Row]:
    queue, fields = _readable(call), call.fields
    fields.require("count", "ackmode", "encoding")
    mode, encoding = fields.text("ackmode"), fields.text("encoding")
    if mode not in (PEEK, *ACK_MODES):
        raise bad(f"ackmode: one of {', '.join((*ACK_MODES, PEEK))}")
    if encoding not in ("auto", "base64"):
        raise bad("encoding: auto or base64")
    count = min(_count(fields), http_limits.MESSAGES_MAX)
    bytes_max = fields.number("truncate") if "truncate" in fields else None
    rows = partial(_rows, encoding=encoding, bytes_max=bytes_max)
    if mode == PEEK:
        return await call.broker.turns.run(_look(queue, count, rows))
    return await call.broker.turns.run(_take(queue, count, mode, rows))


def _look(queue: Queue, count: int, rows: ToRows) -> Steps[list[Row]]:
    pieces = yield from _light(queue.peek(count))
    return (yield from rows(pieces, queue.ready_count))


def _take(queue: Queue, count: int, mode: str, rows: ToRows) -> Steps[list[Row]]:
    owner = object()
    try:
        pieces = yield from _light(_each(queue, owner, count))
        left = queue.ready_count + sum(len(taken.offsets) for _, taken in pieces)
        found = yield from rows(pieces, left)
        for lane, taken in pieces:
            if mode.endswith("requeue_true"):
                queue.requeue(owner, lane, taken.offsets)
            elif mode.startswith("ack"):
                queue.settle(owner, lane, taken.offsets)
            else:
                queue.reject(owner, lane, taken.offsets)
            yield
    except BaseException:  # Also when the client has disconnected: nobody else could return them.
        queue.release(owner)
        raise
    return found


def _count(fields: Fields) -> int:
    count = fields.number("count")
    if count < 1:
        raise bad("count: at least 1")
    return count


def _readable(call: Call) -> Queue:
    call.require(Operation.READ, ResourceKind.QUEUE, call.path["name"])
    return find_queue(call)


def _each(queue: Queue, owner: object, count: int) -> Iterator[tuple[int, Taken]]:
    """Yield messages one by one, as basic.get would."""
    for _ in range(count):
        got = queue.get(owner, auto_ack=False)
        if got is None:
            return
        yield got


def _light(pieces: Iterator[tuple[int, Taken]]) -> Steps[Pieces]:
    """Take pieces until they have MESSAGES_BYTES_MAX."""
    kept: Pieces = []
    weight = 0
    for lane, taken in pieces:
        kept.append((lane, taken))
        weight += sum(len(body) for _, body in taken.run.messages)
        if weight >= http_limits.MESSAGES_BYTES_MAX:
            break
        yield
    return kept


def _rows(pieces: Pieces, left: int, *, encoding: str, bytes_max: int | None) -> Steps[list[Row]]:
    check_sizes(pieces, bytes_max)
    rows = []
    for lane, taken in pieces:
        for place in range(len(taken.offsets)):
            left -= 1
            row = yield from describe(taken, place, encoding=encoding, bytes_max=bytes_max)
            rows.append(row | {"message_count": max(0, left), "lane": lane})
    return rows


def purge(call: Call) -> None:
    _readable(call).purge()


# Additions to RabbitMQ's API.


def rewind(call: Call) -> Row | None:
    """Rewind a queue; with `preview`, only say what that would make ready again."""
    queue, fields = _readable(call), call.fields
    if ("offset" in fields) == ("time" in fields):
        raise bad("either an offset or a time")
    offset = fields.number("offset") if "offset" in fields else None
    to_ms = time_ms(fields, "time") if "time" in fields else None
    if fields.truth("preview"):
        again, leased = queue.rewind_preview(offset=offset, time_ms=to_ms)
        return {"again": again, "leased": leased}
    queue.rewind(offset=offset, time_ms=to_ms)
    return None


def time_ms(fields: Fields, name: str) -> int:
    """Return a time in ms since 1970, given as such or as ISO 8601; UTC by default."""
    try:
        return fields.number(name)
    except HttpError:
        pass
    try:
        moment = datetime.fromisoformat(fields.text(name))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise bad(f"{name}: milliseconds since 1970, or like 2030-01-02T03:04:05") from None


async def move(call: Call) -> Row:
    source, fields = _readable(call), call.fields
    fields.require("to")
    name = fields.text("to")
    call.require(Operation.WRITE, ResourceKind.QUEUE, name)
    target = call.vhost.queue(name, call)
    if target is source:
        raise bad("a queue cannot be moved to itself")
    count = _count(fields) if "count" in fields else source.ready_count
    moved = 0
    while moved < count:
        some = move_some(source, target, min(count - moved, MOVED_AT_ONCE))
        # Shielded: when the client disconnects, no message may be left in both.
        just_moved = await asyncio.shield(asyncio.ensure_future(some))
        if not just_moved:
            break
        moved += just_moved
    return {"moved": moved}


async def move_some(source: Queue, target: Queue, count: int) -> int:
    """Move the next messages, at most `count`. Return how many were moved.

    Raises StorageError; HttpError when the target refuses some of them.
    """
    owner = object()
    pieces = finish(_light(_each(source, owner, count)))
    try:
        refused = await publish_all(target, pieces)
        for place, (lane, taken) in enumerate(pieces):
            if place not in refused:
                source.settle(owner, lane, taken.offsets)
    finally:
        source.release(owner)
    if refused:
        raise HttpError(400, f"queue '{target.name}' takes no more")
    return len(pieces)


async def publish_all(target: Queue, pieces: Pieces) -> Sequence[int]:
    """Publish messages to a queue. Return the indexes of those it refuses. Raises StorageError.

    Each piece is one message.
    """
    done: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()

    def arrived(failure: Failure | None) -> None:
        if failure is None:
            done.set_result(())
        elif isinstance(failure, Refused):
            done.set_result(range(len(pieces)) if failure.places is None else failure.places)
        else:
            done.set_exception(failure)

    publication = Publication(arrived)
    start = 0
    for run in _runs(pieces):
        part = publication.part(range(start, start + len(run.messages)))
        target.publish(run, part)
        part.arrived()
        start += len(run.messages)
    publication.arrived()
    return await done


def _runs(pieces: Pieces) -> Iterator[Run]:
    """Yield runs: adjacent messages with the same time."""
    runs = [taken.run for _, taken in pieces]
    for time, group in groupby(runs, lambda run: run.time_ms):
        yield Run(time, [message for run in group for message in run.messages])


def deferred(call: Call) -> list[Row]:
    return [
        {"lane": lane, "offset": offset, "due": due_ms}
        for lane, offset, due_ms in _with_times(call).deferred(http_limits.MESSAGES_MAX)
    ]


def change_deferred(call: Call) -> None:
    call.fields.require("due")
    lane, offset = _place(call)
    if not _with_times(call).change_deferred(lane, offset, time_ms(call.fields, "due")):
        raise HttpError(404, "no such message is deferred")


def cancel_deferred(call: Call) -> None:
    lane, offset = _place(call)
    if not _with_times(call).cancel_deferred(lane, offset):
        raise HttpError(404, "no such message is deferred")


def _with_times(call: Call) -> Queue:
    """Return the queue, or that of the delayed exchanges, which has a reserved name."""
    delayed = call.vhost.delayed if call.path["name"] == DELAY_QUEUE else None
    if delayed is None:
        return _readable(call)
    call.require(Operation.READ, ResourceKind.QUEUE, DELAY_QUEUE)
    return delayed


def _place(call: Call) -> tuple[int, int]:
    """Return lane and offset. The path has `offset` or, for a queue with priorities,
    `lane:offset`."""
    lane, colon, offset = call.path["offset"].rpartition(":")
    place = Fields({"lane": lane if colon else "0", "offset": offset})
    return place.number("lane"), place.number("offset")
