"""Sends and receives over one TCP connection.

It uses raw sockets with the loop's readiness callbacks instead of asyncio's transports: input is
read into the receiver's buffer, output is gathered into one system call, and ranges of files are
sent with sendfile, without being copied into this process.

A link is open, then closing (it sends what is queued), then lingering (our side is shut down,
and input is discarded), then gone. It lingers because closing a socket with unread input resets
the connection, and after a reset the peer may not get the last answer. `Receiver.closed` is
called once, from the loop, before the lingering.
"""

import logging
import os
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import cast

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.faults import Faults
from entrepot.core.measures import Traffic
from entrepot.core.ports import Buffer, Chunk, FileRange, Receiver, ServingReceiver
from entrepot.net.closings import Closings
from entrepot.net.unfinished import Holding, UnfinishedInput

CHUNKS_PER_CALL_MAX = 1024  # The system's IOV_MAX.
READS_PER_WAKE_MAX = 16  # Then other connections are served.
SENT_PER_WAKE_BYTES_MAX = 4 * limits.MIB
SENDS_PER_WAKE_MAX = 8  # Each may read up to a thousand small ranges of files.
READ_BYTES_MAX = 1 * limits.MIB  # At once, of a range that is not sent with sendfile.
BACKLOG_BYTES_LOW = limits.BACKLOG_BYTES_HIGH // 4
LINGER_SECONDS = 10.0

_MORE = getattr(socket, "MSG_MORE", 0)  # Linux: fill the packet with what comes next.

logger = logging.getLogger("entrepot.net")


class LinkState(IntEnum):
    OPEN = 0
    CLOSING = 1
    LINGERING = 2
    GONE = 3


_OPEN = LinkState.OPEN  # Python 3.11 finds members of an enumeration slowly.


class SocketLink:
    """A link on a connected, non-blocking socket; `attach` starts it."""

    __slots__ = (
        "__weakref__",
        "_closings",
        "_descriptor",
        "_faults",
        "_forget",
        "_holding",
        "_is_above_high",
        "_is_paused",
        "_is_writing",
        "_loop",
        "_peer",
        "_peer_ended",
        "_queue",
        "_reason",
        "_receiver",
        "_socket",
        "_state",
        "_timer",
        "backlog",
        "traffic",
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        connected: socket.socket,
        forget: Callable[["SocketLink"], None],
        faults: Faults,
        closings: Closings,
    ) -> None:
        self._loop = loop
        self._faults = faults
        self._closings = closings
        self._socket = connected
        self._descriptor = connected.fileno()
        self._peer = name_of(connected.getpeername())
        self._forget = forget
        self._receiver: Receiver | None = None  # None again once its `closed` is called.
        self._holding: Holding | None = None  # What it holds; None means: it is not counted.
        self._state = LinkState.OPEN
        self._reason = ""
        self._queue: deque[Chunk] = deque()
        self.backlog = 0  # Bytes in the queue. None of its chunks is empty.
        self._is_above_high = False  # Whether the receiver waits for `drained`.
        self._is_paused = False
        self._is_writing = False  # Whether the loop watches the socket for room to write.
        self._peer_ended = False
        self._timer: TimerHandle | None = None
        self.traffic = Traffic()  # The listener's, if this link was accepted.

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def subject(self) -> str | None:
        return None

    def count_in(self, unfinished: UnfinishedInput, receiver: ServingReceiver) -> None:
        """Limit the receiver's unfinished input. To be called before it is attached."""
        self._holding = Holding(unfinished, receiver, self._evict)

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._state >= LinkState.LINGERING:
            self._report_closed()
        elif self._state is LinkState.OPEN and not self._is_paused:
            self._loop.add_reader(self._descriptor, self._readable)

    def pause(self) -> None:
        if self._state is LinkState.OPEN and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._descriptor)
            self._recount()

    def resume(self) -> None:
        if self._state is LinkState.OPEN and self._is_paused:
            self._is_paused = False
            if self._receiver is not None:
                self._loop.add_reader(self._descriptor, self._readable)
            self._recount()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._state is not _OPEN:
            return
        if self.backlog or not self._send_at_once(chunks):
            self._enqueue(chunks)
        if self._holding is not None and self._holding.held.size:
            self._holding.changed()

    def _send_at_once(self, chunks: Sequence[Chunk]) -> bool:
        """Send all chunks with one system call, without the queue, if possible.

        False means: nothing was sent, and the caller must queue the chunks. True means: they were
        sent, or the rest is in the queue, or the link is gone.
        """
        only = chunks[0] if len(chunks) == 1 else None  # Mostly there is one: `send` is faster.
        if isinstance(only, FileRange):
            return False
        if only is None:
            if len(chunks) > CHUNKS_PER_CALL_MAX or FileRange in map(type, chunks):
                return False
            size = sum(map(len, cast("Sequence[Buffer]", chunks)))
        else:
            size = len(only)
        if size > SENT_PER_WAKE_BYTES_MAX:
            return False
        buffers = cast("Sequence[Buffer]", chunks)
        try:
            sent = self._socket.sendmsg(buffers) if only is None else self._socket.send(only)
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(error)
            return True
        self.traffic.bytes_sent += sent
        if sent < size:
            self._put_back(buffers, size - sent)
            self.backlog = size - sent
            self._wait_for_room()
        return True

    def _enqueue(self, chunks: Sequence[Chunk]) -> None:
        is_idle = not self.backlog
        for chunk in chunks:
            size = chunk.size if isinstance(chunk, FileRange) else len(chunk)
            if size:
                self._queue.append(chunk)
                self.backlog += size
        if is_idle:
            self._flush()
        if self.backlog > limits.BACKLOG_BYTES_HIGH:
            self._is_above_high = True

    def close(self, reason: str) -> None:
        if self._state is not LinkState.OPEN:
            return
        self._state = LinkState.CLOSING
        self._reason = reason
        self._loop.remove_reader(self._descriptor)
        self._timer = self._loop.call_later(LINGER_SECONDS, self._drop)
        if not self.backlog:
            self._shut()

    def abort(self, reason: str) -> None:
        if self._state is LinkState.OPEN:
            self._reason = reason
        self._drop()

    # Input.

    def _readable(self) -> None:
        """Read, under the receiver's guard."""
        try:
            self._read()
        except Exception as error:
            self._caught(error)

    def _read(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        until_s = 0.0  # Set after the first read: mostly there is no second one.
        for _ in range(READS_PER_WAKE_MAX):
            view = receiver.writable()
            room = len(view)
            try:
                size = self._socket.recv_into(view)
            except BlockingIOError:
                return
            except OSError as error:
                self._ended(partial(self.abort, words(error)))
                return
            if not size:
                self._peer_ended = True
                self._ended(partial(self.close, "closed by peer"))
                return
            del view  # The receiver may want to resize what is behind it.
            self.traffic.bytes_received += size
            receiver.received(size)
            if self._holding is not None:
                self._holding.received()
            if size < room or self._is_paused or self._state is not _OPEN:
                return
            now_s = self._closings.clock.monotonic()
            if not until_s:
                until_s = now_s + limits.TURN_MS / 1_000
            elif now_s >= until_s:
                return  # A megabyte of small requests may take long.

    def _ended(self, end: Callable[[], None]) -> None:
        """Read no more, and end this link when it is its turn."""
        self.pause()
        self._closings.add(self._loop, end)

    def _recount(self) -> None:
        """Count the receiver's unfinished input again: it may have processed some of it."""
        if self._holding is not None and self._holding.held.size:
            self._holding.changed()

    def _evict(self, receiver: ServingReceiver, reason: str) -> None:
        self.guard(receiver.refuse, reason)
        if self.backlog:  # The peer does not read, so the answer could not be sent soon.
            self.abort(reason)

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._caught(error)

    def _caught(self, error: Exception) -> None:
        """Close this link after a mistake of the peer or a bug in the broker."""
        if isinstance(error, PeerError):
            logger.warning("%s: closed: %s", self._peer, error)
            self.close(str(error))
        else:
            self._faults.caught(f"{self._peer}: the connection is closed", error)
            self.abort("internal error")

    # Output.

    def _flush(self) -> None:
        """Send as much as the system takes now; the loop calls again for the rest."""
        before = self.backlog
        try:
            for _ in range(SENDS_PER_WAKE_MAX):
                if not self.backlog or before - self.backlog >= SENT_PER_WAKE_BYTES_MAX:
                    break
                self._send_some()
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
            return
        self._wait_for_room()

    def _fail(self, error: OSError) -> None:
        """Abort this link: the socket cannot be written, or a file cannot be read."""
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.warning("%s: closed: %s", self._peer, error)
        self.abort(words(error))

    def _wait_for_room(self) -> None:
        """Watch the socket for room to write while there is a backlog."""
        if self._is_writing != bool(self.backlog):
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._loop.add_writer(self._descriptor, self.guard, self._writable)
            else:
                self._loop.remove_writer(self._descriptor)

    def _writable(self) -> None:
        self._flush()
        if self._state is LinkState.CLOSING and not self.backlog:
            self._shut()
        elif self._is_above_high and self.backlog <= BACKLOG_BYTES_LOW:
            self._is_above_high = False
            if self._receiver is not None:
                self._receiver.drained()

    def _send_some(self) -> None:
        """Send the head of the queue. Raises BlockingIOError when the system takes no more."""
        head = self._queue[0]
        if isinstance(head, FileRange) and _by_sendfile(head):
            self._send_range(head)
        else:
            self._send_buffers()

    def _send_range(self, head: FileRange) -> None:
        file, position, size = head
        number = file.fileno()
        assert number is not None
        sent = os.sendfile(self._descriptor, number, position, min(size, SENT_PER_WAKE_BYTES_MAX))
        if not sent:
            raise OSError(f"{file.path} ends before {position + size}")
        self.backlog -= sent
        self.traffic.bytes_sent += sent
        if sent == size:
            self._queue.popleft()
            return
        self._queue[0] = FileRange(file, position + sent, size - sent)
        if sent < SENT_PER_WAKE_BYTES_MAX:
            raise BlockingIOError  # The socket is full: the next call would raise it.

    def _send_buffers(self) -> None:
        """Send buffers up to the next range that is sent by itself, in one call."""
        queue = self._queue
        buffers: list[Buffer] = []
        size = 0
        flags = 0
        while queue and len(buffers) < CHUNKS_PER_CALL_MAX and size < SENT_PER_WAKE_BYTES_MAX:
            chunk = queue.popleft()
            if isinstance(chunk, FileRange):
                if _by_sendfile(chunk):
                    queue.appendleft(chunk)
                    flags = _MORE
                    break
                chunk, rest = read_range(chunk)
                if rest is not None:
                    queue.appendleft(rest)
            buffers.append(chunk)
            size += len(chunk)
        sent = 0
        try:
            sent = self._socket.sendmsg(buffers, (), flags)
        finally:
            self.backlog -= sent
            self.traffic.bytes_sent += sent
            if sent < size:
                self._put_back(buffers, size - sent)
        if sent < size:
            raise BlockingIOError

    def _put_back(self, buffers: Sequence[Buffer], size: int) -> None:
        """Put the last `size` bytes of the buffers at the front of the queue again."""
        for buffer in reversed(buffers):
            if size <= len(buffer):
                self._queue.appendleft(memoryview(buffer)[len(buffer) - size :])
                return
            self._queue.appendleft(buffer)
            size -= len(buffer)

    # The end.

    def _shut(self) -> None:
        """Shut down our side, because everything is sent, and wait for the peer to do the same."""
        if self._peer_ended:
            self._drop()
            return
        self._state = LinkState.LINGERING
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop()
            return
        self._loop.add_reader(self._descriptor, self._discard, bytearray(64 * limits.KIB))
        self._report_closed()

    def _discard(self, scratch: bytearray) -> None:
        try:
            if self._socket.recv_into(scratch):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._drop()

    def _drop(self) -> None:
        if self._state is LinkState.GONE:
            return
        self._state = LinkState.GONE
        self.traffic.closed += 1
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._socket.close()
        self._queue.clear()
        self.backlog = 0
        self._forget(self)
        self._report_closed()

    def _report_closed(self) -> None:
        """Schedule `Receiver.closed`. It is not called here: the receiver may be our caller."""
        receiver, self._receiver = self._receiver, None
        holding, self._holding = self._holding, None  # Which refers to this.
        if holding is not None:
            holding.end()
        if receiver is not None:
            logger.debug("%s: gone: %s", self._peer, self._reason)
            self._closings.add(self._loop, partial(self.guard, receiver.closed, self._reason))


def name_of(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _by_sendfile(chunk: FileRange) -> bool:
    return chunk.size >= limits.SENDFILE_BYTES_MIN and chunk.file.fileno() is not None


def read_range(chunk: FileRange, bytes_max: int = READ_BYTES_MAX) -> tuple[bytes, FileRange | None]:
    """Read the first bytes of a range; return them and the range of the others."""
    file, position, size = chunk
    wanted = min(size, bytes_max)
    data = file.read(position, wanted)
    if len(data) < wanted:
        raise OSError(f"{file.path} ends before {position + size}")
    if wanted == size:
        return data, None
    return data, FileRange(file, position + wanted, size - wanted)


def words(error: OSError) -> str:
    return error.strerror or str(error)
