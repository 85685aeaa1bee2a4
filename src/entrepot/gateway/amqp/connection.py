"""An open connection: its channels, and how their methods are served.

A client's methods are served in order. Most are served at once; one that has to wait, such as a
declaration that must be on disk, delays everything after it on this connection. Publishing never
waits, only its confirm does; but what is published and not committed is limited, and a client
that reaches the limit is not read from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.queue import Queue
from entrepot.broker.sessions import ConnectionFacts
from entrepot.broker.virtual_host.publisher import Check
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core import limits
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.ports import Buffer
from entrepot.core.steps import Steps
from entrepot.gateway.amqp import verbs
from entrepot.gateway.amqp.channel import Channel
from entrepot.gateway.amqp.confirms import Confirms
from entrepot.gateway.amqp.context import Context
from entrepot.gateway.amqp.errors import explain
from entrepot.gateway.amqp.handshake import Terms
from entrepot.gateway.amqp.outbox import AmqpOutbox
from entrepot.gateway.amqp.publishing import publish
from entrepot.gateway.rabbitmq.rights import refusal
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.deliver import Tails
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import ProtocolHeader
from entrepot.wire.amqp.method import Id, Method, read_id
from entrepot.wire.amqp.methods import basic, decode
from entrepot.wire.amqp.methods import channel as channels
from entrepot.wire.amqp.methods import connection as connections
from entrepot.wire.amqp.scan import Acks, Content, Event, Heartbeat, MethodFrame, Publishes

if TYPE_CHECKING:
    from entrepot.gateway.amqp.adapter import AmqpAdapter

_DELIVERY_BYTES = 1 * limits.KIB  # The size of a message, as assumed before the first delivery.


class Connection:
    def __init__(
        self, adapter: AmqpAdapter, context: Context, terms: Terms, vhost: VirtualHost
    ) -> None:
        self._adapter = adapter
        self.guard = adapter.guard
        self.context = context
        self.terms = terms
        self.vhost = vhost
        self.outbox: AmqpOutbox = adapter.outbox
        self.is_unlimited = terms.principal.is_unlimited  # The client may do everything.
        # The check for topics that a publish addresses by name. None means: no check.
        self.topic_check: Check | None = None
        if not self.is_unlimited:
            self.topic_check = partial(self.check, Operation.WRITE, ResourceKind.QUEUE)
        self.frame_bytes_max = terms.frame_bytes_max
        self.tails = Tails()  # Shared by all its consumers.
        self.channels: dict[int, Channel] = {}
        self._closing: dict[int, None] = {}  # Channels we closed, until close-ok.
        self._link = adapter.link
        self._wake = adapter.wake
        self.queues_with_room: dict[Queue, None] = {}  # To be dispatched at the end of the turn.
        self._delivery_bytes = _DELIVERY_BYTES  # Average size of a message in the last delivery.
        self.is_backlogged = False  # Deliveries wait until the client reads.
        self.has_published = False
        self._bytes_uncommitted = 0  # Published and not committed.
        self._runs_uncommitted = 0
        self.is_publishing_much = False  # One of these two is above its limit.
        self._all_committed: asyncio.Future[None] | None = None  # Done when no run is uncommitted.
        self.confirming: dict[Confirms, None] = {}  # Those with something to send in this turn.

    # --- serving events

    def serve(self, event: ProtocolHeader | Event) -> Awaitable[None] | None:
        """Serve an event. Raises AmqpError with the channel to close."""
        if isinstance(event, Publishes):
            channel = self.channels.get(event.channel) or self._find(event, basic.Publish.ID)
            if channel is not None:
                try:
                    publish(channel, event.target, event.messages)
                except (PeerError, StorageError) as error:
                    raise explain(error, event.channel, basic.Publish.ID) from None
        elif isinstance(event, Acks):
            channel = self.channels.get(event.channel) or self._find(event, basic.Ack.ID)
            if channel is not None:
                try:
                    channel.acknowledge(event.tags, is_multiple=event.is_multiple)
                except PeerError as error:
                    raise explain(error, event.channel, basic.Ack.ID) from None
        elif isinstance(event, MethodFrame):
            return self._serve_method(event, decode(event.payload))
        elif isinstance(event, AmqpError):
            if event.channel not in self._closing:
                raise event
        elif isinstance(event, Content):
            raise AmqpError(
                ReplyCode.COMMAND_INVALID, "unimplemented method", method_id=read_id(event.payload)
            )
        else:
            assert isinstance(event, Heartbeat), event
        return None

    def _find(self, event: Publishes | Acks | MethodFrame, method_id: Id) -> Channel | None:
        """Return the event's channel; None means: we are closing it, ignore the event.

        Raises AmqpError for a channel that is not open.
        """
        number = event.channel
        channel = self.channels.get(number)
        if channel is None and number not in self._closing:
            raise _at(number, ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", method_id)
        return channel

    def _serve_method(self, event: MethodFrame, method: Method) -> Awaitable[None] | None:
        number = event.channel
        if number == 0:
            self._serve_connection(method)
            return None
        if self._serve_channel(number, self.channels.get(number), method):
            return None
        channel = self._find(event, method.ID)
        if channel is None:
            return None
        try:
            verb = verbs.find(method)
            if self._runs_uncommitted and isinstance(method, verbs.AFTER_PUBLISHES):
                work: Awaitable[None] | None = self._serve_after_publishes(verb, channel, method)
            else:
                work = verb(channel, method)
        except (PeerError, StorageError) as error:
            raise explain(error, number, method.ID) from None
        return None if work is None else self._finish(work, number, method.ID)

    async def _serve_after_publishes(
        self, verb: verbs.Verb, channel: Channel, method: Method
    ) -> None:
        """Serve the method when everything that the client published before it is committed."""
        if self._runs_uncommitted:
            self._all_committed = asyncio.get_running_loop().create_future()
            await self._all_committed
        work = verb(channel, method)
        if work is not None:
            await work

    async def _finish(self, work: Awaitable[None], number: int, method_id: Id) -> None:
        try:
            await work
        except (PeerError, StorageError) as error:
            raise explain(error, number, method_id) from None

    def _serve_connection(self, method: Method) -> None:
        match method:
            case connections.Close():
                self._adapter.leave()
            case connections.UpdateSecret():
                # Secrets are checked at the login only, so there is none that could expire.
                self.outbox.method(0, connections.UpdateSecretOk())
            case connections.CloseOk():
                pass
            case _:
                raise AmqpError(
                    ReplyCode.CHANNEL_ERROR,
                    "unexpected method in connection state running",
                    method_id=method.ID,
                )

    def _serve_channel(self, number: int, channel: Channel | None, method: Method) -> bool:
        """Serve a method that opens or closes a channel; return whether it was served."""
        match method:
            case channels.CloseOk():
                self._closing.pop(number, None)
                return True
            case channels.Close():
                if channel is not None:
                    self._drop(channel)
                if channel is not None or number in self._closing:
                    self.outbox.method(number, channels.CloseOk())
                    return True
            case channels.Open():
                if number not in self._closing:
                    self._open(number, channel, method)
                return True
        return False

    def _open(self, number: int, channel: Channel | None, method: Method) -> None:
        if channel is not None:
            raise _at(number, ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", method.ID)
        count, count_max = len(self.channels), self.terms.channels_max
        if count >= count_max:
            raise _at(
                number,
                ReplyCode.NOT_ALLOWED,
                f"number of channels opened ({count}) has reached "
                f"the negotiated channel_max ({count_max})",
            )
        self.channels[number] = Channel(self, number)
        self.outbox.method(number, channels.OpenOk())

    def close_channel(self, error: AmqpError) -> None:
        """Close the channel of the error. Its input is ignored until the client's close-ok."""
        channel = self.channels.get(error.channel)
        if channel is not None:
            self._drop(channel)
        self._closing[error.channel] = None
        close = channels.Close(error.code, error.text, *error.method_id)
        self.outbox.method(error.channel, close)

    def _drop(self, channel: Channel) -> None:
        del self.channels[channel.number]
        channel.release()

    # --- capabilities and permissions

    def can(self, capability: str) -> bool:
        """Return whether the client has announced this capability."""
        capabilities = self.terms.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    def check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """Raise AmqpError unless the client may do this."""
        principal, vhost = self.terms.principal, self.vhost.name
        if not principal.may(operation, kind, name, vhost):
            text = refusal(operation, kind, name, vhost, principal.user)
            raise AmqpError(ReplyCode.ACCESS_REFUSED, text)

    # --- publishing

    def publish_begun(self, size: int) -> None:
        """Count a run of messages as uncommitted."""
        self.has_published = True
        self._bytes_uncommitted += size
        self._runs_uncommitted += 1
        if (
            self._bytes_uncommitted > amqp_limits.UNCOMMITTED_BYTES_MAX
            or self._runs_uncommitted > amqp_limits.UNCONFIRMED_RUNS_MAX
        ):
            self.is_publishing_much = True

    def publish_ended(self, size: int | None) -> None:
        """Stop counting a run that is committed or has failed. None means: it was not counted."""
        if size is not None:
            self._bytes_uncommitted -= size
            self._runs_uncommitted -= 1
            if self.is_publishing_much:
                self.is_publishing_much = (
                    self._bytes_uncommitted > amqp_limits.UNCOMMITTED_BYTES_MAX
                    or self._runs_uncommitted > amqp_limits.UNCONFIRMED_RUNS_MAX
                )
            if not self._runs_uncommitted and self._all_committed is not None:
                self._all_committed.set_result(None)
                self._all_committed = None
        self._wake()

    # --- consuming

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

    def dispatch(self) -> None:
        """Dispatch the queues whose consumers have room again."""
        while self.queues_with_room:
            queue, _ = self.queues_with_room.popitem()
            if queue.has_ready:  # After most acknowledgements there is nothing to dispatch.
                queue.dispatch()

    def wake_consumers(self) -> None:
        """Continue deliveries that waited for the client to read, if it has read enough."""
        if self.is_backlogged and self.outbox.backlog <= limits.BACKLOG_BYTES_HIGH:
            self.is_backlogged = False
            for channel in list(self.channels.values()):
                channel.wake_consumers()

    def end_turn(self) -> None:
        """Dispatch queues and send confirms, at the end of a turn."""
        if self.queues_with_room:
            self.dispatch()
        while self.confirming:
            confirms, _ = self.confirming.popitem()
            if not confirms.is_over:
                self.outbox.send(confirms.take_frames())

    # --- closing

    def release(self) -> None:
        """Stop all channels, requeue unacknowledged messages, and delete exclusive queues."""
        channels, self.channels = [*self.channels.values()], {}
        for channel in channels:
            self.guard(channel.stop)
        self.context.broker.turns.start(self._requeue_unacked(channels))
        self.guard(self.vhost.connection_gone, self)

    def _requeue_unacked(self, channels: list[Channel]) -> Steps[None]:
        for channel in channels:
            self.guard(channel.give_back)
            yield

    def facts(self, state: str, connected_ms: int) -> ConnectionFacts:
        context, terms = self.context, self.terms
        return ConnectionFacts(
            name=f"{terms.peer} -> {context.host}:{context.port}",
            peer=terms.peer,
            user=terms.user,
            vhost=self.vhost.name,
            protocol="AMQP 0-9-1",
            connected_ms=connected_ms,
            channels=tuple(channel.facts() for channel in self.channels.values()),
            state=state,
            is_tls=context.is_tls,
            mechanism=terms.mechanism,
            frame_max=terms.frame_bytes_max,
            channel_max=terms.channels_max,
            heartbeat_s=terms.heartbeat_s,
            client_properties=terms.client_properties,
            owner=self,
        )


def _at(number: int, code: ReplyCode, explanation: str, method_id: Id = (0, 0)) -> AmqpError:
    return AmqpError(code, explanation, channel=number, method_id=method_id)
