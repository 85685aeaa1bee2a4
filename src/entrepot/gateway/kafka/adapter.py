"""One Kafka client's connection: requests in, answers out in the same order.

A request is served when the one before it has been, as Kafka does, with one
exception that makes durable writes fast: a Produce is served once it is appended,
and only its answer waits for the commit. All answers that are ready go out in one
write per read, or per turn: a client that asks for much at once gets it in turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from entrepot.core import limits
from entrepot.core.errors import MalformedFrame, PeerError
from entrepot.core.ports import NOTHING_UNFINISHED, Chunk, Link, Unfinished
from entrepot.gateway.kafka import api_versions, apis
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.login import Login
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.frames import (
    FrameBuffer,
    RequestHeader,
    read_request_header,
    response_header,
    size_prefix,
)

log = logging.getLogger("entrepot.kafka")

TURN_BYTES_MAX = 1 * limits.MIB  # Answers made at once; then the others have their turn.

_WAITING_BYTES_MAX = 8 * limits.MIB


class Answer:
    """The place of an answer among those of its connection."""

    __slots__ = ("_adapter", "_header", "chunks", "guard")

    def __init__(self, adapter: KafkaAdapter, header: RequestHeader) -> None:
        self._adapter = adapter
        self.guard = adapter.guard  # For what runs later on behalf of the request.
        self._header = header
        self.chunks: list[Chunk] | None = None  # None: not known yet.

    def send(self, body: Sequence[Chunk], size: int) -> None:
        header = self._header
        head = response_header(header.api_key, header.version, header.correlation_id)
        self.chunks = [size_prefix(len(head) + size) + head, *body]
        self._adapter.answered(size)

    def omit(self) -> None:
        """There is none: a Produce with acks=0."""
        self.chunks = []
        self._adapter.answered()

    def refuse(self, reason: str) -> None:
        """The protocol has no answer but a closed connection."""
        self._adapter.refuse(reason)


class KafkaAdapter:
    """Receiver of one link."""

    def __init__(self, link: Link, context: Context) -> None:
        self._link = link
        self.guard = link.guard
        self._context = context
        self._inbox = FrameBuffer()
        self._deadline: asyncio.TimerHandle | None = None  # To say who it is.
        self._unmute: asyncio.TimerHandle | None = None  # The end of a wait for its quota.
        self._requests: deque[memoryview] = deque()  # Whole, waiting to be served.
        self._begun = 0  # How many were served before those.
        self._answers: deque[Answer] = deque()  # Of requests being served, oldest first.
        self._serving: asyncio.Future[Any] | None = None  # What the next request waits for.
        self._working = False  # In _work, which flushes at its end.
        self._woken = False  # _work is about to be called.
        self._turn_bytes = 0  # Of answers made in this turn of _work.
        self._paused = False
        self._is_open = True
        self._login = context.login  # Until it is through.
        if self._login is not None:
            self._inbox = FrameBuffer(limits.LOGIN_FRAME_BYTES_MAX)
            self._deadline = asyncio.get_running_loop().call_later(
                limits.LOGIN_MS_MAX / 1_000, self.guard, self.refuse, "no login in time"
            )

    # --- Receiver

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        self._requests.extend(self._inbox.received(size))
        self._work()

    def drained(self) -> None:
        self._work()

    def closed(self, reason: str) -> None:
        self._is_open = False
        self._inbox = FrameBuffer()  # Not to hold what came until this is collected as garbage.
        self._requests.clear()
        self._answers.clear()
        if self._serving is not None:
            # Not before it has begun, or what it is to wait for would never be awaited.
            asyncio.get_running_loop().call_later(0, self._serving.cancel)
        for timer in (self._deadline, self._unmute):
            if timer is not None:
                timer.cancel()
        for end in list(self._context.at_close.values()):
            self.guard(end)
        log.debug("%s: %s", self._link.peer, reason)

    def unfinished(self) -> Unfinished:
        partial = self._inbox.unfinished_bytes
        if not partial and not self._requests:
            return NOTHING_UNFINISHED
        awaits_rest = not self._requests and not self._paused
        return Unfinished(partial + sum(map(len, self._requests)), self._begun, awaits_rest)

    # --- serving

    def _work(self) -> None:
        """Serve what waits. Called by the net, by a commit and by a finished request alike."""
        self._working, self._woken, self._turn_bytes = True, False, 0
        if self._login is not None:
            self._settle(self._login)
        try:
            clock = self._context.clock
            until_s = clock.monotonic() + limits.TURN_MS / 1_000
            while self._turn_bytes < TURN_BYTES_MAX and self._may_serve():
                self._serve(self._requests.popleft())
                if clock.monotonic() >= until_s:
                    break
        except PeerError as error:
            self.refuse(str(error))
        finally:
            self._working = False
        self._flush()
        self._pace()
        if self._may_serve():
            self._wake()

    def _may_serve(self) -> bool:
        return (
            bool(self._requests)
            and self._is_open
            and self._serving is None
            and not self._is_muted()
            and len(self._answers) < limits.RESPONSES_WAITING_MAX
            and self._link.backlog <= limits.BACKLOG_BYTES_HIGH
        )

    def _is_muted(self) -> bool:
        """Whether the client has to wait, having used more than its quota."""
        until_s = self._context.muted_until_s
        if not until_s:
            return False
        left_s = until_s - self._context.clock.monotonic()
        if left_s > 0 and self._unmute is None:
            loop = asyncio.get_running_loop()
            self._unmute = loop.call_later(left_s, self.guard, self._heard_again)
        elif left_s <= 0:
            self._context.muted_until_s = 0.0
        return left_s > 0

    def _heard_again(self) -> None:
        self._unmute = None
        self._work()

    def _serve(self, frame: memoryview) -> None:
        self._begun += 1
        header, position = read_request_header(frame)
        if self._login is not None and not self._login.serves(header.api_key):
            raise PeerError(f"API {header.api_key} before the login is done")
        answer = Answer(self, header)
        self._answers.append(answer)
        if self._is_first(header):
            self._serve_later(self._load_and_serve(header, frame, position, answer))
            return
        handler = apis.find(header.api_key, header.version)
        if handler is None:
            if header.api_key != Api.API_VERSIONS:
                raise MalformedFrame(f"API {header.api_key} version {header.version} is not served")
            answer.chunks = api_versions.unsupported(header.correlation_id)
            return
        result = handler(self._context, header, frame, position, answer)
        if result is not None:
            self._serve_later(result)
        elif self._login is not None:
            self._settle(self._login)

    def _serve_later(self, work: Awaitable[None]) -> None:
        self._serving = asyncio.ensure_future(work)
        self._serving.add_done_callback(partial(self.guard, self._served))

    def _is_first(self, header: RequestHeader) -> bool:
        """Whether nobody asked for this before, and it takes long to load."""
        asked_for, wanted = self._context.asked_for, (header.api_key, header.version)
        if asked_for is None or wanted in asked_for or not apis.is_heavy(*wanted):
            return False
        asked_for[wanted] = None
        return True

    async def _load_and_serve(
        self, header: RequestHeader, frame: memoryview, position: int, answer: Answer
    ) -> None:
        """In a turn of its own: others may ask for something for the first time, too."""
        await self._context.broker.turns.next()
        handler = apis.find(header.api_key, header.version)
        assert handler is not None
        result = handler(self._context, header, frame, position, answer)
        if result is not None:
            await result

    def _settle(self, login: Login) -> None:
        """A stranger that failed is let go; one that has a name by now is let in."""
        if login.failure:
            self.refuse(login.failure)
        elif self._context.login is None:
            assert self._deadline is not None
            self._deadline.cancel()
            self._login = self._deadline = None
            self._inbox.widen()

    def _served(self, done: asyncio.Future[Any]) -> None:
        self._serving = None
        if done.cancelled() or not self._is_open:
            return
        error = done.exception()
        if isinstance(error, PeerError):
            self.refuse(str(error))
            return
        if error is not None:
            self._context.broker.faults.caught(f"{self._link.peer}: a request failed", error)
            self.refuse("internal error")
            return
        self._work()

    def answered(self, size: int = 0) -> None:
        self._turn_bytes += size
        if not self._working:
            self._wake()

    def _wake(self) -> None:
        """One write for all that becomes ready in a tick, as when a commit is through."""
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self.guard, self._work)

    def refuse(self, reason: str) -> None:
        """End the connection, after the answers that are ready."""
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self._link.peer, reason)
        self._is_open = False
        self._flush()
        self._link.close(reason)

    def _flush(self) -> None:
        """Send the answers that are ready, up to the first that is not."""
        ready: list[Chunk] = []
        while self._answers:
            chunks = self._answers[0].chunks
            if chunks is None:
                break
            ready += chunks
            self._answers.popleft()
        if ready:
            self._link.send(ready)

    def _pace(self) -> None:
        """Stop reading from a client that does not wait for its answers."""
        if not self._requests and not self._link.backlog and not self._paused:
            return
        waiting = (
            len(self._requests) > limits.FRAMES_WAITING_MAX
            or sum(map(len, self._requests)) > _WAITING_BYTES_MAX
            or self._link.backlog > limits.BACKLOG_BYTES_HIGH
            or (self._login is not None and bool(self._requests))  # A stranger may not hurry.
        )
        if waiting != self._paused:
            self._paused = waiting
            if waiting:
                self._link.pause()
            else:
                self._link.resume()
