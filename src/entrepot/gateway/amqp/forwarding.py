"""Forwards a client's channels to the node that has the queues, and goes on when that changes.

The client has logged in here. For it a connection to the *home* of queues is opened, with what the
client said; then frames are passed on in both directions. Only methods are looked into, to know
what must be done again at the next home: see `forwarded_channel`. While there is no home the
client is not read from.

A message that comes from the home is passed on when it is whole, because the home may be lost in
the middle of it; a large one is passed on as it comes, and its loss ends the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from entrepot.broker.replication import QueuesHome
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.faults import Faults
from entrepot.core.ports import Link, Net, Receiver, Unfinished
from entrepot.gateway.amqp.context import Wanted
from entrepot.gateway.amqp.forwarded_channel import ForwardedChannel
from entrepot.gateway.amqp.heartbeat import HeartbeatTimer
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, method_frame
from entrepot.wire.amqp.method import Method, read_id
from entrepot.wire.amqp.methods import channel as channels
from entrepot.wire.amqp.methods import connection as connections
from entrepot.wire.amqp.methods import decode
from entrepot.wire.amqp.scan import HEARTBEAT, METHOD
from entrepot.wire.amqp.split import Frame, FrameSplitter

log = logging.getLogger("entrepot.amqp")

_PATIENCE_S = 60.0  # How long a client waits for a new home.
_RETRY_S = 0.2
_CONNECT_S = 5.0
_HEARTBEAT_S = 20  # Between the two nodes.
_LEAVING = ("the queues are at another node now", "shutdown")  # In what a home says that ends.
_HIGH = limits.BACKLOG_BYTES_HIGH


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all forwarded connections share."""

    queues: QueuesHome
    net: Net
    faults: Faults
    own_address: Callable[[], tuple[str, int]]  # Where this node serves queues, if it is the home.


class _Home:
    """The connection to the home. A `Receiver` of the net."""

    def __init__(self, link: Link, client: Forwarding, frame_bytes_max: int) -> None:
        self.link = link
        self.is_ready = False  # Open: frames may be passed on.
        self._client = client
        self._inbox = FrameSplitter(frame_bytes_max)
        self._beat()

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_HEARTBEAT_S / 2, self.link.guard, self._beat)
        if self.is_ready:
            self.link.send((HEARTBEAT_FRAME,))

    def leave(self, reason: str) -> None:
        self._timer.cancel()
        self.link.close(reason)

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        try:
            frames = self._inbox.received(size)
        except AmqpError as error:
            self._client.lost(self, str(error))
            return
        self._client.from_home(self, frames)

    def drained(self) -> None:
        self._client.pace()

    def closed(self, reason: str) -> None:
        self._timer.cancel()
        self._client.lost(self, reason)


class Forwarding:
    """Implements `ServingReceiver`, for the client's link."""

    def __init__(self, link: Link, wanted: Wanted, around: Surroundings) -> None:
        self.link = link
        self.guard = link.guard
        self.outbox = self  # For heartbeats.
        self.reads = self.writes = 0
        self.is_paused = False  # The client is not read from.
        self._wanted = wanted
        self._around = around
        self._inbox = FrameSplitter(wanted.tune_ok.frame_max)
        self._channels: dict[int, ForwardedChannel] = {}
        self._home: _Home | None = None
        self._home_node = -1
        self._homeless_s = asyncio.get_running_loop().time()  # Since when; 0.0: not at all.
        self._waiting: list[Frame] = []  # From the client, until there is a home.
        self._is_open = True
        self._has_opened = False  # The client was told that its connection is open.
        self._is_leaving = False  # The client closes the connection.
        self._owns_queues = False  # It has declared exclusive queues.
        self._heartbeat: HeartbeatTimer | None = None
        if wanted.tune_ok.heartbeat:
            self._heartbeat = HeartbeatTimer(self, wanted.tune_ok.heartbeat)
        capabilities = wanted.start_ok.client_properties.get("capabilities")
        self._hears_cancels = (
            isinstance(capabilities, dict) and capabilities.get("consumer_cancel_notify") is True
        )
        around.queues.listen(self, self._home_changed)
        self._seeking: asyncio.Task[None] | None = None
        self.pace()
        self._seek()

    # --- ServingReceiver

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        self.reads += 1
        if not self._is_open:
            return
        try:
            frames = self._inbox.received(size)
            if self._home is not None and self._home.is_ready:
                self._from_client(frames)
            else:
                self._waiting += frames
        except AmqpError as error:
            self._end(error)
        self.pace()

    def drained(self) -> None:
        self.pace()

    def closed(self, reason: str) -> None:
        self._release(reason)

    def unfinished(self) -> Unfinished:
        size = self._inbox.unfinished_bytes + sum(len(each.data) for each in self._waiting)
        return Unfinished(size, self.reads if size else 0, not self.is_paused and size > 0)

    def refuse(self, reason: str) -> None:
        self._end(AmqpError(ReplyCode.RESOURCE_ERROR, reason))

    # --- for heartbeats

    def send(self, chunks: Sequence[bytes]) -> None:
        """Send to the client."""
        self.writes += 1
        self.link.send(chunks)

    def flush(self) -> None:
        """Do nothing: `send` has sent it."""

    def give_up(self, reason: str) -> None:
        log.warning("%s: closed: %s", self.link.peer, reason)
        self._release(reason)
        self.link.abort(reason)

    # --- ending

    def _end(self, error: AmqpError) -> None:
        """Close the client's connection and say why."""
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self.link.peer, error.text)
        close = connections.Close(error.code, error.text, *error.method_id)
        self.send((method_frame(0, close),))
        self._hang_up(error.text)

    def _hang_up(self, reason: str) -> None:
        self._release(reason)
        self.link.close(reason)

    def _release(self, reason: str) -> None:
        self._is_open = False
        self._around.queues.unlisten(self)
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._seeking is not None:
            self._seeking.cancel()
        home, self._home = self._home, None
        if home is not None:
            home.leave(reason)
        self._channels.clear()
        self._waiting.clear()

    def pace(self) -> None:
        """Read from each side unless the other one cannot take more."""
        home = self._home
        if not self._is_open:
            return
        is_full = home is None or not home.is_ready or home.link.backlog > _HIGH
        if is_full is not self.is_paused:
            self.is_paused = is_full
            (self.link.pause if is_full else self.link.resume)()
        if home is not None:
            (home.link.pause if self.link.backlog > _HIGH else home.link.resume)()

    # --- the home

    def _home_changed(self) -> None:
        """Leave a home that is none any more. Called when something has changed in the cluster."""
        node, home = self._around.queues.node, self._home
        if home is not None and node not in (-1, self._home_node):
            self.lost(home, "another node has the queues")

    def lost(self, home: _Home, reason: str) -> None:
        """Leave this home and look for the next one."""
        if home is not self._home or not self._is_open:
            return
        self._home = None
        home.leave(reason)
        self._homeless_s = self._homeless_s or asyncio.get_running_loop().time()
        if self._is_leaving:
            self.send((method_frame(0, connections.CloseOk()),))
            self._hang_up(reason)
            return
        log.info("%s: the home of queues is lost: %s", self.link.peer, reason)
        if self._owns_queues:
            text = "the node that had the connection's exclusive queues is gone"
            self._end(AmqpError(ReplyCode.CONNECTION_FORCED, text))
            return
        for number, each in [*self._channels.items()]:
            if each.is_amid_message:
                text = "the node that sent a message is gone"
                self._end(AmqpError(ReplyCode.CONNECTION_FORCED, text))
                return
            self.send((each.home_lost(),))
            if each.is_over:
                del self._channels[number]
        self.pace()
        self._seek()

    def _seek(self) -> None:
        if self._seeking is None:
            self._seeking = asyncio.get_running_loop().create_task(self._find())
            self._seeking.add_done_callback(self._sought)

    def _sought(self, task: asyncio.Task[None]) -> None:
        self._seeking = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            if not isinstance(error, PeerError):
                self._around.faults.caught(f"{self.link.peer}: forwarding failed", error)
            self._end(AmqpError(ReplyCode.CONNECTION_FORCED, "no node has the queues now"))
        elif self._is_open and self._home is None:  # Lost again in the meantime.
            self._seek()

    async def _find(self) -> None:
        """Connect to the home, as soon as there is one. Raises AmqpError."""
        queues = self._around.queues
        try:
            async with asyncio.timeout_at(self._homeless_s + _PATIENCE_S):
                while self._home is None:
                    await queues.found()
                    peer = queues.peer()
                    if peer is not None:
                        await self._connect(peer.id, peer.host, peer.queues_port)
                    elif queues.is_here:
                        host, port = self._around.own_address()
                        await self._connect(queues.node, host or "localhost", port)
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            raise AmqpError(ReplyCode.CONNECTION_FORCED, "no node has the queues now") from None

    async def _connect(self, node: int, host: str, port: int) -> None:
        made: list[_Home] = []

        def attach(link: Link) -> Receiver:
            made.append(_Home(link, self, self._wanted.tune_ok.frame_max))
            return made[0]

        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._around.net.connect(host, port, attach)
        except OSError as error:  # TimeoutError is one.
            log.info("%s: node %d is not reached: %s", self.link.peer, node, error)
            return
        except asyncio.CancelledError:
            for each in made:
                each.leave("the client is gone")
            raise
        self._home, self._home_node = made[0], node
        made[0].link.send((PROTOCOL_HEADER,))
        loop = asyncio.get_running_loop()
        loop.call_later(_CONNECT_S, self.guard, self._check_ready, made[0])

    def _check_ready(self, home: _Home) -> None:
        """Look for another home if this one has not opened the connection. One that is about to
        have the queues lets clients wait, and says so when it has not got them."""
        if home is self._home and not home.is_ready:
            asyncio.get_running_loop().call_later(
                _PATIENCE_S, self.guard, self._give_up_waiting, home
            )

    def _give_up_waiting(self, home: _Home) -> None:
        if home is self._home and not home.is_ready:
            self.lost(home, "it does not open the connection")

    def _opened(self, home: _Home) -> None:
        """Go on at a new home: open what was open, and pass on what waits."""
        home.is_ready = True
        self._homeless_s = 0.0
        if not self._has_opened:
            self._has_opened = True
            self.send((method_frame(0, connections.OpenOk()),))
        else:
            log.info("%s: goes on with node %d", self.link.peer, self._home_node)
        for each in self._channels.values():
            home.link.send(each.replay())
        waiting, self._waiting = self._waiting, []
        try:
            self._from_client(waiting)
        except AmqpError as error:
            self._end(error)
        self.pace()

    # --- from the home

    def from_home(self, home: _Home, frames: Sequence[Frame]) -> None:
        if home is not self._home:
            return
        out: list[bytes] = []
        for frame in frames:
            if frame.kind == HEARTBEAT:
                continue
            if frame.channel == 0:
                if out:
                    self.send(out)
                    out = []
                self._from_home_itself(home, frame)
                if home is not self._home:
                    return
                continue
            channel = self._channels.get(frame.channel)
            if channel is not None:
                to_client, to_home = channel.from_home(frame)
                out += to_client
                if to_home:
                    home.link.send(to_home)
                if channel.is_over:
                    del self._channels[frame.channel]
        if out:
            self.send(out)
        self.pace()

    def _from_home_itself(self, home: _Home, frame: Frame) -> None:
        """Serve what a home says of the connection."""
        method, (start_ok, tune_ok, wanted) = decode(frame.payload), self._wanted
        match method:
            case connections.Start():
                self._tell(home, start_ok)
            case connections.Tune():
                self._tell(home, replace(tune_ok, heartbeat=_HEARTBEAT_S))
                self._tell(home, wanted)
            case connections.OpenOk():
                self._opened(home)
            case connections.Close():
                self._tell(home, connections.CloseOk())
                if any(each in method.reply_text for each in _LEAVING) or (
                    not home.is_ready and method.reply_code == ReplyCode.CONNECTION_FORCED
                ):
                    self.lost(home, method.reply_text)
                else:
                    self.send((frame.data,))
                    self._hang_up(method.reply_text)
            case connections.CloseOk():
                self.send((frame.data,))
                self._hang_up("closed by the client")
            case _:
                self.send((frame.data,))

    def _tell(self, home: _Home, method: Method) -> None:
        home.link.send((method_frame(0, method),))

    # --- from the client

    def _from_client(self, frames: Sequence[Frame]) -> None:
        """Pass frames on to the home. Raises AmqpError."""
        home = self._home
        assert home is not None
        out: list[bytes] = []
        for frame in frames:
            if frame.kind == HEARTBEAT:
                continue
            number = frame.channel
            if number == 0:
                if frame.kind == METHOD and read_id(frame.payload) == connections.Close.ID:
                    self._is_leaving = True
                out.append(frame.data)
                continue
            channel = self._channels.get(number)
            if channel is None:
                if frame.kind == METHOD and read_id(frame.payload) == channels.Open.ID:
                    channel = ForwardedChannel(number, hears_cancels=self._hears_cancels)
                    self._channels[number] = channel
                else:  # The home says what is wrong with it.
                    out.append(frame.data)
                    continue
            out += channel.from_client(frame)
            self._owns_queues = self._owns_queues or channel.owns_queues
            if channel.is_over:
                del self._channels[number]
        if out:
            home.link.send(out)
