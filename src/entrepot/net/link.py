"""One TCP connection: bytes in as the receiver has room, bytes out as the system takes them.

Raw sockets with readiness callbacks rather than asyncio's transports: input lands where
the receiver wants it, output is gathered into one system call, and bytes that are in a
file go from the page cache to the socket without passing through this process.

A link is open, then closing (it sends what is queued), then lingering (our side is shut,
what still arrives is thrown away), then gone. Lingering is there because closing a socket
with unread input resets the connection, and a reset can overtake the last answer. The
receiver is told of the end before the lingering, from the loop, once.
"""

import logging
import os
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.faults import Faults
from entrepot.core.ports import Buffer, Chunk, FileRange, Receiver, ServingReceiver
from entrepot.net.unfinished import Holding, UnfinishedInput

CHUNKS_PER_CALL_MAX = 1024  # The system's IOV_MAX.
READS_PER_WAKE_MAX = 16  # Then the others have their turn.
SENT_PER_WAKE_BYTES_MAX = 4 * limits.MIB
SENDS_PER_WAKE_MAX = 8  # Each may read a thousand small ranges of files first.
READ_BYTES_MAX = 1 * limits.MIB  # Of a file that has no descriptor, or is small.
SENDFILE_BYTES_MIN = 8 * limits.KIB  # Below this, reading costs less than a call of its own.
BACKLOG_BYTES_LOW = limits.BACKLOG_BYTES_HIGH // 4
LINGER_SECONDS = 10.0

_MORE = getattr(socket, "MSG_MORE", 0)  # Linux: fill the packet with what comes next.

logger = logging.getLogger("entrepot.net")


class State(IntEnum):
    OPEN = 0
    CLOSING = 1
    LINGERING = 2
    GONE = 3


class SocketLink:
    """Built around a connected, non-blocking socket, and started by `attach`."""

    __slots__ = (
        "__weakref__",
        "_backlog",
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
    )

    def __init__(
        self,
        loop: AbstractEventLoop,
        connected: socket.socket,
        forget: Callable[["SocketLink"], None],
        faults: Faults,
    ) -> None:
        self._loop = loop
        self._faults = faults
        self._socket = connected
        self._descriptor = connected.fileno()
        self._peer = name_of(connected.getpeername())
        self._forget = forget
        self._receiver: Receiver | None = None  # Until it was told of the end.
        self._holding: Holding | None = None  # What it holds; None: nobody counts.
        self._state = State.OPEN
        self._reason = ""
        self._queue: deque[Chunk] = deque()
        self._backlog = 0  # Bytes in the queue. None of its chunks is empty.
        self._is_above_high = False  # The receiver is owed a `drained`.
        self._is_paused = False
        self._is_writing = False  # The loop calls when the socket has room.
        self._peer_ended = False
        self._timer: TimerHandle | None = None

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def subject(self) -> str | None:
        return None

    @property
    def backlog(self) -> int:
        return self._backlog

    def count_in(self, unfinished: UnfinishedInput, receiver: ServingReceiver) -> None:
        """Have counted what the receiver holds, from before it is attached."""
        self._holding = Holding(unfinished, receiver, self._evict)

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._state >= State.LINGERING:
            self._tell_closed()
        elif self._state is State.OPEN and not self._is_paused:
            self._loop.add_reader(self._descriptor, self.guard, self._take)

    def pause(self) -> None:
        if self._state is State.OPEN and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._descriptor)
            self._recount()

    def resume(self) -> None:
        if self._state is State.OPEN and self._is_paused:
            self._is_paused = False
            if self._receiver is not None:
                self._loop.add_reader(self._descriptor, self.guard, self._take)
            self._recount()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._state is not State.OPEN:
            return
        idle = not self._backlog
        for chunk in chunks:
            size = chunk.size if isinstance(chunk, FileRange) else len(chunk)
            if size:
                self._queue.append(chunk)
                self._backlog += size
        if idle:
            self._flush()
        if self._backlog > limits.BACKLOG_BYTES_HIGH:
            self._is_above_high = True
        self._recount()

    def close(self, reason: str) -> None:
        if self._state is not State.OPEN:
            return
        self._state = State.CLOSING
        self._reason = reason
        self._loop.remove_reader(self._descriptor)
        self._timer = self._loop.call_later(LINGER_SECONDS, self._drop)
        if not self._backlog:
            self._shut()

    def abort(self, reason: str) -> None:
        if self._state is State.OPEN:
            self._reason = reason
        self._drop()

    # Input.

    def _take(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        for _ in range(READS_PER_WAKE_MAX):
            view = receiver.writable()
            room = len(view)
            try:
                size = self._socket.recv_into(view)
            except BlockingIOError:
                return
            except OSError as error:
                self.abort(words(error))
                return
            if not size:
                self._peer_ended = True
                self.close("closed by peer")
                return
            del view  # The receiver may want to resize what is behind it.
            receiver.received(size)
            if self._holding is not None:
                self._holding.received()
            if size < room or self._is_paused or self._state is not State.OPEN:
                return

    def _recount(self) -> None:
        """The receiver may have dealt with something, or goes on to wait for the rest."""
        if self._holding is not None and self._holding.held.size:
            self._holding.changed()

    def _evict(self, receiver: ServingReceiver, reason: str) -> None:
        self.guard(receiver.refuse, reason)
        if self._backlog:  # Nobody reads it, and until somebody did, the input would be held.
            self.abort(reason)

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except PeerError as error:
            logger.warning("%s: closed: %s", self._peer, error)
            self.close(str(error))
        except Exception as error:
            self._faults.caught(f"{self._peer}: the connection is closed", error)
            self.abort("internal error")

    # Output.

    def _flush(self) -> None:
        """Give the system what it takes now, and have the loop call for the rest."""
        before = self._backlog
        try:
            for _ in range(SENDS_PER_WAKE_MAX):
                if not self._backlog or before - self._backlog >= SENT_PER_WAKE_BYTES_MAX:
                    break
                self._send_some()
        except BlockingIOError:
            pass
        except OSError as error:
            if not isinstance(error, ConnectionError | TimeoutError):
                logger.warning("%s: closed: %s", self._peer, error)
            self.abort(words(error))
            return
        if self._is_writing != bool(self._backlog):
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._loop.add_writer(self._descriptor, self.guard, self._writable)
            else:
                self._loop.remove_writer(self._descriptor)

    def _writable(self) -> None:
        self._flush()
        if self._state is State.CLOSING and not self._backlog:
            self._shut()
        elif self._is_above_high and self._backlog <= BACKLOG_BYTES_LOW:
            self._is_above_high = False
            if self._receiver is not None:
                self._receiver.drained()

    def _send_some(self) -> None:
        """Raises BlockingIOError when the system takes no more."""
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
        self._backlog -= sent
        if sent == size:
            self._queue.popleft()
            return
        self._queue[0] = FileRange(file, position + sent, size - sent)
        if sent < SENT_PER_WAKE_BYTES_MAX:
            raise BlockingIOError  # It would say so itself, when asked again.

    def _send_buffers(self) -> None:
        """Up to the next range that goes by itself, in one call."""
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
            self._backlog -= sent
            if sent < size:
                self._put_back(buffers, size - sent)
        if sent < size:
            raise BlockingIOError

    def _put_back(self, buffers: Sequence[Buffer], size: int) -> None:
        """The last `size` bytes of the buffers go to the front of the queue again."""
        for buffer in reversed(buffers):
            if size <= len(buffer):
                self._queue.appendleft(memoryview(buffer)[len(buffer) - size :])
                return
            self._queue.appendleft(buffer)
            size -= len(buffer)

    # The end.

    def _shut(self) -> None:
        """Everything is sent. Say so, and wait for the other side to say the same."""
        if self._peer_ended:
            self._drop()
            return
        self._state = State.LINGERING
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop()
            return
        self._loop.add_reader(self._descriptor, self._discard, bytearray(64 * limits.KIB))
        self._tell_closed()

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
        if self._state is State.GONE:
            return
        self._state = State.GONE
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._socket.close()
        self._queue.clear()
        self._backlog = 0
        self._forget(self)
        self._tell_closed()

    def _tell_closed(self) -> None:
        """From the loop, so that nobody hears of the end in the middle of its own call."""
        receiver, self._receiver = self._receiver, None
        if self._holding is not None:
            self._holding.end()
        if receiver is not None:
            logger.debug("%s: gone: %s", self._peer, self._reason)
            self._loop.call_soon(self.guard, receiver.closed, self._reason)


def name_of(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _by_sendfile(chunk: FileRange) -> bool:
    return chunk.size >= SENDFILE_BYTES_MIN and chunk.file.fileno() is not None


def read_range(chunk: FileRange, bytes_max: int = READ_BYTES_MAX) -> tuple[bytes, FileRange | None]:
    """The first bytes of a range, and the range of the others."""
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
