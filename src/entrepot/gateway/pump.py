"""One connection of any protocol: bytes are read, events are served in order, bytes are written.

A pump is the receiver of one link. A codec turns the bytes that were read into events. Each event
is served when the one before it is done: at once, or by something that is awaited. Events are
served in turns: after some events, a few milliseconds or much output other connections get theirs.
Output is written once in a turn, whether a read, a commit or a timer has caused it. While the
peer does not read, or has asked for too much, the link is not read from.

A protocol provides a codec, a function that serves one event, and the methods of a pump that
return the output, decide when to stop reading, and answer errors.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.faults import Faults
from entrepot.core.ports import NOTHING_UNFINISHED, Chunk, Clock, Link, Unfinished
from entrepot.gateway.begun import Begun

TURN_EVENTS_MAX = 500  # A turn also ends after `limits.TURN_MS`.
TURN_BYTES_MAX = 1 * limits.MIB  # A turn with more output ends.

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)

Serve = Callable[[E], Awaitable[None] | None]
"""Serves an event. Returns what must be awaited before the next one is served, if anything.

Raises a PeerError, at once or while it is awaited.
"""


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class EventDecoder(Protocol[E_co]):
    """Turns bytes into events."""

    def writable(self) -> memoryview: ...

    def received(self, size: int) -> Sequence[E_co]:
        """Return the events that are now complete. Raises a PeerError."""


class CountingDecoder(EventDecoder[E_co], Protocol[E_co]):
    """Tells how much of an incomplete event it holds."""

    @property
    def unfinished_bytes(self) -> int: ...

    @property
    def unfinished_number(self) -> int:
        """Return a number that identifies the incomplete event."""


D = TypeVar("D", bound=CountingDecoder[Any])


class Pump(Generic[E]):
    def __init__(
        self, link: Link, codec: EventDecoder[E], serve: Serve[E], clock: Clock, faults: Faults
    ) -> None:
        self.link = link
        self.guard = link.guard
        self._clock = clock
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self.use(codec)
        self.serve = serve
        self._events: deque[E] = deque()  # Complete, waiting to be served.
        self._awaited: Cancellable | None = None  # What the next event waits for.
        self._is_working = False  # In a turn, which writes the output at its end.
        self._is_woken = False  # A turn is scheduled.
        self._turn_bytes = 0  # Of output produced in this turn.
        self._is_open = True
        self.is_paused = False  # The link is not read from.
        self.reads = self.writes = 0  # How many there were.

    def use(self, codec: EventDecoder[E]) -> None:
        """Decode the next bytes with this codec."""
        self.writable = codec.writable
        self._scan = codec.received

    # --- provided by the protocol

    def output(self) -> Sequence[Chunk]:
        """Return the output, to be written now."""
        raise NotImplementedError

    def pace(self) -> None:
        """Call `pause` to stop or resume reading. Called after each turn."""
        raise NotImplementedError

    def may_serve(self) -> bool:
        """Return whether there is room for the answer to another event."""
        return True

    def failed(self, error: PeerError | None) -> None:
        """Answer an error of the peer. None means: an error of ours."""
        raise NotImplementedError

    def release(self) -> None:
        """Release what an awaited event created after the peer was disconnected."""

    # --- Receiver

    def received(self, size: int) -> None:
        self.reads += 1
        events = self._scan(size)
        is_idle = not self._events and self._awaited is None and self._is_open
        if is_idle and len(events) == 1 and self.may_serve():
            self.serve_alone(events[0])
        else:
            self._events.extend(events)
            self.work()

    def serve_alone(self, event: E) -> None:
        """Do what `work` does for an event that has come alone, with none before it, as most
        messages come."""
        self._is_working = True
        try:
            work = self.serve(event)
        except PeerError as error:
            self.failed(error)
        else:
            if work is not None:
                self.wait_for(work)
        self.flush()
        self.pace()

    def drained(self) -> None:
        self.work()

    def closed(self, reason: str) -> None:
        self._is_open = False
        self._events.clear()
        self.serve = _serve_none  # The one before refers to this, or to what does.

    # --- turns

    def work(self) -> None:
        """Take a turn: serve events, write the output once, and stop or resume reading."""
        self._is_woken = False
        self._turn_bytes = 0
        if self._events:
            self._is_working = True
            self._serve_events()
        self.flush()
        self.pace()
        if self._events:
            self._turn_bytes = 0
            if self._awaited is None and self._is_open and self.may_serve():
                self.wake()

    def wake(self) -> None:
        """Schedule a turn, unless one is running or scheduled."""
        if not self._is_working and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self.guard, self.work)

    def flush(self) -> None:
        """Write the output, if there is any."""
        self._is_working = True
        chunks = self.output()
        self._is_working = False
        if chunks:
            self.writes += 1
            self.link.send(chunks)

    def pause(self, is_much: bool) -> None:
        """Stop reading if there is too much to do, otherwise resume."""
        if is_much is not self.is_paused:
            self.is_paused = is_much
            if is_much:
                self.link.pause()
            else:
                self.link.resume()

    def _serve_events(self) -> None:
        events = self._events
        until_s = 0.0  # Not looked at if there is a single event.
        if len(events) > 1:
            until_s = self._clock.monotonic() + limits.TURN_MS / 1_000
        for _ in range(TURN_EVENTS_MAX):
            if self._awaited is not None or not self._is_open or not self.may_serve():
                return
            try:
                work = self.serve(events.popleft())
            except PeerError as error:
                self.failed(error)
            else:
                if work is not None:
                    self.wait_for(work)
            if not events or self._turn_bytes >= TURN_BYTES_MAX:
                return
            if self._clock.monotonic() >= until_s:
                return

    def wait_for(self, work: Awaitable[None]) -> None:
        """Wait for this work before the next event is served."""
        self._awaited = awaited = asyncio.ensure_future(work)
        awaited.add_done_callback(partial(self.guard, self._done))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this work at once. If it has to wait, the next event is served after it."""
        begun = Begun(work, partial(self.guard, self._done))
        if not begun.is_done:
            self._awaited = begun
            return
        self._judge(_error_of(begun))

    def hold(self, work: Cancellable) -> None:
        """Serve no event until `go_on` is called. The work is cancelled if the link ends before.

        This is for work that is done by a callback: unlike a future it needs no turn of the loop.
        """
        self._awaited = work

    def go_on(self) -> None:
        """Serve events again, in a turn of their own. Ends what `hold` began."""
        self._awaited = None
        if self._events or self.is_paused:
            self.wake()

    def cancel(self) -> None:
        """Cancel what is awaited, in the next turn of the loop: a task that is cancelled before it
        has begun would leave coroutines that nobody awaits."""
        if self._awaited is not None:
            self._loop.call_later(0, self._awaited.cancel)

    def _done(self, done: asyncio.Future[Any] | Begun) -> None:
        if self._awaited is done:  # And did not `hold` what comes next.
            self._awaited = None
        error = _error_of(done)  # A task wants to be asked, also when nobody is told.
        if not self._is_open:
            self.release()
            return
        self._judge(error)
        self.work()

    def _judge(self, error: BaseException | None) -> None:
        """Answer the error with which a request has ended, if there is one."""
        if isinstance(error, PeerError):
            self.failed(error)
        elif error is not None:
            self._faults.caught(f"{self.link.peer}: a request failed", error)
            self.failed(None)


def _error_of(done: asyncio.Future[Any] | Begun) -> BaseException | None:
    return None if done.cancelled() else done.exception()


def _serve_none(event: object) -> None:
    """Do nothing: the connection is closed."""


class CountingPump(Pump[E], Generic[E, D]):
    """A pump that knows how many bytes of input are not processed: incomplete, or in events."""

    def __init__(self, link: Link, codec: D, serve: Serve[E], clock: Clock, faults: Faults) -> None:
        super().__init__(link, codec, serve, clock, faults)
        self._inbox = codec
        self._unfinished_bytes = 0  # Of an incomplete event.
        self._events_bytes = 0  # Input bytes of `_events`; stale when there are none.

    def received(self, size: int) -> None:
        self.reads += 1
        is_idle = not self._events and self._awaited is None and self._is_open
        self.decode(size)
        if not is_idle or len(self._events) != 1 or not self.may_serve():
            self.work()
            return
        self.serve_alone(self._events.popleft())

    def decode(self, size: int) -> None:
        """Add the events that are complete with so many more bytes."""
        held = self._unfinished_bytes + size
        if self._events:
            held += self._events_bytes
        self._events.extend(self._scan(size))
        self._unfinished_bytes = self._inbox.unfinished_bytes
        self._events_bytes = held - self._unfinished_bytes

    def drop_input(self, empty: D) -> None:
        """Free the input now, not when this is collected: put an empty codec in its place."""
        self._inbox = empty
        self.use(empty)
        self._unfinished_bytes = 0

    def unfinished(self) -> Unfinished:
        size = self._unfinished_bytes
        if self._events:
            size += self._events_bytes
        if not size:
            return NOTHING_UNFINISHED
        return Unfinished(size, self._inbox.unfinished_number, not self.is_paused)
