"""SUBSCRIBE and UNSUBSCRIBE, ACK and NACK."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.selection import Selection
from entrepot.broker.selector import Selector
from entrepot.core.errors import InvalidSelector, PeerError
from entrepot.gateway.stomp.declaring import is_durable_subscription, queue_for
from entrepot.gateway.stomp.destination import Kind, parse
from entrepot.gateway.stomp.headers import read_flag, read_number
from entrepot.gateway.stomp.subscription import AckMode, Subscription
from entrepot.gateway.stomp.transaction import open_transaction
from entrepot.gateway.unacked import Disposition, Held, UnknownTag, conclude
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import ACK, V1_1, V1_2, Frame, Headers

if TYPE_CHECKING:
    from entrepot.gateway.stomp.connection import Connection

_COUNT_MAX = 2**31 - 1
_NUMBERS = re.compile("([0-9]{1,10})-([1-9][0-9]{0,17})", re.ASCII)
_SIGNED = re.compile("-?[0-9]{1,9}", re.ASCII)


async def subscribe(connection: Connection, frame: Frame) -> None:
    """Make the queue that is needed, and deliver its messages. Raises PeerError."""
    headers = frame.headers
    destination = parse(headers["destination"])
    selector = _selector(headers)
    tag = headers.get("id", headers["destination"])
    if tag.startswith(Kind.TEMPORARY_QUEUE.value):
        raise PeerError(f"id must not begin with {Kind.TEMPORARY_QUEUE.value}")
    if tag in connection.subscriptions:
        raise PeerError(f"subscription '{tag[:100]}' exists already")
    mode = _mode(headers)
    prefetch = read_number("prefetch-count", headers.get("prefetch-count", "0"), _COUNT_MAX)
    priority = _priority(headers)
    connection.check_subscriptions()
    queue = await queue_for(connection, destination, headers)
    connection.check(Operation.READ, ResourceKind.QUEUE, queue.name)
    if not connection.is_open:
        return
    queue.check_up()
    owns_queue = destination.kind in (Kind.TOPIC, Kind.EXCHANGE)
    subscription = Subscription(
        connection,
        queue,
        connection.new_number(),
        tag,
        mode,
        prefetch=prefetch,
        priority=priority,
        is_named="id" in headers,
        selection=None if selector is None else Selection(selector, drops_others=owns_queue),
        owns_queue=owns_queue,
    )
    connection.add(subscription)
    connection.receipt(frame)
    subscription.start()


def _selector(headers: Headers) -> Selector | None:
    text = headers.get("selector", "").strip()
    try:
        return Selector(text) if text else None
    except InvalidSelector as error:
        raise PeerError(f"invalid selector, {error}") from None


def _mode(headers: Headers) -> AckMode:
    text = headers.get("ack", AckMode.AUTO.value)
    for mode in AckMode:
        if mode.value == text:
            return mode
    modes = ", ".join(mode.value for mode in AckMode)
    raise PeerError(f"ack:{text[:100]} is none of {modes}")


def _priority(headers: Headers) -> int:
    text = headers.get("x-priority", "0")
    if not _SIGNED.fullmatch(text):
        raise PeerError(f"x-priority:{text[:100]} is not a number")
    return int(text)


async def unsubscribe(connection: Connection, frame: Frame) -> None:
    """End a subscription. What it has not acknowledged stays with the connection.

    With `durable:true` the queue of a durable subscription is deleted, too.
    """
    headers = frame.headers
    tag = headers["id"] if "id" in headers else headers["destination"]
    subscription = connection.subscriptions.get(tag)
    if subscription is None or tag.startswith(Kind.TEMPORARY_QUEUE.value):
        raise PeerError(f"no subscription '{tag[:100]}'")
    deletes_queue = is_durable_subscription(headers) and subscription.owns_queue
    queue = subscription.queue
    if deletes_queue:
        connection.check(Operation.DELETE, ResourceKind.QUEUE, queue.name)
    connection.remove(subscription)
    if deletes_queue:
        await connection.vhost.delete_queue(queue.name, connection)
    connection.receipt(frame)


# Acknowledging.


def acknowledge(connection: Connection, frame: Frame) -> None:
    """Settle a delivery, or requeue it, or reject it, as ACK and NACK ask. Raises PeerError."""
    headers = frame.headers
    name = "id" if connection.version == V1_2 else "message-id"
    subscription, taken = _take(connection, headers, name)
    disposition = Disposition.SETTLED
    if frame.command != ACK:
        requeues = read_flag(headers, "requeue", True)
        disposition = Disposition.REQUEUED if requeues else Disposition.REJECTED
    transaction = open_transaction(connection, headers)
    if transaction is not None:
        transaction.hold_disposition(subscription, taken, disposition)
        connection.receipt(frame)
        return
    conclude(taken, disposition)
    receipt = headers.get("receipt")
    if receipt is not None:
        subscription.when_settled(connection.receipt_later(receipt))


def _take(connection: Connection, headers: Headers, name: str) -> tuple[Subscription, list[Held]]:
    """Return the deliveries that are answered; they are no longer unacknowledged."""
    text = headers[name]
    session, _, rest = text.partition("-")
    found = _NUMBERS.fullmatch(rest)
    subscription = None
    if found is not None and session == connection.session:
        subscription = connection.numbered.get(int(found[1]))
    is_other = connection.version == V1_1 and (
        subscription is not None and headers["subscription"] != subscription.tag
    )
    if found is None or subscription is None or is_other:
        raise _unknown(name, text)
    number = int(found[2])
    try:
        if subscription.mode is AckMode.CLIENT:
            return subscription, subscription.unacked.take_through(number)
        taken, known_end = subscription.unacked.take(number, number + 1)
    except UnknownTag:
        raise _unknown(name, text) from None
    if known_end != number + 1:
        raise _unknown(name, text)
    return subscription, taken


def _unknown(name: str, text: str) -> PeerError:
    return PeerError(f"{name}:{text[:100]} is no message that waits for an acknowledgement")


assert stomp_limits.SUBSCRIPTIONS_MAX < 10**10
