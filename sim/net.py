"""A network in memory: slow, splitting bytes anywhere, and breaking on request.

A link is TCP: what arrives is what was sent, in order, up to where the link broke. What
differs from run to run is when, in which pieces, and how much of it the sender has to keep.
Each direction is a pipe with a window; what is sent beyond it is the sender's backlog.

A range of a file is read when it is delivered, piece by piece, not when it is sent: so
does the real net, and a range whose file was cut or overwritten meanwhile must show.

Every machine has its own door to the one network, which knows whose links to break.
Addresses are names: there is no loopback, and a name is listened on by whoever asked first.
Callbacks run in the context of the side they belong to, so a killed process hears nothing.
"""

import asyncio
import contextvars
import errno
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from random import Random

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.measures import Traffic
from entrepot.core.ports import Buffer, Chunk, FileRange, Link, Receiver, ServingReceiver
from entrepot.net.unfinished import Holding, UnfinishedInput

BACKLOG_BYTES_LOW = limits.BACKLOG_BYTES_HIGH // 4
PORT_FIRST = 49152  # Of those handed out for port 0.

RESET = "Connection reset by peer"
ENDED = "closed by peer"

LINGER_SECONDS = 10.0  # As the real net: how long a closing link may take to send the rest.

_HELD_BACK_SECONDS = 0.05  # Between two looks whether what is held back may arrive.

logger = logging.getLogger("entrepot.net")


class _State(IntEnum):
    OPEN = 0
    CLOSING = 1  # The backlog is still to be sent.
    CLOSED = 2


@dataclass(slots=True)
class Weather:
    """How the network behaves when nothing is asked of it. May be changed at any time."""

    delay_seconds_min: float = 0.000_05
    delay_seconds_max: float = 0.002
    split_chance: float = 0.5  # That a piece ends anywhere; else it is all there is.
    window_bytes: int = 64 * limits.KIB
    bytes_per_second: float | None = None  # None: any amount arrives at once.
    connect_seconds_max: float = 10.0  # How long a connect to nowhere hangs.


class SimNetwork:
    def __init__(self, random: Random, weather: Weather | None = None) -> None:
        self.weather = weather or Weather()
        self.random = random
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.links: dict[SimLink, None] = {}  # Both ends of each.
        self._ports = itertools.count(PORT_FIRST)
        self._islands: list[tuple[str, ...]] = []
        self._muted: dict[tuple[str, str], None] = {}  # What the first sends, the second misses.

    def door(self, machine: str, unfinished: UnfinishedInput | None = None) -> "SimNet":
        return SimNet(self, machine, unfinished)

    def break_links(self, machine: str | None = None) -> None:
        """Reset the links of a machine, or all."""
        for link in list(self.links):
            if machine is None or link.machine == machine:
                link.reset()

    def part(self, *machines: str) -> None:
        """Cut these off from all others, until `heal`. Links between break."""
        self._islands.append(machines)
        for link in list(self.links):
            if self.is_parted(link.machine, link.other.machine):
                link.reset()

    def mute(self, sender: str, receiver: str) -> None:
        """Hold back all that goes this one way, until `heal`. Nobody notices: links stay open."""
        self._muted[sender, receiver] = None

    def heal(self) -> None:
        self._islands.clear()
        self._muted.clear()

    def is_muted(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._muted

    def is_parted(self, one: str, other: str) -> bool:
        return any((one in island) != (other in island) for island in self._islands)

    def crash(self, machine: str) -> None:
        """A machine or its process is gone: its links break, nobody listens there."""
        self.break_links(machine)
        self.stop_listening(machine)

    def stop_listening(self, machine: str) -> None:
        for listener in list(self.listeners.values()):
            if listener.machine == machine:
                listener.close()

    def port(self) -> int:
        return next(self._ports)

    def delay(self) -> float:
        return self.random.uniform(self.weather.delay_seconds_min, self.weather.delay_seconds_max)


class SimNet:
    """One machine's door to the network."""

    def __init__(
        self, network: SimNetwork, machine: str, unfinished: UnfinishedInput | None
    ) -> None:
        self._network = network
        self._machine = machine
        self._unfinished = unfinished

    async def listen(
        self, host: str, port: int, accept: Callable[[Link], ServingReceiver]
    ) -> "SimListener":
        port = port or self._network.port()
        if (host, port) in self._network.listeners:
            raise _error(errno.EADDRINUSE)
        listener = SimListener(self._network, self._machine, host, port, self._counting(accept))
        self._network.listeners[host, port] = listener
        return listener

    def _counting(
        self, accept: Callable[[Link], ServingReceiver]
    ) -> Callable[["SimLink"], Receiver]:
        def accept_counted(link: SimLink) -> Receiver:
            receiver = accept(link)
            if self._unfinished is not None:
                link.count_in(self._unfinished, receiver)
            return receiver

        return accept_counted

    async def connect(self, host: str, port: int, attach: Callable[[Link], Receiver]) -> "SimLink":
        network = self._network
        await asyncio.sleep(network.delay())
        listener = network.listeners.get((host, port))
        if listener is None:
            raise _error(errno.ECONNREFUSED)
        is_lost = network.is_muted(self._machine, listener.machine) or network.is_muted(
            listener.machine, self._machine
        )
        if is_lost or network.is_parted(self._machine, listener.machine):
            if network.random.random() < 0.5:
                raise _error(errno.EHOSTUNREACH)
            await asyncio.sleep(network.random.uniform(0, network.weather.connect_seconds_max))
            raise _error(errno.ETIMEDOUT)
        here = SimLink(network, self._machine, f"{host}:{port}", contextvars.copy_context())
        there = SimLink(
            network, listener.machine, f"{self._machine}:{network.port()}", listener.context
        )
        here.other, there.other = there, here
        network.links[here] = network.links[there] = None
        there.call_soon(lambda: there.attach(listener.accept(there)))
        try:
            here.attach(attach(here))
        except BaseException:
            here.abort("internal error")
            raise
        return here

    def close(self) -> None:
        self._network.stop_listening(self._machine)
        for link in list(self._network.links):
            if link.machine == self._machine:
                link.abort("shutting down")


class SimListener:
    def __init__(
        self,
        network: SimNetwork,
        machine: str,
        host: str,
        port: int,
        accept: Callable[["SimLink"], Receiver],
    ) -> None:
        self._network = network
        self._host = host
        self._port = port
        self.traffic = Traffic()  # Nothing is counted in a simulation.
        self.machine = machine
        self.accept = accept
        self.context = contextvars.copy_context()

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        if self._network.listeners.get((self._host, self._port)) is self:
            del self._network.listeners[self._host, self._port]


class SimLink:
    """One end of a link, and the pipe of bytes that leave by it."""

    other: "SimLink"

    def __init__(
        self, network: SimNetwork, machine: str, peer: str, context: contextvars.Context
    ) -> None:
        self.machine = machine
        self._network = network
        self._peer = peer
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None  # Until it was told of the end.
        self._holding: Holding | None = None  # What it holds; None: nobody counts.
        self._state = _State.OPEN
        self._reason = ""
        self._is_paused = False
        self._is_above_high = False  # The receiver is owed a `drained`.
        self._is_cut = False  # Nothing arrives any more, whether noticed or not.
        self._queue: deque[tuple[float, Chunk]] = deque()  # When it arrives, and what.
        self._queue_bytes = 0
        self._arrival = 0.0  # Of the last byte so far. Never goes back: order is kept.
        self._is_ended = False  # After the queue comes the end.
        self._delivery: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None  # While it is closing.

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def subject(self) -> str | None:
        return None

    @property
    def backlog(self) -> int:
        return max(0, self._queue_bytes - self._network.weather.window_bytes)

    def count_in(self, unfinished: UnfinishedInput, receiver: ServingReceiver) -> None:
        self._holding = Holding(unfinished, receiver, self._evict)

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._state is _State.CLOSED:
            self._tell_closed()
        else:
            self.other._schedule()

    def pause(self) -> None:
        self._is_paused = True
        self._recount()

    def resume(self) -> None:
        self._is_paused = False
        self.other._schedule()
        self._recount()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._state is not _State.OPEN:
            return
        sized = [(_size(chunk), chunk) for chunk in chunks]
        total = sum(size for size, _ in sized)
        arrival = self._next_arrival(total)
        self._queue.extend((arrival, chunk) for size, chunk in sized if size)
        self._queue_bytes += total
        if self.backlog > limits.BACKLOG_BYTES_HIGH:
            self._is_above_high = True
        self._schedule()
        self._recount()

    def close(self, reason: str) -> None:
        if self._state is not _State.OPEN:
            return
        self._state = _State.CLOSING
        self._reason = reason
        self._is_ended = True
        self._next_arrival(0)
        self._patience = self._loop.call_later(
            LINGER_SECONDS, self.abort, reason, context=self._context
        )
        self._schedule()
        self._progress()

    def abort(self, reason: str) -> None:
        if self._state is _State.OPEN:
            self._reason = reason
        if self._state is not _State.CLOSED:
            self._forget_queue()
            self._finish()
            self.reset()

    def reset(self) -> None:
        """Nothing arrives from now on. Each side notices in its own time."""
        for end in (self, self.other):
            end._is_cut = True
            self._loop.call_later(self._network.delay(), end._notice_reset, context=end._context)

    def call_soon(self, callback: Callable[..., None], *arguments: object) -> None:
        self._loop.call_soon(self.guard, callback, *arguments, context=self._context)

    def _recount(self) -> None:
        if self._holding is not None and self._holding.held.size:
            self._holding.changed()

    def _evict(self, receiver: ServingReceiver, reason: str) -> None:
        self.guard(receiver.refuse, reason)
        if self.backlog:
            self.abort(reason)

    def guard(self, callback: Callable[..., object], *arguments: object) -> None:
        """Their mistake ends the link. Ours goes on to the loop and ends the simulation."""
        try:
            callback(*arguments)
        except PeerError as error:
            logger.warning("%s: closed: %s", self._peer, error)
            self.close(str(error))

    def _next_arrival(self, size: int) -> float:
        weather = self._network.weather
        self._arrival = max(self._arrival, self._loop.time() + self._network.delay())
        if weather.bytes_per_second is not None:
            self._arrival += size / weather.bytes_per_second
        return self._arrival

    def _schedule(self) -> None:
        """Have the next piece delivered, if there is one and somebody to take it."""
        other = self.other
        if self._is_cut or self._delivery is not None or not (self._queue or self._is_ended):
            return
        if other._state is _State.OPEN and (other._is_paused or other._receiver is None):
            return
        when = self._queue[0][0] if self._queue else self._arrival
        self._delivery = self._loop.call_at(when, self._deliver, context=other._context)

    def _deliver(self) -> None:
        """Runs on the other side: one piece, or the end."""
        self._delivery = None
        other = self.other
        if self._is_cut:
            return
        if self._network.is_muted(self.machine, other.machine):
            self._delivery = self._loop.call_later(
                _HELD_BACK_SECONDS, self._deliver, context=other._context
            )
            return
        if other._state is not _State.OPEN:
            self._forget_queue()  # Nobody reads there any more: it is thrown away.
            self._is_ended = False
        elif other._is_paused:
            return
        elif self._queue:
            assert other._receiver is not None
            try:
                size = self._move(other._receiver.writable())
            except OSError as error:
                self.abort(str(error))
                return
            other.guard(other._receiver.received, size)
            if other._holding is not None:
                other._holding.received()
        elif self._is_ended:
            self._is_ended = False
            other.close(ENDED)
        self._progress()
        self._schedule()

    def _move(self, view: memoryview) -> int:
        """Fill a part of the view with what has arrived. How much is up to chance."""
        random, now = self._network.random, self._loop.time()
        size = 0
        for arrival, chunk in self._queue:
            if arrival > now or size >= len(view):
                break
            size += _size(chunk)
        size = min(size, len(view))
        if random.random() < self._network.weather.split_chance:
            size = random.randint(1, size)
        filled = 0
        while filled < size:
            arrival, chunk = self._queue.popleft()
            data, rest = _split(chunk, size - filled)
            view[filled : filled + len(data)] = data
            filled += len(data)
            if rest is not None:
                self._queue.appendleft((arrival, rest))
        self._queue_bytes -= size
        return size

    def _progress(self) -> None:
        """The pipe has more room than before, or nothing left."""
        if self._state is _State.CLOSING and not self.backlog:
            self._finish()
        elif self._is_above_high and self.backlog <= BACKLOG_BYTES_LOW:
            self._is_above_high = False
            if self._receiver is not None:
                self.call_soon(self._receiver.drained)

    def _notice_reset(self) -> None:
        if self._state is _State.OPEN:
            self._reason = RESET
        self._forget_queue()
        self._finish()

    def _forget_queue(self) -> None:
        self._queue.clear()
        self._queue_bytes = 0

    def _finish(self) -> None:
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        if self._patience is not None:
            self._patience.cancel()
        del self._network.links[self]
        self._tell_closed()
        if not self._is_cut:
            self.other._schedule()  # What it has for us can be thrown away.

    def _tell_closed(self) -> None:
        receiver, self._receiver = self._receiver, None
        if self._holding is not None:
            self._holding.end()
        if receiver is not None:
            self.call_soon(receiver.closed, self._reason)


def _size(chunk: Chunk) -> int:
    return chunk.size if isinstance(chunk, FileRange) else len(chunk)


def _split(chunk: Chunk, size: int) -> tuple[Buffer, Chunk | None]:
    """The first bytes of a chunk, at most `size`, and the rest of it."""
    if isinstance(chunk, FileRange):
        file, position, whole = chunk
        data = file.read(position, min(size, whole))
        if len(data) < min(size, whole):
            raise OSError(f"{file.path} ends before {position + whole}")
        rest = FileRange(file, position + len(data), whole - len(data))
        return data, rest if rest.size else None
    if size >= len(chunk):
        return chunk, None
    view = memoryview(chunk)
    return view[:size], view[size:]


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
