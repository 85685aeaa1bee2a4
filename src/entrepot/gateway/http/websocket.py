"""WebSocket on the HTTP port: a link inside a link.

A request to upgrade is answered, and from then on the link's input belongs to a `WebSocketLink`. It
is the receiver of the real link, and a link itself to the adapter of the protocol that is spoken
inside, which cannot tell it from any other: it pauses and resumes it, sees its backlog, and is told
when it is drained or closed.

The adapter may pause in the middle of what was read. The rest is kept, counts as unfinished input,
and is passed on before anything else is read. A read of very many frames, and a peer that asks for
pongs and does not read them, stop the reading as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from entrepot.broker.login import is_loopback
from entrepot.core import limits
from entrepot.core.ports import Buffer, Chunk, FileRange, Link, ServingReceiver, Unfinished
from entrepot.gateway.http.adapter import Upgrade
from entrepot.gateway.http.browser import is_foreign
from entrepot.gateway.http.login import is_addressed_here
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http import target
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.http.response import SWITCHING, Response
from entrepot.wire.http.websocket import FrameStream, answer, head

log = logging.getLogger("entrepot.http")

AREA_BYTES_MIN = 1 * limits.KIB  # The buffer of an idle connection.
AREA_BYTES_MAX = 16 * limits.KIB  # Read at once: a few thousand of the smallest frames.
ANY_ORIGIN = "*"
_PLAIN = ("Content-Type", "text/plain")


@dataclass(frozen=True, slots=True)
class Service:
    """A protocol that is spoken over WebSocket."""

    subprotocols: tuple[str, ...]  # The best one first.
    accept: Callable[[Link], ServingReceiver]
    accepts_text: bool = False


@dataclass(frozen=True, slots=True)
class WebSockets:
    """What is served over WebSocket on one port, by path, and to whose pages."""

    services: Mapping[str, Service]
    # Pages of these origins may connect, besides those from here. See `is_foreign`.
    origins: tuple[str, ...] = ()
    # Whether everybody from this machine is served without a login. A page must not be served
    # that reaches us under a name that its own server has made to lead here.
    trusts_machine: bool = False

    def __call__(self, request: Request, peer_host: str) -> Upgrade | Response | None:
        """Return the answer to a request; None if it is for somebody else. Raises HttpError."""
        path = target.split(request.target).path
        service = self.services.get("/".join(path))
        if service is None:
            return None
        if not self._is_allowed(request, peer_host):
            raise HttpError(403, "a page of another site may not connect")
        version = "HTTP/1.0" if request.is_old else "HTTP/1.1"
        found = answer(request.method, version, request.headers, service.subprotocols)
        if found.status != SWITCHING:
            return Response(found.status, f"{found.text}\n".encode(), (_PLAIN, *found.headers))

        def attach(link: Link) -> ServingReceiver:
            return WebSocketLink(link, service)

        return Upgrade(Response(SWITCHING, headers=found.headers), attach)

    def _is_allowed(self, request: Request, peer_host: str) -> bool:
        origin = request.headers.get("origin", "").lower()
        if ANY_ORIGIN in self.origins or origin in self.origins:
            return True
        if is_foreign(request):
            return False
        is_page_here = not origin or is_addressed_here(request) or not is_loopback(peer_host)
        return is_page_here or not self.trusts_machine


class WebSocketLink:
    """The receiver of a link that speaks WebSocket, and the link of who is inside."""

    __slots__ = (
        "_area",
        "_frames",
        "_has_answered",
        "_inner",
        "_is_clogged",
        "_is_going_on",
        "_is_open",
        "_is_outer_paused",
        "_is_paused",
        "_kept",
        "_kept_bytes",
        "_link",
        "guard",
        "peer",
        "subject",
    )

    def __init__(self, link: Link, service: Service) -> None:
        self._link = link
        self.guard = link.guard
        self.peer = link.peer
        self.subject = link.subject
        # A peer that was not answered yet has not logged in.
        self._frames = FrameStream(
            accepts_text=service.accepts_text, frame_bytes_max=limits.LOGIN_FRAME_BYTES_MAX
        )
        self._has_answered = False
        self._area = bytearray(AREA_BYTES_MIN)
        self._kept: deque[memoryview] = deque()  # Payload that is not passed on yet.
        self._kept_bytes = 0
        self._is_open = True  # Neither side has closed it.
        self._is_paused = False  # By who is inside.
        self._is_clogged = False  # The peer does not read what it is sent.
        self._is_outer_paused = False
        self._is_going_on = False  # A turn is scheduled that passes on what is kept.
        self._inner = service.accept(self)

    # --- Link, for who is inside

    @property
    def backlog(self) -> int:
        return self._link.backlog

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send the chunks as one message."""
        if not self._is_open:
            return
        buffers: list[Buffer] = []
        for chunk in chunks:
            assert not isinstance(chunk, FileRange)
            buffers.append(chunk)
        size = sum(map(len, buffers))
        if not size:
            return
        if not self._has_answered:
            self._has_answered = True
            self._frames.allow(http_limits.WEBSOCKET_FRAME_BYTES_MAX)
        is_text = self._frames.speaks_text and _is_text(buffers)
        self._link.send([head(size, is_text=is_text), *buffers])

    def pause(self) -> None:
        self._is_paused = True
        self._pace()

    def resume(self) -> None:
        self._is_paused = False
        if self._kept:
            self._go_on_later()
        else:
            self._pace()

    def close(self, reason: str) -> None:
        self._end(reason)

    def abort(self, reason: str) -> None:
        self._is_open = False
        self._link.abort(reason)

    # --- Receiver

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        stream = self._frames
        before = stream.frames
        payload = stream.received(bytes(memoryview(self._area)[:size]))
        self._resize(size)
        if payload:
            data = payload[0] if len(payload) == 1 else b"".join(payload)
            self._kept.append(memoryview(data))
            self._kept_bytes += len(data)
            self._pass_on()
        if not self._is_open:
            return
        if not stream.is_over:
            output = stream.take_output()
            if output:
                self._link.send(output)
                self._is_clogged = self._link.backlog > limits.BACKLOG_BYTES_HIGH
        elif not self._kept:  # Otherwise the end comes after what is kept.
            self._end("closed by peer")
            return
        if stream.frames - before > http_limits.WEBSOCKET_FRAMES_MAX:
            self._go_on_later()
        self._pace()

    def drained(self) -> None:
        self._is_clogged = False
        self._pace()
        self._inner.drained()

    def closed(self, reason: str) -> None:
        self._is_open = False
        self._forget()
        self._inner.closed(reason)

    # --- ServingReceiver

    def unfinished(self) -> Unfinished:
        inner = self._inner.unfinished()
        partial = self._frames.unfinished_bytes
        if not partial and not self._kept_bytes:
            return inner
        number = inner.number if inner.size else self._frames.frames
        awaits_rest = not self._kept and not self._is_outer_paused
        return Unfinished(inner.size + partial + self._kept_bytes, number, awaits_rest)

    def refuse(self, reason: str) -> None:
        self._inner.refuse(reason)

    # --- both

    def _pass_on(self) -> None:
        """Pass on what is kept, until who is inside pauses or others should get their turn."""
        inner, kept = self._inner, self._kept
        left = http_limits.WEBSOCKET_BYTES_MAX
        while kept and left > 0 and self._is_open and not self._is_paused:
            data = kept[0]
            area = inner.writable()
            size = min(len(area), len(data))
            area[:size] = data[:size]
            del area  # Who is inside may want to resize what is behind it.
            if size < len(data):
                kept[0] = data[size:]
            else:
                kept.popleft()
            self._kept_bytes -= size
            left -= size
            inner.received(size)
        if kept and not self._is_paused:
            self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            asyncio.get_running_loop().call_soon(self.guard, self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if not self._is_open:
            return
        self._pass_on()
        if self._frames.is_over and not self._kept:
            self._end("closed by peer")
        else:
            self._pace()

    def _pace(self) -> None:
        """Stop reading while there is something to do first; otherwise resume."""
        if not self._is_open:
            return
        is_much = self._is_paused or self._is_clogged or self._is_going_on or bool(self._kept)
        if is_much is not self._is_outer_paused:
            self._is_outer_paused = is_much
            if is_much:
                self._link.pause()
            else:
                self._link.resume()

    def _end(self, reason: str) -> None:
        """Close, with a close frame unless there was one."""
        if not self._is_open:
            return
        self._is_open = False
        stream = self._frames
        stream.close()
        output = stream.take_output()
        if output:
            self._link.send(output)
        if stream.failure is not None:
            log.warning("%s: closed: %s", self.peer, stream.failure)
        self._forget()
        self._link.close(reason)

    def _forget(self) -> None:
        """Free the input now, not when this is collected."""
        self._kept.clear()
        self._kept_bytes = 0
        self._area = bytearray(AREA_BYTES_MIN)

    def _resize(self, size: int) -> None:
        room = len(self._area)
        if size == room < AREA_BYTES_MAX:
            self._area = bytearray(AREA_BYTES_MAX)
        elif size < AREA_BYTES_MIN < room:
            self._area = bytearray(AREA_BYTES_MIN)


def _is_text(buffers: Sequence[Buffer]) -> bool:
    try:
        str(buffers[0] if len(buffers) == 1 else b"".join(buffers), "utf-8")
    except UnicodeDecodeError:
        return False
    return True
