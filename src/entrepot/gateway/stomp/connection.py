"""An open connection: its subscriptions and transactions, and how its frames are served.

A client's frames are served in order. Most are served at once; one that has to wait, such as a
queue's declaration that must be on disk, delays everything after it on this connection. Sending
never waits, only its receipt does; but what is sent and not committed is limited, and a client
that reaches the limit is not read from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, Principal, ResourceKind
from entrepot.broker.queue.lane import Waiter
from entrepot.broker.queue.message import Failure
from entrepot.broker.queue.queue import Queue
from entrepot.broker.sessions import ChannelFacts, ConnectionFacts
from entrepot.broker.virtual_host.publisher import Check
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core import limits
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.ports import Buffer
from entrepot.core.steps import Steps
from entrepot.gateway.completion import check_stored, completion
from entrepot.gateway.stomp import declaring, subscribing, transaction
from entrepot.gateway.stomp.context import Context
from entrepot.gateway.stomp.errors import FrameRefused, about
from entrepot.gateway.stomp.sending import Plan, send
from entrepot.gateway.stomp.subscription import AckMode, Subscription
from entrepot.gateway.stomp.transaction import Transaction
from entrepot.wire.stomp import frames as wire
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import Event, Frame, Sends, check_headers, receipt_bytes

if TYPE_CHECKING:
    from entrepot.gateway.stomp.adapter import StompAdapter

_SESSION_CHARACTERS = 16  # Each message-id begins with them.
_DELIVERY_BYTES = 1 * limits.KIB  # Of a message, assumed before the first delivery.

# Serves a frame. Returns what must be awaited before the next event is served, if anything.
# Raises a PeerError or a StorageError, at once or while it is awaited.
Verb = Callable[["Connection", Frame], Awaitable[None] | None]


class Connection:
    def __init__(
        self,
        adapter: StompAdapter,
        context: Context,
        principal: Principal,
        vhost: VirtualHost,
        version: str,
    ) -> None:
        self._adapter = adapter
        self.guard = adapter.guard
        self.context = context
        self.principal = principal
        self.vhost = vhost
        self.version = version
        self.session = context.token()[:_SESSION_CHARACTERS]
        self.is_open = True
        self.outbox = adapter.outbox
        self.subscriptions: dict[str, Subscription] = {}  # By the ids that clients gave them.
        # By number, also those that have ended, until all their messages are acknowledged.
        self.numbered: dict[int, Subscription] = {}
        self._number = 0  # Of the last subscription.
        self.reply_queues: dict[str, str] = {}  # Their names, by `/temp-queue/…`.
        self.transactions: dict[str, Transaction] = {}
        self.plans: dict[tuple[tuple[str, str], ...], Plan] = {}  # By the headers of frames.
        self.unacked_count = 0  # Of all subscriptions.
        self._link = adapter.link
        self._wake = adapter.wake
        self._queues_with_room: dict[Queue, None] = {}  # To be dispatched at the end of the turn.
        self._delivery_bytes = _DELIVERY_BYTES  # Average size of a message in the last delivery.
        self.is_backlogged = False  # Deliveries wait until the client reads.
        self.has_published = False
        self._bytes_uncommitted = 0  # Sent and not committed.
        self._runs_uncommitted = 0
        self.is_publishing_much = False  # One of these two is above its limit.
        self._settling = 0  # Subscriptions that have ended and whose settlements are uncommitted.
        self._all_committed: asyncio.Future[None] | None = None  # Done when none of these is left.
        self._is_committing = False  # A transaction is being committed.
        self._lost: Failure | None = None  # Why some message was not stored.

    # --- serving events

    def serve(self, event: Event) -> Awaitable[None] | None:
        """Serve an event. Raises PeerError."""
        if isinstance(event, Sends):
            return send(self, event.frames)
        if isinstance(event, PeerError):
            raise event
        receipt = event.headers.get("receipt")
        verb = _VERBS.get(event.command)
        try:
            if verb is None:
                raise PeerError(f"{event.command} on a connection that is open already")
            check_headers(event, self.version)
            work = verb(self, event)
        except (PeerError, StorageError) as error:
            raise about(error, receipt) from None
        return None if work is None else self._finish(work, receipt)

    async def _finish(self, work: Awaitable[None], receipt: str | None) -> None:
        try:
            await work
        except (PeerError, StorageError) as error:
            raise about(error, receipt) from None

    def receipt(self, frame: Frame) -> None:
        """Tell the client that the frame is served, if it asked for that."""
        receipt = frame.headers.get("receipt")
        if receipt is not None:
            self.send_receipts((receipt,))

    def receipt_later(self, receipt: str) -> Waiter:
        """Return what is called when the frame's effect is committed, or has failed."""

        def told(failure: StorageError | None) -> None:
            if failure is None:
                self.guard(self.send_receipts, (receipt,))
            else:
                self.guard(self.fail, about(failure, receipt))

        return told

    def send_receipts(self, receipts: Sequence[str]) -> None:
        if self.is_open and receipts:
            self.outbox.send((b"".join([receipt_bytes(each, self.version) for each in receipts]),))

    def fail(self, error: FrameRefused) -> None:
        """Send an ERROR and close the connection."""
        self._adapter.failed(error)

    async def disconnect(self, frame: Frame) -> None:
        """Close the connection. A RECEIPT says that everything before it is committed."""
        if "receipt" in frame.headers:
            if self._runs_uncommitted or self._settling:
                self._all_committed = asyncio.get_running_loop().create_future()
                await self._all_committed
            if self._lost is not None:
                raise PeerError(f"not everything is stored: {self._lost}")
            publication, done = completion()
            for queue in {each.queue: None for each in self.numbered.values()}:
                publication.expect()
                queue.when_settlements_committed(publication.arrived)
            publication.arrived()
            check_stored(await done)
            self.receipt(frame)
        self._adapter.leave()

    async def commit(self, transaction: Transaction) -> None:
        """Commit a transaction, also if the client disconnects meanwhile. Raises PeerError."""
        self._is_committing = True
        try:
            await transaction.commit(self)
        finally:
            self._is_committing = False

    # --- permissions

    def check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """Raise PeerError unless the client may do this."""
        if not self.principal.may(operation, kind, name, self.vhost.name):
            raise PeerError(
                f"{operation.value} access to {kind.value} '{name}' in vhost '{self.vhost.name}' "
                f"refused for user '{self.principal.user}'"
            )

    def topic_check(self) -> Check | None:
        """Return the check for topics that a message addresses by name. None means: no check."""
        if self.principal.is_unlimited:
            return None
        return partial(self.check, Operation.WRITE, ResourceKind.QUEUE)

    # --- sending

    def publish_begun(self, size: int) -> None:
        """Count a run of messages as uncommitted."""
        self.has_published = True
        self._bytes_uncommitted += size
        self._runs_uncommitted += 1
        self._look_at_uncommitted()

    def publish_ended(self, size: int) -> None:
        """Stop counting a run that is committed or has failed."""
        self._bytes_uncommitted -= size
        self._runs_uncommitted -= 1
        self._look_at_uncommitted()
        self._tell_if_all_committed()
        self._wake()

    def _tell_if_all_committed(self) -> None:
        waiting = self._all_committed
        if waiting is not None and not self._runs_uncommitted and not self._settling:
            waiting.set_result(None)
            self._all_committed = None

    def note_lost(self, failure: Failure | None) -> None:
        """Remember that messages were not stored. Only a receipt of DISCONNECT depends on it."""
        self._lost = failure or self._lost

    def _look_at_uncommitted(self) -> None:
        self.is_publishing_much = (
            self._bytes_uncommitted > stomp_limits.UNCOMMITTED_BYTES_MAX
            or self._runs_uncommitted > stomp_limits.UNCOMMITTED_RUNS_MAX
        )

    # --- subscriptions

    def check_subscriptions(self) -> None:
        """Raise PeerError if there are as many subscriptions as allowed."""
        if len(self.subscriptions) >= stomp_limits.SUBSCRIPTIONS_MAX:
            raise PeerError(f"more than {stomp_limits.SUBSCRIPTIONS_MAX} subscriptions")

    def new_number(self) -> int:
        self._number += 1
        return self._number

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, to its queue as well. Raises QueueInUse, QueueDown."""
        subscription.queue.add_consumer(subscription, subscription.selection)
        self.subscriptions[subscription.tag] = subscription
        self.numbered[subscription.number] = subscription

    def remove(self, subscription: Subscription) -> None:
        """End a subscription. What is delivered can still be acknowledged."""
        del self.subscriptions[subscription.tag]
        subscription.stop()
        self._forget_if_done(subscription)

    def _forget_if_done(self, subscription: Subscription) -> None:
        is_over = self.subscriptions.get(subscription.tag) is not subscription
        if is_over and not subscription.leased_count and subscription.number in self.numbered:
            del self.numbered[subscription.number]
            self._settling += 1
            subscription.when_settled(partial(self.guard, self._settled))

    def _settled(self, failure: StorageError | None) -> None:
        self._settling -= 1
        if failure is not None:
            self.note_lost(failure)
        self._tell_if_all_committed()

    def subscription_cancelled(self, subscription: Subscription) -> None:
        """Close the connection: the queue of a subscription is gone."""
        if self.subscriptions.get(subscription.tag) is subscription:
            text = f"subscription '{subscription.tag[:100]}' has ended: its queue is gone"
            self.fail(FrameRefused(text, None))

    async def declare_reply_queue(self, name: str) -> None:
        """Make the queue for replies to `/temp-queue/…`, and subscribe to it. Raises PeerError."""
        if not name.removeprefix("/temp-queue/"):
            raise PeerError("/temp-queue/ needs a name")
        self.check_subscriptions()
        queue = await declaring.declare_reply_queue(self)
        self.check(Operation.READ, ResourceKind.QUEUE, queue.name)
        if self.is_open:
            subscription = Subscription(self, queue, self.new_number(), name, AckMode.AUTO)
            self.add(subscription)
            self.reply_queues[name] = queue.name
            subscription.start()

    # --- delivering

    def room(self) -> int:
        """Return how many messages may be delivered before the client has read some."""
        left = limits.BACKLOG_BYTES_HIGH - self.outbox.bytes_waiting - self._link.backlog
        if left < 0:
            self.is_backlogged = True
            return 0
        return left // self._delivery_bytes + 1

    def delivered(self, chunks: list[Buffer], count: int) -> None:
        """Send encoded messages, and remember their average size."""
        self.context.messages.delivered += count
        before = self.outbox.bytes_waiting
        self.outbox.send(chunks)
        self._delivery_bytes = (self.outbox.bytes_waiting - before) // count

    def has_room(self, subscription: Subscription) -> None:
        """Have the queue dispatched at the end of the turn, because a subscription has room."""
        self._queues_with_room[subscription.queue] = None
        self._forget_if_done(subscription)

    def dispatch(self) -> None:
        """Dispatch the queues whose subscriptions have room again."""
        while self._queues_with_room:
            queue, _ = self._queues_with_room.popitem()
            if queue.ready_count:
                queue.dispatch()

    def wake_subscriptions(self) -> None:
        """Continue deliveries that waited for the client to read, if it has read enough."""
        if self.is_backlogged and self.outbox.backlog <= limits.BACKLOG_BYTES_HIGH:
            self.is_backlogged = False
            for subscription in list(self.subscriptions.values()):
                subscription.wake()

    # --- closing

    def release(self) -> None:
        """Stop all deliveries, requeue unacknowledged messages, delete exclusive queues.

        What takes long if there are many subscriptions is done in turns. A commit that has begun
        is done first, or what it acknowledges would come again; then this is called again.
        """
        self.is_open = False
        for subscription in self.numbered.values():
            subscription.pause()
        if self._is_committing:
            return
        subscriptions, self.numbered = [*self.numbered.values()], {}
        self.subscriptions = {}
        self.transactions.clear()
        if subscriptions:
            self.context.broker.turns.start(self._end(subscriptions))
        self.guard(self.vhost.connection_gone, self)

    def _end(self, subscriptions: list[Subscription]) -> Steps[None]:
        for subscription in subscriptions:
            self.guard(subscription.stop)
            self.guard(subscription.release)
            yield

    def facts(self, state: str, connected_ms: int, heart_beat_ms: int) -> ConnectionFacts:
        context, peer = self.context, self._link.peer
        transactions = self.transactions.values()
        channel = ChannelFacts(
            1,
            tuple(each.facts() for each in self.subscriptions.values()),
            self.unacked_count,
            self._runs_uncommitted,
            sum(each.message_count for each in transactions),
            sum(each.disposition_count for each in transactions),
            is_transactional=bool(transactions),
        )
        return ConnectionFacts(
            name=f"{peer} -> {context.host}:{context.port}",
            peer=peer,
            user=self.principal.user,
            vhost=self.vhost.name,
            protocol=f"STOMP {self.version}",
            connected_ms=connected_ms,
            channels=(channel,),
            state=state,
            is_tls=context.is_tls,
            channel_max=1,
            heartbeat_s=heart_beat_ms // 1_000,
            client_properties={"product": "STOMP client"},
            owner=self,
        )


def _disconnect(connection: Connection, frame: Frame) -> Awaitable[None]:
    return connection.disconnect(frame)


_VERBS: Mapping[str, Verb] = {
    wire.SUBSCRIBE: subscribing.subscribe,
    wire.UNSUBSCRIBE: subscribing.unsubscribe,
    wire.ACK: subscribing.acknowledge,
    wire.NACK: subscribing.acknowledge,
    wire.BEGIN: transaction.begin,
    wire.COMMIT: transaction.commit,
    wire.ABORT: transaction.abort,
    wire.DISCONNECT: _disconnect,
}
