"""One AMQP client's connection: bytes in, bytes out, in order, and not more than fits.

What a client says is served in its order by the handshake and then by the connection. What
comes of a block of input is written at its end, at once. A client that publishes faster than
the disk takes it, or does not read what it is sent, is not read from until that is better;
and while messages take too much memory, those who publish are not, and are told so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any

from entrepot.broker.sessions import ConnectionFacts
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core import limits
from entrepot.core.ports import NOTHING_UNFINISHED, Link, Unfinished
from entrepot.gateway.amqp.connection import Connection
from entrepot.gateway.amqp.context import Context
from entrepot.gateway.amqp.handshake import Handshake, Terms
from entrepot.gateway.amqp.heartbeat import Heartbeat
from entrepot.gateway.amqp.outbox import Outbox
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import FrameBuffer, ProtocolHeader
from entrepot.wire.amqp.methods.connection import Blocked, Close, CloseOk, Unblocked
from entrepot.wire.amqp.scan import Event

log = logging.getLogger("entrepot.amqp")

_TURN_EVENTS_MAX = 500  # Or as many as there is time for; then the others have their turn.
# Consumers are not delivered to above half of it; a client that asks for answers and does not
# read them gets here, and is not heard until it has.
_BACKLOG_BYTES_MAX = 2 * limits.BACKLOG_BYTES_HIGH


class AmqpAdapter:
    """Receiver of one link."""

    def __init__(self, link: Link, context: Context) -> None:
        self._link = link
        self.guard = link.guard
        self._context = context
        memory = context.broker.vhosts.memory_use
        assert memory is not None, "a broker without queues"
        self._memory = memory
        self._connected_ms = context.clock.now_ms()
        self._inbox = FrameBuffer(message_bytes_max=context.message_bytes_max)
        self.outbox = Outbox(link, self._before_write, self._after_write)
        self._handshake = Handshake(self, link, context)
        self._connection: Connection | None = None  # Until the handshake is over.
        self._events: deque[ProtocolHeader | Event] = deque()
        self._events_bytes = 0  # What they were as bytes, with those before them in the queue.
        self._serving: asyncio.Future[Any] | None = None  # What the next event waits for.
        self._heartbeat: Heartbeat | None = None
        self._is_open = True
        self._is_woken = False  # `_work` is about to be called.
        self._is_blocked = False  # The client is told to wait, for there is too little memory.
        self.is_paused = False
        self.reads = 0  # So far.
        self._deadline = asyncio.get_running_loop().call_later(
            limits.LOGIN_MS_MAX / 1_000, self.guard, self.give_up, "no login in time"
        )

    # --- Receiver

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        self.reads += 1
        before = self._inbox.unfinished_bytes + (self._events_bytes if self._events else 0)
        self._events.extend(self._inbox.received(size))
        self._events_bytes = before + size - self._inbox.unfinished_bytes
        self._work()

    def drained(self) -> None:
        self._after_write()

    def closed(self, reason: str) -> None:
        self._is_open = False
        self._inbox = FrameBuffer()  # Not to hold what came until this is collected as garbage.
        self._events.clear()
        self._deadline.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._release()
        log.debug("%s: %s", self._link.peer, reason)

    def unfinished(self) -> Unfinished:
        size = self._inbox.unfinished_bytes + (self._events_bytes if self._events else 0)
        if not size:
            return NOTHING_UNFINISHED
        return Unfinished(size, self._inbox.unfinished_number, not self.is_paused)

    def refuse(self, reason: str) -> None:
        self.end(AmqpError(ReplyCode.RESOURCE_ERROR, reason))

    def _release(self) -> None:
        if self._connection is not None:
            self._context.broker.sessions.remove(self)
            self._memory.unlisten(self)
            self._connection.release()

    # --- serving

    def _work(self) -> None:
        """Serve what waits, or as much of it as one may have at a time."""
        self._is_woken = False
        self.outbox.is_held = True
        now_s = self._context.clock.monotonic
        until_s = now_s() + limits.TURN_MS / 1_000
        for _ in range(_TURN_EVENTS_MAX):
            if not self._may_serve():
                break
            self._serve(self._events.popleft())
            if now_s() >= until_s:
                break
        if self._connection is not None:
            self._connection.feed()
        self.outbox.flush()
        if self._may_serve() and not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self.guard, self._work)

    def _may_serve(self) -> bool:
        return bool(self._events) and self._serving is None and self._is_open

    def _serve(self, event: ProtocolHeader | Event) -> None:
        try:
            if self._connection is None:
                work = self._handshake.serve(event)
            else:
                assert not isinstance(event, ProtocolHeader)
                work = self._connection.serve(event)
        except AmqpError as error:
            self._fail(error)
            return
        if work is not None:
            self._serving = asyncio.ensure_future(work)
            self._serving.add_done_callback(partial(self.guard, self._served))

    def _served(self, done: asyncio.Future[Any]) -> None:
        self._serving = None
        error = None if done.cancelled() else done.exception()
        if not self._is_open:
            self._release()  # Something may have been made for a client that is gone.
            return
        if isinstance(error, AmqpError):
            self._fail(error)
        elif error is not None:
            self._context.broker.faults.caught(f"{self._link.peer}: a method failed", error)
            self.end(AmqpError(ReplyCode.INTERNAL_ERROR, "internal error"))
        self._work()

    def _before_write(self) -> None:
        if self._connection is not None:
            self._connection.tell_confirms()

    def _after_write(self) -> None:
        if self._connection is not None:
            self._connection.feed_starved()
        self._pace()

    def landed(self) -> None:
        """Something that was published has arrived."""
        self.outbox.wake()

    def _pace(self) -> None:
        """Stop reading from a client that goes too fast, and from all that publish when there
        is too little memory."""
        connection = self._connection
        is_blocked = connection is not None and connection.has_published and self._memory.is_high
        if is_blocked is not self._is_blocked:
            self._is_blocked = is_blocked
            self._tell_blocked()
        pauses = (
            is_blocked
            or bool(self._events)
            or self.outbox.backlog > _BACKLOG_BYTES_MAX
            or (connection is not None and connection.is_landing_much)
        )
        if pauses is not self.is_paused:
            self.is_paused = pauses
            if pauses:
                self._link.pause()
            else:
                self._link.resume()

    def _memory_changed(self, is_high: bool) -> None:
        self.guard(self._pace)

    def _tell_blocked(self) -> None:
        if self._connection is not None and self._connection.can("connection.blocked"):
            method = Blocked("low on memory") if self._is_blocked else Unblocked()
            self.outbox.method(0, method)

    # --- the handshake's side

    def tuned(self, frame_bytes_max: int, heartbeat_s: int) -> None:
        self._inbox.tune(frame_bytes_max)
        if heartbeat_s:
            self._heartbeat = Heartbeat(self, heartbeat_s)

    def opened(self, terms: Terms, vhost: VirtualHost) -> None:
        self._deadline.cancel()
        self._connection = Connection(self, self._context, terms, vhost)
        broker = self._context.broker
        self._memory.listen(self, self._memory_changed)
        broker.sessions.add(self)
        log.info("%s: user '%s' granted access to vhost '%s'", terms.peer, terms.user, vhost.name)

    def log_refusal(self, reason: str) -> None:
        log.warning("%s: %s", self._link.peer, reason)

    # --- the end

    def _fail(self, error: AmqpError) -> None:
        """Close what the mistake was made in."""
        if self._connection is None or error.closes_connection:
            self.end(error)
            return
        log.warning("%s: channel %d closed: %s", self._link.peer, error.channel, error.text)
        self._inbox.close_channel(error.channel)
        self._connection.close_channel(error)

    def end(self, error: AmqpError) -> None:
        """Close the connection, and say why to those who have a name."""
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self._link.peer, error.text)
        if self._connection is not None or self._handshake.may_explain:
            self.outbox.method(0, Close(error.code, error.text, *error.method_id))
        self.hang_up(error.text)

    def leave(self) -> None:
        """The client has closed the connection. What it had is free when it hears of it, unless
        that is very much."""
        self._release()
        self.outbox.method(0, CloseOk())
        self.hang_up("closed by the client")

    def hang_up(self, reason: str) -> None:
        """After what is said. Nothing may be delivered to it from now on."""
        if self._is_open:
            self._is_open = False
            self._release()
            self.outbox.flush()
            self._link.close(reason)

    def give_up(self, reason: str) -> None:
        """Nobody listens any more."""
        log.warning("%s: closed: %s", self._link.peer, reason)
        self._is_open = False
        self._release()
        self._link.abort(reason)

    # --- Session

    def facts(self) -> ConnectionFacts:
        assert self._connection is not None
        state = "blocked" if self._is_blocked else "flow" if self.is_paused else "running"
        return self._connection.facts(state, self._connected_ms)

    def close(self, reason: str) -> None:
        self.guard(self.end, AmqpError(ReplyCode.CONNECTION_FORCED, reason))
