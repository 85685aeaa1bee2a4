"""One HTTP client's connection: requests in, answers out in the same order.

A request is handled when the one before it is answered. What can be answered at once goes
out in one write per turn; what waits is a task that ends with the connection. After a request
that is none, or a mistake of ours, there is an answer and then no more: the connection ends.

Bodies are held from their first byte until they are answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import partial

from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.ports import NOTHING_UNFINISHED, Buffer, Clock, Link, Unfinished
from entrepot.wire.http.request import HttpError, Request, RequestReader
from entrepot.wire.http.response import CONTINUE, Response, encode

log = logging.getLogger("entrepot.http")

TURN_BYTES_MAX = 1 * limits.MIB  # Answers made at once; then the others have their turn.
_CHECK_S = limits.HTTP_CHECK_MS / 1_000

Handle = Callable[[Request, str], Response | Awaitable[Response]]
"""Answers a request that came from this address. An HttpError becomes its status."""


class HttpAdapter:
    """Receiver of one link."""

    def __init__(self, link: Link, handle: Handle, clock: Clock, faults: Faults) -> None:
        self._link = link
        self._faults = faults
        self._handle = handle
        self._clock = clock
        self._peer_host = link.peer.rpartition(":")[0].strip("[]")
        self._reader = RequestReader()
        self._requests: deque[Request] = deque()  # Whole, waiting for their turn.
        self._served: Request | None = None  # What the next one waits for,
        self._serving: asyncio.Future[Response] | None = None  # and its answer to be.
        self._out: list[Buffer] = []  # Answers of this turn,
        self._out_bytes = 0  # and their size.
        self._begun = 0  # How many requests were handled, or are.
        self._is_paused = False
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._begun_s = self._loop.time()
        self._timer = self._loop.call_later(_CHECK_S, link.guard, self._check_time)

    # --- Receiver

    def writable(self) -> memoryview:
        return self._reader.writable()

    def received(self, size: int) -> None:
        was_amid = self._reader.is_amid
        whole = self._reader.received(size)
        self._heard_s = self._loop.time()
        if whole or not was_amid:
            self._begun_s = self._heard_s
        self._requests.extend(whole)
        self._work()

    def drained(self) -> None:
        self._work()

    def closed(self, reason: str) -> None:
        self._is_open = False
        self._requests.clear()
        self._timer.cancel()
        if self._serving is not None:
            self._serving.cancel()
        self._reader.forget()
        self._served = None
        log.debug("%s: %s", self._link.peer, reason)

    def unfinished(self) -> Unfinished:
        partial = self._reader.unfinished_bytes
        if not partial and not self._requests and self._served is None:
            return NOTHING_UNFINISHED
        waiting = sum(len(request.body) for request in self._requests)
        served = 0 if self._served is None else len(self._served.body)
        awaits_rest = not self._requests and self._served is None and not self._is_paused
        return Unfinished(partial + waiting + served, self._begun, awaits_rest)

    def refuse(self, reason: str) -> None:
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self._link.peer, reason)
        if self._served is None:  # Otherwise it would be taken for the answer to that.
            self._put(refusal(HttpError(503, reason)), None, keeps_alive=False)
        self._close(reason)

    # --- serving

    def _work(self) -> None:
        while self._may_serve():
            self._serve(self._requests.popleft())
        failure = self._reader.failure
        if self._is_open and failure is not None and not self._requests and self._served is None:
            self._end(failure)
        self._flush()
        self._pace()
        if self._may_serve():
            self._loop.call_soon(self._link.guard, self._work)

    def _may_serve(self) -> bool:
        return (
            bool(self._requests)
            and self._is_open
            and self._served is None
            and self._out_bytes < TURN_BYTES_MAX
            and self._link.backlog <= limits.BACKLOG_BYTES_HIGH
        )

    def _serve(self, request: Request) -> None:
        self._begun += 1
        try:
            answer = self._handle(request, self._peer_host)
        except HttpError as error:
            answer = refusal(error)
        if isinstance(answer, Response):
            self._answer(request, answer)
        else:
            self._served = request
            self._serving = asyncio.ensure_future(answer)
            self._serving.add_done_callback(partial(self._link.guard, self._answered))

    def _answered(self, done: asyncio.Future[Response]) -> None:
        request, self._served, self._serving = self._served, None, None
        if done.cancelled() or not self._is_open:
            return
        assert request is not None
        error = done.exception()
        if error is None:
            self._answer(request, done.result())
        elif isinstance(error, HttpError):
            self._answer(request, refusal(error))
        else:
            self._faults.caught(f"{self._link.peer}: a request failed", error)
            self._end(HttpError(500, "internal error"))
        self._work()

    def _answer(self, request: Request, answer: Response) -> None:
        self._put(answer, request, keeps_alive=request.keeps_alive)
        if not request.keeps_alive:
            self._close("the last request is answered")

    def _end(self, error: HttpError) -> None:
        self._put(refusal(error), None, keeps_alive=False)
        self._close(str(error))

    def _put(self, answer: Response, request: Request | None, *, keeps_alive: bool) -> None:
        date = formatdate(self._clock.now_ms() // 1_000, usegmt=True)
        chunks = encode(answer, request, date=date, keeps_alive=keeps_alive)
        self._out += chunks
        self._out_bytes += sum(map(len, chunks))

    def _flush(self) -> None:
        if self._reader.awaits_continue and not self._requests and self._served is None:
            self._reader.awaits_continue = False
            self._out.append(CONTINUE)
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self._link.send(out)

    def _close(self, reason: str) -> None:
        self._is_open = False
        self._requests.clear()
        self._flush()
        self._link.close(reason)

    # --- bounds

    def _pace(self) -> None:
        """Stop reading from a client that does not wait for its answers."""
        is_much = (
            len(self._requests) > limits.HTTP_PIPELINED_MAX
            or self._link.backlog > limits.BACKLOG_BYTES_HIGH
        )
        if is_much != self._is_paused:
            self._is_paused = is_much
            if is_much:
                self._link.pause()
            else:
                self._link.resume()

    def _check_time(self) -> None:
        now_s = self._loop.time()
        self._timer = self._loop.call_later(_CHECK_S, self._link.guard, self._check_time)
        if self._served is not None:
            return
        if now_s - self._heard_s >= limits.HTTP_IDLE_MS_MAX / 1_000:
            self._close("idle")
        elif self._reader.is_amid and now_s - self._begun_s >= limits.HTTP_REQUEST_MS_MAX / 1_000:
            self._reader.failure = HttpError(408, "the request took too long")
            self._work()


def refusal(error: HttpError) -> Response:
    """In plain text. Who has a better form catches the error before."""
    return Response(error.status, f"{error}\n".encode(), (("Content-Type", "text/plain"),))
