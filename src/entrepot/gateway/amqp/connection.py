"""A connection that is open: its channels, and what is said on them.

What a client says is served in its order. Most of it is served at once; what has to wait,
as a declaration that must be permanent, holds up everything after it on this connection.
Publishing never waits, only its confirmation does; but there is a bound to what is on its way
to the disk, and who reaches it is not read from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.permissions import DEFAULT_EXCHANGE_NAME, Right
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.event import Kind
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
from entrepot.gateway.amqp.outbox import Outbox
from entrepot.gateway.amqp.publishing import publish
from entrepot.wire.amqp.deliver import Tails
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.method import Id, Method, read_id
from entrepot.wire.amqp.methods import basic, decode
from entrepot.wire.amqp.methods import channel as channels
from entrepot.wire.amqp.methods import connection as connections
from entrepot.wire.amqp.scan import Acks, Content, Event, Heartbeat, MethodFrame, Publishes

if TYPE_CHECKING:
    from entrepot.gateway.amqp.adapter import AmqpAdapter

_DELIVERY_BYTES = 1 * limits.KIB  # Of one message, before any was delivered.


class Connection:
    def __init__(
        self, adapter: AmqpAdapter, context: Context, terms: Terms, vhost: VirtualHost
    ) -> None:
        self._adapter = adapter
        self.guard = adapter.guard
        self.context = context
        self.terms = terms
        self.vhost = vhost
        self.outbox: Outbox = adapter.outbox
        self.frame_bytes_max = terms.frame_bytes_max
        self.tails = Tails()  # Of all its consumers.
        self.channels: dict[int, Channel] = {}
        self._closing: dict[int, None] = {}  # Channels that we closed and the client has not.
        self._roomy: dict[Queue, None] = {}  # Their consumers have room again.
        self._delivery_bytes = _DELIVERY_BYTES  # About so much, each.
        self._is_starved = False  # A consumer got less than it would take.
        self.has_published = False
        self.bytes_landing = 0  # Published, and not permanent.
        self.runs_landing = 0
        self._calm: asyncio.Future[None] | None = None  # Done when nothing is landing.
        self.telling: dict[Confirms, None] = {}  # Have something to confirm.

    # --- what is said

    def serve(self, event: Event) -> Awaitable[None] | None:
        """Raises AmqpError, with the channel that it closes."""
        if isinstance(event, Publishes):
            channel = self._find(event.channel, basic.Publish.ID)
            if channel is not None:
                try:
                    publish(channel, event.target, event.messages)
                except (PeerError, StorageError) as error:
                    raise explain(error, event.channel, basic.Publish.ID) from None
        elif isinstance(event, Acks):
            channel = self._find(event.channel, basic.Ack.ID)
            if channel is not None:
                try:
                    channel.acknowledge(event.tags, is_multiple=event.is_multiple)
                except PeerError as error:
                    raise explain(error, event.channel, basic.Ack.ID) from None
        elif isinstance(event, MethodFrame):
            return self._serve_method(event.channel, decode(event.payload))
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

    def _find(self, number: int, method_id: Id) -> Channel | None:
        """None: it is being closed, and what is said there is not heard. Raises AmqpError."""
        channel = self.channels.get(number)
        if channel is None and number not in self._closing:
            raise _at(number, ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", method_id)
        return channel

    def _serve_method(self, number: int, method: Method) -> Awaitable[None] | None:
        if number == 0:
            self._serve_connection(method)
            return None
        if self._serve_channel(number, self.channels.get(number), method):
            return None
        channel = self._find(number, method.ID)
        if channel is None:
            return None
        try:
            verb = verbs.find(method)
            if self.runs_landing and isinstance(method, verbs.AFTER_PUBLISHES):
                work: Awaitable[None] | None = self._serve_calmly(verb, channel, method)
            else:
                work = verb(channel, method)
        except (PeerError, StorageError) as error:
            raise explain(error, number, method.ID) from None
        return None if work is None else self._finish(work, number, method.ID)

    async def _serve_calmly(self, verb: verbs.Verb, channel: Channel, method: Method) -> None:
        """Once that is there which the client has published before."""
        if self.runs_landing:
            self._calm = asyncio.get_running_loop().create_future()
            await self._calm
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
                # Users are asked for theirs at the login; there is nothing that could expire.
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
        """Whether it was about the channel itself."""
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
        """It went too far. Nothing more is heard from the channel until the client agrees."""
        channel = self.channels.get(error.channel)
        if channel is not None:
            self._drop(channel)
        self._closing[error.channel] = None
        close = channels.Close(error.code, error.text, *error.method_id)
        self.outbox.method(error.channel, close)

    def _drop(self, channel: Channel) -> None:
        del self.channels[channel.number]
        channel.release()

    # --- who may do what

    def can(self, capability: str) -> bool:
        """Whether the client has said that it knows this."""
        capabilities = self.terms.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    def check(self, right: Right, kind: Kind, name: str) -> None:
        """Raises AmqpError."""
        user, vhost = self.terms.user, self.vhost.name
        if not self.context.broker.permissions.allows(user, vhost, right, name):
            shown = name or DEFAULT_EXCHANGE_NAME
            raise AmqpError(
                ReplyCode.ACCESS_REFUSED,
                f"{right.value} access to {kind.value} '{shown}' in vhost '{vhost}' "
                f"refused for user '{user}'",
            )

    def topic_check(self) -> Check | None:
        """What is asked about topics that a publish reaches by name; None: nothing."""
        if self.context.broker.permissions.is_unlimited(self.terms.user):
            return None
        return partial(self.check, Right.WRITE, Kind.QUEUE)

    def check_any(self, kind: Kind, name: str) -> None:
        """To look whether something is there, any right to it is enough."""
        user, vhost = self.terms.user, self.vhost.name
        allows = self.context.broker.permissions.allows
        if not any(allows(user, vhost, right, name) for right in Right):
            self.check(Right.CONFIGURE, kind, name)

    # --- publishing

    def departed(self, size: int) -> None:
        self.has_published = True
        self.bytes_landing += size
        self.runs_landing += 1

    def landed(self, size: int | None) -> None:
        """It is permanent, or it is known that it will not be."""
        if size is not None:
            self.bytes_landing -= size
            self.runs_landing -= 1
            if not self.runs_landing and self._calm is not None:
                self._calm.set_result(None)
                self._calm = None
        self._adapter.landed()

    @property
    def is_landing_much(self) -> bool:
        return (
            self.bytes_landing > limits.AMQP_UNCOMMITTED_BYTES_MAX
            or self.runs_landing > limits.AMQP_UNCONFIRMED_RUNS_MAX
        )

    def tell_confirms(self) -> None:
        while self.telling:
            confirms, _ = self.telling.popitem()
            if not confirms.is_over:
                self.outbox.send(confirms.tell())

    # --- consuming

    def room(self) -> int:
        """How many messages may be delivered before the client has read some."""
        left = limits.BACKLOG_BYTES_HIGH - self.outbox.backlog
        if left < 0:
            self._is_starved = True
            return 0
        return left // self._delivery_bytes + 1

    def delivered(self, chunks: list[Buffer], count: int) -> None:
        before = self.outbox.bytes_waiting
        self.outbox.send(chunks)
        self._delivery_bytes = (self.outbox.bytes_waiting - before) // count

    def has_room(self, queue: Queue) -> None:
        self._roomy[queue] = None

    def feed(self) -> None:
        """At the end of a turn: let the queues know of consumers with room."""
        while self._roomy:
            queue, _ = self._roomy.popitem()
            queue.dispatch()

    def feed_starved(self) -> None:
        """After a write: the client has read something."""
        if self._is_starved and self.outbox.backlog <= limits.BACKLOG_BYTES_HIGH:
            self._is_starved = False
            for channel in list(self.channels.values()):
                channel.wake_consumers()

    # --- the end

    def release(self) -> None:
        """Everything it has goes back, or goes with it."""
        channels, self.channels = [*self.channels.values()], {}
        for channel in channels:
            self.guard(channel.stop)
        self.context.broker.turns.start(self._give_back(channels))
        self.guard(self.vhost.connection_gone, self)

    def _give_back(self, channels: list[Channel]) -> Steps[None]:
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
