"""Serves one connection of a Kafka client: decodes requests, runs their handlers, sends answers.

Answers are sent in the order of their requests. As in Kafka, a request is served after the one
before it is done. To make durable writes fast, a Produce counts as done once its batches are
appended; only its answer waits for the commit. If an answer becomes ready later and no other is
waiting, it is sent at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial

from entrepot.broker.sessions import ConnectionFacts
from entrepot.core import limits
from entrepot.core.errors import MalformedFrame, PeerError
from entrepot.core.ports import NOTHING_UNFINISHED, Chunk, Link, Unfinished
from entrepot.gateway.kafka import api_versions, apis
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.login import Login
from entrepot.gateway.kafka.serving import Serve
from entrepot.gateway.pump import Cancellable, Pump
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.frames import (
    API_VERSION_BYTES,
    FrameBuffer,
    KnownHeader,
    RequestHeader,
    read_request_header,
    response_start,
)

log = logging.getLogger("entrepot.kafka")

_WAITING_BYTES_MAX = 8 * limits.MIB
_JOINED_BYTES_MAX = 4 * limits.KIB  # A short answer is one buffer, which is faster to send.


class _Nothing:
    """What a request waits for whose turn has not come: there is nothing to cancel."""

    def cancel(self) -> None:
        pass


_NOTHING = _Nothing()


class Answer:
    """The answer to one request. Answers go out in the order of their requests."""

    __slots__ = ("_adapter", "_header", "chunks", "guard")

    def __init__(self, adapter: KafkaAdapter, header: RequestHeader) -> None:
        self._adapter = adapter
        self.guard = adapter.guard  # For what runs later on behalf of the request.
        self._header = header
        self.chunks: list[Chunk] | None = None  # None means: it is not ready.

    def send(self, body: Sequence[Chunk], size: int) -> None:
        api_key, version, correlation_id, _ = self._header
        start = response_start(api_key, version, correlation_id, size)
        first = body[0] if body else b""
        if isinstance(first, bytes) and len(first) < _JOINED_BYTES_MAX:
            self.chunks = [start + first, *body[1:]] if len(body) > 1 else [start + first]
        else:
            self.chunks = [start, *body]
        self._adapter.answered(size)

    def hold(self, work: Cancellable) -> None:
        """Let the next request wait until `go_on`. The work is cancelled if the client is gone."""
        self._adapter.hold(work)

    def go_on(self) -> None:
        self._adapter.go_on()

    def omit(self) -> None:
        """Send no answer: that of a Produce with acks=0."""
        self.chunks = []
        self._adapter.answered()

    def refuse(self, reason: str) -> None:
        """Close the connection, where the protocol has no other answer."""
        self._adapter.refuse(reason)


class KafkaAdapter(Pump[memoryview]):
    def __init__(self, link: Link, context: Context) -> None:
        self._login = context.login  # None once the login is done.
        self._inbox = FrameBuffer()
        if self._login is not None:
            self._inbox = FrameBuffer(limits.LOGIN_FRAME_BYTES_MAX)
        super().__init__(link, self._inbox, self._serve, context.clock, context.broker.faults)
        self._context = context
        self._deadline: asyncio.TimerHandle | None = None  # Of the login.
        self._unmute: asyncio.TimerHandle | None = None  # Ends the throttling by a quota.
        self._connected_ms = context.clock.now_ms()
        self._client_id: str | None = None  # As in the first request.
        self._mechanism = ""  # Of the login. Empty means: there was none.
        # What this client's requests have in common, and what serves them: by API and version, as
        # these are written. Empty until the login is done; never those that take turns.
        self._known: dict[bytes, tuple[KnownHeader, Serve]] = {}
        self._begun = 0  # Requests that have been begun; those in the queue come after them.
        self._answers: deque[Answer] = deque()  # Of requests being served, oldest first.
        if self._login is not None:
            self._deadline = self._loop.call_later(
                limits.LOGIN_MS_MAX / 1_000, self.guard, self.refuse, "no login in time"
            )
        else:
            context.broker.topic_sessions.add(self)

    # --- Receiver

    def closed(self, reason: str) -> None:
        super().closed(reason)
        self._context.broker.topic_sessions.remove(self)
        self._inbox = FrameBuffer()  # Frees the memory before this object is garbage collected.
        self.use(self._inbox)
        self._answers.clear()
        self._known.clear()  # What serves them may refer to the context, and that to this.
        self.cancel()
        if self._context.last_fetch is not None:
            self._context.last_fetch.close()
            self._context.last_fetch = None
        for timer in (self._deadline, self._unmute):
            if timer is not None:
                timer.cancel()
        for end in list(self._context.at_close.values()):
            self.guard(end)
        log.debug("%s: %s", self.link.peer, reason)

    def unfinished(self) -> Unfinished:
        partial = self._inbox.unfinished_bytes
        if not partial and not self._events:
            return NOTHING_UNFINISHED
        awaits_rest = not self._events and not self.is_paused
        return Unfinished(partial + sum(map(len, self._events)), self._begun, awaits_rest)

    # --- Session

    def facts(self) -> ConnectionFacts:
        context, peer = self._context, self.link.peer
        product, version = context.software
        told = {"client_id": self._client_id, "product": product, "version": version}
        return ConnectionFacts(
            name=f"{peer} -> {context.host}:{context.port}",
            peer=peer,
            user=context.principal.user,
            vhost=context.broker.vhosts.default.name,
            protocol="Kafka",
            connected_ms=self._connected_ms,
            state="flow" if self.is_paused else "running",
            is_tls=context.is_tls,
            mechanism=self._mechanism,
            client_properties={name: text for name, text in told.items() if text},
            owner=self,
        )

    def close(self, reason: str) -> None:
        """Close the connection. Kafka has no words for why; its clients connect again."""
        self.guard(self.refuse, reason)

    # --- turns

    def work(self) -> None:
        if self._login is not None:
            self._settle(self._login)
        super().work()

    def may_serve(self) -> bool:
        return (
            (not self._context.muted_until_s or not self._is_muted())
            and len(self._answers) < limits.RESPONSES_WAITING_MAX
            and self.link.backlog <= limits.BACKLOG_BYTES_HIGH
        )

    def output(self) -> list[Chunk]:
        """Return the answers that are ready, up to the first that is not."""
        ready: list[Chunk] = []
        while self._answers:
            chunks = self._answers[0].chunks
            if chunks is None:
                break
            ready += chunks
            # A fetch that may be repeated keeps its answer, which must not keep a file open.
            self._answers.popleft().chunks = []
        return ready

    def pace(self) -> None:
        """Stop reading from a client that does not wait for its answers."""
        requests = self._events
        if not requests and not self.link.backlog and not self.is_paused:
            return
        self.pause(
            len(requests) > limits.FRAMES_WAITING_MAX
            or sum(map(len, requests)) > _WAITING_BYTES_MAX
            or self.link.backlog > limits.BACKLOG_BYTES_HIGH
            or (self._login is not None and bool(requests))  # Before the login, one at a time.
        )

    def failed(self, error: PeerError | None) -> None:
        self.refuse("internal error" if error is None else str(error))

    def _is_muted(self) -> bool:
        """Return whether the client has to wait, having used more than its quota."""
        left_s = self._context.muted_until_s - self._context.clock.monotonic()
        if left_s > 0 and self._unmute is None:
            self._unmute = self._loop.call_later(left_s, self.guard, self._unmuted)
        elif left_s <= 0:
            self._context.muted_until_s = 0.0
        return left_s > 0

    def _unmuted(self) -> None:
        self._unmute = None
        self.work()

    # --- serving

    def _serve(self, frame: memoryview) -> Awaitable[None] | None:
        self._begun += 1
        known = self._known.get(bytes(frame[:API_VERSION_BYTES]))
        if known is not None:
            head, handler = known
            same = head.read(frame)
            if same is not None:
                answer = Answer(self, same)
                self._answers.append(answer)
                return handler(self._context, same, frame, head.end, answer)
        return self._serve_unknown(frame)

    def _serve_unknown(self, frame: memoryview) -> Awaitable[None] | None:
        """Serve a request that is the first of its API and version, or has another header."""
        header, position = read_request_header(frame)
        if self._login is not None and not self._login.serves(header.api_key):
            raise PeerError(f"API {header.api_key} before the login is done")
        if self._begun == 1:
            self._client_id = header.client_id
        answer = Answer(self, header)
        self._answers.append(answer)
        if self._is_first(header):
            return self._load_and_serve(header, frame, position, answer)
        handler = apis.find(header.api_key, header.version)
        if handler is None:
            if header.api_key != Api.API_VERSIONS:
                raise MalformedFrame(f"API {header.api_key} version {header.version} is not served")
            answer.chunks = api_versions.unsupported(header.correlation_id)
            return None
        if header.api_key in apis.AWAITED and not self._context.broker.turns.has_room():
            self.hold(_NOTHING)
            later = partial(self._serve_later, handler, header, frame, position, answer)
            self._context.broker.turns.call_soon(partial(self.guard, later))
            return None
        if self._login is None and header.api_key not in apis.AWAITED:
            key = bytes(frame[:API_VERSION_BYTES])
            self._known[key] = KnownHeader(header, frame, position), handler
        result = handler(self._context, header, frame, position, answer)
        if result is None and self._login is not None:
            self._settle(self._login)
        return result

    def _serve_later(
        self,
        handler: Serve,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        answer: Answer,
    ) -> None:
        """Serve a request that has waited because very many came at the same time."""
        if not self._is_open:
            return
        try:
            work = handler(self._context, header, frame, position, answer)
        except PeerError as error:
            self.failed(error)
        else:
            assert work is not None  # It is one of `apis.AWAITED`.
            self.wait_for(work)

    def _is_first(self, header: RequestHeader) -> bool:
        """Return whether this is the first request for a handler that takes long to import."""
        asked_for, wanted = self._context.asked_for, (header.api_key, header.version)
        if asked_for is None or wanted in asked_for or not apis.is_heavy(*wanted):
            return False
        asked_for[wanted] = None
        return True

    async def _load_and_serve(
        self, header: RequestHeader, frame: memoryview, position: int, answer: Answer
    ) -> None:
        """Import the handler and serve the request, in a turn of its own: other connections may
        cause imports, too."""
        await self._context.broker.turns.next()
        handler = apis.find(header.api_key, header.version)
        assert handler is not None
        result = handler(self._context, header, frame, position, answer)
        if result is not None:
            await result

    def _settle(self, login: Login) -> None:
        """Close the connection if the login failed; serve all requests if it is done."""
        if login.failure:
            self.refuse(login.failure)
        elif self._context.login is None:
            assert self._deadline is not None
            self._deadline.cancel()
            self._login = self._deadline = None
            self._inbox.widen()
            self._mechanism = login.mechanism
            self._context.broker.topic_sessions.add(self)

    def answered(self, size: int = 0) -> None:
        """Send the answer that is ready now, together with others that get ready in this turn."""
        self._turn_bytes += size
        if self._is_working:
            return
        if len(self._answers) == 1:
            self.flush()  # No other answer could go out with it.
            if not self._events and not self.is_paused:
                return
        self.wake()

    def refuse(self, reason: str) -> None:
        """End the connection, after the answers that are ready."""
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self.link.peer, reason)
        self._is_open = False
        self.flush()
        self.link.close(reason)
