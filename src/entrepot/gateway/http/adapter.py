"""One HTTP client's connection: what the pump needs to know of HTTP.

A request is handled when the one before it is answered. What has to wait is a task that ends
with the connection. After input that is not a request, or an internal error, the client gets an
error as the last answer, and the connection is closed.

Bodies count as unfinished input from their first byte until they are answered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any, NamedTuple

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.faults import Faults
from entrepot.core.ports import (
    NOTHING_UNFINISHED,
    Buffer,
    Clock,
    Link,
    ServingReceiver,
    Unfinished,
)
from entrepot.gateway.front import Front
from entrepot.gateway.pump import Pump
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError, Request, RequestReader
from entrepot.wire.http.response import CONTINUE, Response, encode

log = logging.getLogger("entrepot.http")

_CHECK_S = http_limits.CHECK_MS / 1_000

Handle = Callable[[Request, str], Response | Awaitable[Response]]
"""Answers a request; the text is the client's address. An HttpError becomes its status."""


class AtOnce:
    """An answer that is made without a task: see `gateway.begun` for what it must not use."""

    __slots__ = ("work",)

    def __init__(self, work: Coroutine[Any, Any, Response]) -> None:
        self.work = work

    def __await__(self) -> Generator[Any, Any, Response]:
        return self.work.__await__()


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A request that ends the speaking of HTTP: what to answer, and who gets the link then. It
    changes the protocol, or asks for a stream."""

    answer: Response
    attach: Callable[[Link], ServingReceiver]


class Upgrades(NamedTuple):
    """What a client may change the protocol to, and the front that is told."""

    accept: Callable[[Request, str], Upgrade | Response | None]
    front: Front


class HttpAdapter(Pump[Request]):
    def __init__(
        self,
        link: Link,
        handle: Handle,
        clock: Clock,
        faults: Faults,
        body_bytes_max: int = http_limits.BODY_BYTES_MAX,
        upgrades: Upgrades | None = None,
    ) -> None:
        self._reader = RequestReader(body_bytes_max)
        super().__init__(link, self._reader, self._serve, clock, faults)
        self._handle = handle
        self._upgrades = upgrades
        self._peer_host = link.peer.rpartition(":")[0].strip("[]")
        self._handled: Request | None = None  # The request whose answer is awaited.
        self._out: list[Buffer] = []  # Answers of this turn.
        self._begun = 0  # How many requests have been started.
        self._heard_s = self._begun_s = self._loop.time()
        self._timer = self._loop.call_later(_CHECK_S, link.guard, self._check_time)

    # --- Receiver

    def received(self, size: int) -> None:
        was_amid = self._reader.is_amid
        whole = self._reader.received(size)
        self._heard_s = self._loop.time()
        if whole or not was_amid:
            self._begun_s = self._heard_s
        self._events.extend(whole)
        self.work()

    def closed(self, reason: str) -> None:
        super().closed(reason)
        self._timer.cancel()
        self.cancel()
        self._reader.forget()
        self._handled = None
        log.debug("%s: %s", self.link.peer, reason)

    def unfinished(self) -> Unfinished:
        partial = self._reader.unfinished_bytes
        if not partial and not self._events and self._handled is None:
            return NOTHING_UNFINISHED
        waiting = sum(len(request.body) for request in self._events)
        handled = 0 if self._handled is None else len(self._handled.body)
        awaits_rest = not self._events and self._handled is None and not self.is_paused
        return Unfinished(partial + waiting + handled, self._begun, awaits_rest)

    def refuse(self, reason: str) -> None:
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self.link.peer, reason)
        # While a request is handled, the client would take the refusal for its answer.
        if self._handled is None:
            self._put(refusal(HttpError(503, reason)), None, keeps_alive=False)
        self._close(reason)

    # --- serving

    def may_serve(self) -> bool:
        return self.link.backlog <= limits.BACKLOG_BYTES_HIGH

    def _serve(self, request: Request) -> Awaitable[None] | None:
        self._begun += 1
        answer: Response | Upgrade | Awaitable[Response] | None = None
        try:
            if self._upgrades is not None:
                answer = self._upgrades.accept(request, self._peer_host)
            if isinstance(answer, Upgrade):
                self._upgrade(request, answer, self._upgrades)
                return None
            if answer is None:
                answer = self._handle(request, self._peer_host)
        except HttpError as error:
            answer = refusal(error)
        if not isinstance(answer, Response):
            self._handled = request
            if isinstance(answer, AtOnce):
                self.begin(self._answer_later(request, answer.work))
                return None
            return self._answer_later(request, answer)
        self._answer(request, answer)
        return None

    def _upgrade(self, request: Request, accepted: Upgrade, upgrades: Upgrades | None) -> None:
        """Answer the last request, and hand the link over. Raises HttpError."""
        assert upgrades is not None
        if self._events or self._reader.is_amid or self._reader.failure is not None:
            raise HttpError(400, "nothing may follow a request to upgrade before it is answered")
        self._put(accepted.answer, request, keeps_alive=not accepted.answer.is_stream)
        self.flush()
        self.pause(False)
        self._is_open = False
        self._timer.cancel()
        upgrades.front.receiver = accepted.attach(self.link)

    async def _answer_later(self, request: Request, handling: Awaitable[Response]) -> None:
        try:
            answer = await handling
        except HttpError as error:
            answer = refusal(error)
        finally:
            self._handled = None
        if self._is_open:
            self._answer(request, answer)

    def failed(self, error: PeerError | None) -> None:
        self._end(error if isinstance(error, HttpError) else HttpError(500, "internal error"))

    def _answer(self, request: Request, answer: Response) -> None:
        self._put(answer, request, keeps_alive=request.keeps_alive)
        if not request.keeps_alive:
            self._close("the last request is answered")

    def _end(self, error: HttpError) -> None:
        """Answer with an error and close the connection."""
        self._put(refusal(error), None, keeps_alive=False)
        self._close(str(error))

    def _put(self, answer: Response, request: Request | None, *, keeps_alive: bool) -> None:
        """Add an answer to those of this turn."""
        date = _date(self._clock.now_ms() // 1_000)
        chunks = encode(answer, request, date=date, keeps_alive=keeps_alive)
        self._out += chunks
        self._turn_bytes += sum(map(len, chunks))

    def _close(self, reason: str) -> None:
        self._is_open = False
        self._events.clear()
        self.flush()
        self.link.close(reason)

    # --- turns

    def output(self) -> list[Buffer]:
        is_idle = not self._events and self._handled is None
        failure = self._reader.failure
        if self._is_open and failure is not None and is_idle:
            self._end(failure)
        if self._reader.awaits_continue and is_idle:
            self._reader.awaits_continue = False
            self._out.append(CONTINUE)
        out, self._out = self._out, []
        return out

    def pace(self) -> None:
        """Stop reading from a client that does not wait for its answers."""
        if not self._is_open:
            return  # Or it is somebody else's link now.
        self.pause(
            len(self._events) > http_limits.PIPELINED_MAX
            or self.link.backlog > limits.BACKLOG_BYTES_HIGH
        )

    def _check_time(self) -> None:
        """Close a connection that is idle, or whose request takes too long to arrive."""
        now_s = self._loop.time()
        self._timer = self._loop.call_later(_CHECK_S, self.link.guard, self._check_time)
        if self._handled is not None:
            return
        if now_s - self._heard_s >= http_limits.IDLE_MS_MAX / 1_000:
            self._close("idle")
        elif self._reader.is_amid and now_s - self._begun_s >= http_limits.REQUEST_MS_MAX / 1_000:
            self._reader.failure = HttpError(408, "the request took too long")
            self.work()


@lru_cache(maxsize=2)  # Asked for every answer.
def _date(time_s: int) -> str:
    return formatdate(time_s, usegmt=True)


def refusal(error: HttpError) -> Response:
    """Return the answer to an error, in plain text. An application with a format of its own
    catches the error before."""
    return Response(error.status, f"{error}\n".encode(), (("Content-Type", "text/plain"),))
