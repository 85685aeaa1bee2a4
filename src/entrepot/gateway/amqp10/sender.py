"""A link on which the client sends: messages are checked, published in runs, and settled.

Transfers that came together are one run for each exchange. A message is accepted when it is
committed to disk in every queue that it was routed to; one that a queue refused is rejected. One
that is routed nowhere is released, but for topics: that nobody listens there is no failure. The
link's credit is renewed when half of it is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.message import Failure, Publication, Refused
from entrepot.core import limits
from entrepot.core.errors import PeerError, StorageError, UnknownExchange
from entrepot.core.message import Envelope, Message
from entrepot.gateway.amqp10.address import TOPIC_EXCHANGE, Address, Kind, parse
from entrepot.gateway.amqp10.format import AMQP_1_0, head_of
from entrepot.gateway.timing import timed
from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10 import message as wire
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope
from entrepot.wire.amqp10.performatives import (
    Accepted,
    Error,
    Flow,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.connection import Connection
    from entrepot.gateway.amqp10.session import Session

ACCEPTED, RELEASED = Accepted(), Released()
_BATCH = 0x80013700  # The format of a message that has others in its body.
_SCHEDULED = b"x-opt-scheduled-enqueue-time"  # An annotation of Azure Service Bus.


class Delivery:
    """A message that a client sends, until its last transfer has come."""

    __slots__ = ("chunks", "format", "is_settled", "number", "size", "state", "told")

    def __init__(self, number: int) -> None:
        self.number = number
        self.chunks: list[bytes] = []
        self.format = 0  # Of the message.
        self.size = 0
        self.is_settled = False
        self.state: Any = None
        self.told = 0  # Bytes that are counted as unfinished input.


class SenderLink:
    def __init__(
        self,
        session: Session,
        handle: int,
        name: str,
        address: Address | None,
        on_closed: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`address` None means: each message says where it goes.

        `on_closed` deletes what the link made.
        """
        self.session = session
        self.handle = handle
        self.name = name
        self._connection = session.connection
        self._address = address
        self._on_closed = on_closed
        self._delivery: Delivery | None = None  # Incomplete.
        self._count = 0  # Of deliveries that have begun.
        self._credit = 0
        self._envelope: Envelope | None = None  # Of the last message: others may be alike.

    def start(self) -> None:
        self._renew_credit()

    def _renew_credit(self) -> None:
        self._credit = amqp_limits.CREDIT
        self.session.send_flow(self.handle, self._count, self._credit)

    def flow(self, flow: Flow) -> None:
        """Answer a flow of the client. How much it has to send is not looked at."""
        if flow.echo:
            self.session.send_flow(self.handle, self._count, self._credit)

    # --- transfers

    def transfer(self, transfers: Sequence[tuple[Transfer, bytes]]) -> Awaitable[None] | None:
        """Publish the messages that are complete. Raises PeerError."""
        complete = []
        for transfer, payload in transfers:
            delivery = self._add(transfer, payload)
            if delivery is not None:
                complete.append(delivery)
        work = self.serve(complete) if complete else None
        if self._credit <= amqp_limits.CREDIT // 2:
            self._renew_credit()
        return work

    def _add(self, transfer: Transfer, payload: bytes) -> Delivery | None:
        """Add the part of a message; return the message if that was its last one."""
        delivery = self._delivery
        if delivery is None:
            delivery = self._begin(transfer)
        elif transfer.delivery_id not in (None, delivery.number):
            raise _wrong("a delivery inside another one")
        if transfer.aborted:
            self._forget(delivery)
            return None
        delivery.format = transfer.message_format or delivery.format
        delivery.is_settled = delivery.is_settled or bool(transfer.settled)
        delivery.state = transfer.state or delivery.state
        delivery.chunks.append(payload)
        delivery.size += len(payload)
        bytes_max = self._connection.context.message_bytes_max + amqp_limits.HEAD_BYTES_MAX
        if delivery.size > bytes_max:
            self._forget(delivery)
            text = f"a message of more than {self._connection.context.message_bytes_max} bytes"
            raise Amqp10Error(Condition.MESSAGE_TOO_LARGE, text, Scope.LINK)
        if transfer.more:
            self._hold(delivery, len(payload))
            return None
        self._forget(delivery)
        return delivery

    def _begin(self, transfer: Transfer) -> Delivery:
        if transfer.delivery_id is None or transfer.delivery_tag is None:
            raise _wrong("a transfer without a delivery id and a tag")
        if transfer.resume:
            raise Amqp10Error(Condition.NOT_IMPLEMENTED, "no delivery is resumed", Scope.LINK)
        if self._credit <= 0:
            raise Amqp10Error(Condition.TRANSFER_LIMIT, "more messages than credit", Scope.LINK)
        self._credit -= 1
        self._count += 1
        return Delivery(transfer.delivery_id)

    def _hold(self, delivery: Delivery, size: int) -> None:
        """Count the bytes as unfinished input."""
        if self._delivery is None:
            self._delivery = delivery
            self._connection.partial_number += 1
        delivery.told += size
        self._connection.partial_bytes += size

    def _forget(self, delivery: Delivery) -> None:
        self._delivery = None
        self._connection.partial_bytes -= delivery.told
        delivery.told = 0

    # --- publishing

    def serve(self, deliveries: Sequence[Delivery]) -> Awaitable[None] | None:
        """Publish messages. Those before a faulty one are published. Raises PeerError."""
        run = Run(self)
        for delivery in deliveries:
            try:
                self._serve(delivery, run)
            except PeerError:
                run.publish()
                raise
        run.publish()
        return None

    def _serve(self, delivery: Delivery, run: Run) -> None:
        data = b"".join(delivery.chunks)
        parts = wire.split(data)
        if self._address is not None and self._address.is_service_bus and _SCHEDULED in data:
            error = Error(Condition.NOT_IMPLEMENTED.value, "messages are not scheduled", {})
            self.session.settle(delivery.number, Rejected(error))
            return
        if delivery.format == _BATCH:
            run.publish()
            self._serve_batch(delivery, parts)
            return
        message = self._message(parts)
        if isinstance(delivery.state, TransactionalState):
            transaction = self._connection.transactions.find(delivery.state.txn_id)
            run.publish()
            transaction.hold(message, self.session, delivery)
        else:
            run.add(message, delivery)

    def _serve_batch(self, delivery: Delivery, parts: wire.Parts) -> None:
        """Publish messages that came as the body of one, and are settled together."""
        if isinstance(delivery.state, TransactionalState):
            raise Amqp10Error(Condition.NOT_IMPLEMENTED, "a batch in a transaction", Scope.LINK)
        messages = [self._message(wire.split(each)) for each in wire.data_of(parts)]
        exchange = messages[0][0].exchange
        if any(envelope.exchange != exchange for envelope, _ in messages):
            text = "a batch for several exchanges"
            raise Amqp10Error(Condition.NOT_IMPLEMENTED, text, Scope.LINK)
        publish(self.session, messages, [delivery])

    def _message(self, parts: wire.Parts) -> Message:
        if len(parts.body) > self._connection.context.message_bytes_max:
            text = f"a message of {len(parts.body)} bytes"
            raise Amqp10Error(Condition.MESSAGE_TOO_LARGE, text, Scope.LINK)
        return self._envelope_for(parts), parts.body

    def _envelope_for(self, parts: wire.Parts) -> Envelope:
        """Return the envelope of a message; the last one, if that was alike. Raises PeerError."""
        head = head_of(parts)
        last = self._envelope
        if last is not None and last.head == head:
            return last
        exchange, key = self._destination(parts)
        envelope = Envelope(exchange, key, head, AMQP_1_0)
        self._check_user(envelope)
        self._envelope = envelope
        return envelope

    def _destination(self, parts: wire.Parts) -> tuple[str, str]:
        address = self._address
        if address is not None and (address.kind is not Kind.EXCHANGE or address.key):
            return address.exchange, address.key
        properties = wire.read_middle(parts.middle).properties
        if address is not None:  # An exchange: the subject is the routing key.
            return address.exchange, properties.subject or ""
        if properties.to is None:
            raise Amqp10Error(Condition.PRECONDITION_FAILED, "a message without `to`", Scope.LINK)
        found = parse(properties.to)
        check_target(self._connection, found)
        return found.exchange, found.key or properties.subject or ""

    def _check_user(self, envelope: Envelope) -> None:
        user = self._connection.principal.user
        claimed = envelope.properties.user_id
        if claimed not in (None, user):
            text = f"user-id '{str(claimed)[:100]}' is not '{user}', who is logged in"
            raise Amqp10Error(Condition.UNAUTHORIZED, text, Scope.LINK)

    # --- closing

    def stop(self) -> None:
        if self._delivery is not None:
            self._forget(self._delivery)

    def release(self) -> None:
        """Do nothing: no delivery is held for the client."""

    async def detached(self, *, is_closed: bool) -> None:
        """Delete what was made for the link, if the client does not want it any more."""
        if is_closed and self._on_closed is not None:
            await self._on_closed()


class Run:
    """Messages of one link to one exchange that are not published yet."""

    def __init__(self, link: SenderLink) -> None:
        self._link = link
        self._messages: list[Message] = []
        self._deliveries: list[Delivery] = []

    def add(self, message: Message, delivery: Delivery) -> None:
        """Add a message. Those before it are published if it cannot be in one run with them."""
        is_large = len(message[1]) > limits.LARGE_BYTES  # It is written in slices, by itself.
        messages = self._messages
        if messages and (is_large or messages[-1][0].exchange != message[0].exchange):
            self.publish()
        self._messages.append(message)
        self._deliveries.append(delivery)
        if is_large:
            self.publish()

    def publish(self) -> None:
        if self._messages:
            messages, deliveries = self._messages, self._deliveries
            self._messages, self._deliveries = [], []
            publish(self._link.session, messages, deliveries)


class InFlight(Publication):
    """A run that is published and not committed. Its bytes count as uncommitted until it is.

    It has a delivery for each message, or one for all.
    """

    __slots__ = ("_connection", "_deliveries", "_session", "_size", "nowhere")

    def __init__(self, session: Session, size: int, deliveries: Sequence[Delivery]) -> None:
        super().__init__(None)
        self._session = session
        self._connection: Connection = session.connection
        self._size = size
        self._deliveries = deliveries
        self.nowhere: dict[int, None] = {}  # Places of messages that are routed nowhere.
        self._connection.publish_begun(size)

    def _end(self, failure: Failure | None) -> None:
        self._connection.guard(self._finish, failure)

    def _finish(self, failure: Failure | None) -> None:
        lost: dict[int, None] = {}
        if failure is not None:
            places: Sequence[int] = range(len(self._deliveries))
            if isinstance(failure, Refused) and failure.places is not None:
                places = failure.places
            lost = dict.fromkeys(places)
        if len(self._deliveries) == 1:  # Of one message or of a batch, all of which must be there.
            lost, self.nowhere = ({0: None} if each else {} for each in (lost, self.nowhere))
        for place, delivery in enumerate(self._deliveries):
            if not delivery.is_settled:
                self._session.settle(delivery.number, self._outcome(place, lost, failure))
        self.give_up()

    def _outcome(self, place: int, lost: dict[int, None], failure: Failure | None) -> Any:
        if place in lost:
            condition = Condition.LIMIT_EXCEEDED
            if isinstance(failure, StorageError):
                condition = Condition.INTERNAL_ERROR
            return Rejected(Error(condition.value, str(failure)))
        return RELEASED if place in self.nowhere else ACCEPTED

    def give_up(self) -> None:
        """Stop counting the run: it is committed, has failed, or was not published at all."""
        self._connection.publish_ended(self._size)


def publish(session: Session, messages: list[Message], deliveries: Sequence[Delivery]) -> None:
    """Publish a run of messages to the exchange in their envelopes. Raises PeerError."""
    connection = session.connection
    in_flight = InFlight(session, sum([len(body) for _, body in messages]), deliveries)
    counted = connection.context.messages
    counted.published += len(messages)
    timing: Publication = in_flight
    if counted.answering.is_due:
        timing = timed(in_flight, counted.answering, connection.context.clock)
    try:
        exchange = messages[0][0].exchange
        nowhere = connection.vhost.publish(exchange, messages, timing, connection.topic_check())
    except PeerError:
        in_flight.give_up()
        raise
    if nowhere and exchange != TOPIC_EXCHANGE:
        gone = {id(envelope) for envelope, _ in nowhere}
        in_flight.nowhere = {
            place: None for place, (each, _) in enumerate(messages) if id(each) in gone
        }
    if timing is not in_flight:
        timing.arrived()
    in_flight.arrived()


def check_target(connection: Connection, address: Address) -> None:
    """Raise PeerError if the client may not send there, or there is no such place."""
    vhost = connection.vhost
    connection.check(Operation.WRITE, ResourceKind.EXCHANGE, address.exchange)
    if address.kind is Kind.EXCHANGE:
        if vhost.router.exchange(address.exchange) is None:
            raise UnknownExchange(f"no exchange '{address.exchange}' in vhost '{vhost.name}'")
        return
    is_there = address.key in vhost.queues or vhost.router.is_elsewhere(address.key)
    if not is_there and vhost.stream(address.key) is not None:
        connection.check(Operation.WRITE, ResourceKind.QUEUE, address.key)
        is_there = True
    if not is_there and address.kind is Kind.EXISTING_QUEUE:
        text = f"no queue '{address.key}' in vhost '{vhost.name}'"
        raise Amqp10Error(Condition.NOT_FOUND, text, Scope.LINK)


def _wrong(text: str) -> Amqp10Error:
    return Amqp10Error(Condition.INVALID_FIELD, text, Scope.SESSION)
