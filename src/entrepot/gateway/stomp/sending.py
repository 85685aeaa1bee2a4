"""SEND: messages are checked, sent to the queues, and counted until they are committed.

Frames that came together and go to the same exchange are published as one run. Messages whose
frames differ in nothing but their receipts share an envelope. A frame that has to wait, because
its queue must be declared first, delays those after it. A mistake closes the connection; frames
before it are published, and those after it are not.

A RECEIPT says that the message is committed to disk in every queue that it was routed to. One
that is routed nowhere is dropped, and gets its RECEIPT.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.message import Failure, Refused
from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.core import limits
from entrepot.core.errors import PeerError, StorageError, UnknownExchange
from entrepot.core.message import Envelope, Message
from entrepot.gateway.stomp import declaring, transaction
from entrepot.gateway.stomp.destination import Destination, Kind, parse
from entrepot.gateway.stomp.errors import about
from entrepot.gateway.stomp.headers import VARYING, envelope_of
from entrepot.gateway.stomp.publishing import publish
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import Frame, Headers

if TYPE_CHECKING:
    from entrepot.gateway.stomp.connection import Connection

_QUEUES = (Kind.QUEUE, Kind.EXISTING_QUEUE)


class Plan(NamedTuple):
    """Where a message goes, and its envelope."""

    destination: Destination
    envelope: Envelope

    @property
    def queue(self) -> str | None:
        """Return the queue that must exist; None if none must."""
        return self.destination.key if self.destination.kind in _QUEUES else None


class Run:
    """Messages to one exchange that are not published yet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._exchange = ""
        self._messages: list[Message] = []
        self._receipts: list[str | None] = []  # Of each message.

    def add(self, exchange: str, message: Message, receipt: str | None) -> None:
        """Add a message. Those before it are published if it cannot be in one run with them."""
        is_large = len(message[1]) > limits.LARGE_BYTES  # It is written in slices, by itself.
        if self._messages and (is_large or exchange != self._exchange):
            self.publish()
        self._exchange = exchange
        self._messages.append(message)
        self._receipts.append(receipt)
        if is_large:
            self.publish()

    def publish(self) -> None:
        if self._messages:
            messages, receipts = self._messages, self._receipts
            self._messages, self._receipts = [], []
            has_receipts = receipts.count(None) < len(receipts)
            connection = self._connection
            if has_receipts:
                size = sum([len(each) for each in receipts if each is not None])
                told = Receipts(connection, receipts)
                publish(connection, self._exchange, messages, told, size)
            else:
                publish(connection, self._exchange, messages, connection.note_lost)


class Receipts:
    """The receipts of a run. It is called when the messages are committed or have failed."""

    __slots__ = ("_connection", "_receipts")

    def __init__(self, connection: Connection, receipts: Sequence[str | None]) -> None:
        self._connection = connection
        self._receipts = receipts

    def __call__(self, failure: Failure | None) -> None:
        receipts = self._receipts
        lost: Sequence[int] = ()
        if failure is not None:
            lost = range(len(receipts))
            if isinstance(failure, Refused) and failure.places is not None:
                lost = failure.places
        gone = dict.fromkeys(lost)
        kept = [each for at, each in enumerate(receipts) if each is not None and at not in gone]
        self._connection.send_receipts(kept)
        self._connection.note_lost(failure)
        for place in lost:
            receipt = receipts[place]
            if receipt is not None:
                self._connection.fail(about(PeerError(f"not stored: {failure}"), receipt))
                return


def send(connection: Connection, frames: list[Frame], start: int = 0) -> Awaitable[None] | None:
    """Publish the messages in frames of SEND, from the place `start` on. Raises PeerError.

    Returns what must be awaited, if a queue has to be declared first.
    """
    run = Run(connection)
    before: Headers | None = None
    plan: Plan | None = None
    for place in range(start, len(frames)):
        frame = frames[place]
        headers = frame.headers
        try:
            if plan is None or headers is not before:
                plan = _plan(connection, headers)
                if plan is None or _must_declare(connection, plan):
                    run.publish()
                    return _declare_and_send(connection, frames, place)
                before = headers
            exchange, message = plan.destination.exchange, (plan.envelope, frame.body)
            if "transaction" in headers:
                held_by = transaction.open_transaction(connection, headers)
                assert held_by is not None
                held_by.hold(exchange, message, plan.queue)
                connection.has_published = True  # What is held takes memory, too.
                connection.receipt(frame)
            else:
                run.add(exchange, message, headers.get("receipt"))
        except (PeerError, StorageError) as error:
            run.publish()
            raise about(error, headers.get("receipt")) from None
    run.publish()
    return None


def _plan(connection: Connection, headers: Headers) -> Plan | None:
    """Return where the message goes, and its envelope. Raises PeerError.

    None means: the queue for replies to it must be declared first.
    """
    key = tuple([item for item in headers.items() if item[0] not in VARYING])
    plan = connection.plans.get(key)
    if plan is None:
        if "destination" not in headers:
            raise PeerError("SEND needs the header destination")
        destination = parse(headers["destination"])
        if destination.kind is Kind.TEMPORARY_QUEUE:
            raise PeerError(f"{destination.kind.value}… cannot be sent to, only replied to")
        reply_to = headers.get("reply-to")
        if reply_to is not None and reply_to.startswith(Kind.TEMPORARY_QUEUE.value):
            reply_to = connection.reply_queues.get(reply_to)
            if reply_to is None:
                return None
        envelope = envelope_of(headers, destination.exchange, destination.key, reply_to)
        plan = Plan(destination, envelope)
        if len(envelope.head) <= stomp_limits.HEAD_CACHED_BYTES_MAX:
            if len(connection.plans) >= stomp_limits.ENVELOPES_CACHED_MAX:
                connection.plans.clear()
            connection.plans[key] = plan
    _check(connection, plan, headers)
    return plan


def _check(connection: Connection, plan: Plan, headers: Headers) -> None:
    """Raise PeerError if the message must not be sent there."""
    exchange, key, vhost = plan.destination.exchange, plan.destination.key, connection.vhost
    connection.check(Operation.WRITE, ResourceKind.EXCHANGE, exchange)
    user = connection.principal.user
    if headers.get("user-id", user) != user:
        raise PeerError(f"user-id:{headers['user-id'][:100]} is not '{user}', who is logged in")
    if exchange == DEFAULT_EXCHANGE:
        if key not in vhost.queues and vhost.stream(key) is not None:
            connection.check(Operation.WRITE, ResourceKind.QUEUE, key)
    elif vhost.router.exchange(exchange) is None:
        raise UnknownExchange(f"no exchange '{exchange}' in vhost '{vhost.name}'")


def _must_declare(connection: Connection, plan: Plan) -> bool:
    """Return whether the queue is missing and has to be declared. Raises PeerError."""
    name, vhost = plan.queue, connection.vhost
    if name is None or name in vhost.queues or vhost.stream(name) is not None:
        return False
    if vhost.router.is_elsewhere(name):
        return False
    if plan.destination.kind is Kind.EXISTING_QUEUE:
        raise PeerError(f"no queue '{name}' in vhost '{vhost.name}'")
    return True


async def _declare_and_send(connection: Connection, frames: list[Frame], place: int) -> None:
    """Declare the queues that the frame at `place` needs, and go on with it."""
    headers = frames[place].headers
    try:
        plan = _plan(connection, headers)
        if plan is None:
            await connection.declare_reply_queue(headers["reply-to"])
            plan = _plan(connection, headers)
            assert plan is not None
        if _must_declare(connection, plan):
            await declaring.declare(connection, plan.destination.key, headers)
    except (PeerError, StorageError) as error:
        raise about(error, headers.get("receipt")) from None
    if connection.is_open:
        work = send(connection, frames, place)
        if work is not None:
            await work
