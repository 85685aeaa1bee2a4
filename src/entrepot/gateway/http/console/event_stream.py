"""Server-sent events: the answer to one request, which goes on until somebody closes it.

The link of the request is handed over to a stream, as to a WebSocket. What the client sends after
its request is thrown away. One that does not read is dropped when too much waits for it; one whose
login has ended is told so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from entrepot.broker.access import Operation, ResourceKind
from entrepot.core.ports import NOTHING_UNFINISHED, Link, ServingReceiver, Unfinished
from entrepot.gateway.http.adapter import Upgrade
from entrepot.gateway.http.browser import is_foreign
from entrepot.gateway.http.console.live import Live, event
from entrepot.gateway.http.console.logins import Login, Logins
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http import target
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.http.response import Response

PATH = ("api", "console", "events")
_HEAD = (("Content-Type", "text/event-stream"), ("Cache-Control", "no-store"))
_AREA_BYTES = 256
_READ_BYTES_MAX = 4_096  # A client has nothing to say here.


@dataclass(frozen=True, slots=True)
class EventStreams:
    """Accepts the requests for events of one endpoint."""

    live: Live
    logins: Logins

    def __call__(self, request: Request, peer_host: str) -> Upgrade | None:
        """Return the answer to a request; None if it is for something else. Raises HttpError."""
        if not request.target.startswith("/api/console/events"):
            return None
        if request.method != "GET" or target.split(request.target).path != PATH:
            return None
        if is_foreign(request):
            raise HttpError(403, "a page of another site may not watch")
        login = self.logins.find(request, peer_host)
        if login is None:
            raise HttpError(401, "a login is needed")
        if not login.principal.may(Operation.DESCRIBE, ResourceKind.CLUSTER):
            raise HttpError(403, "Not monitor user")
        if len(self.live) >= http_limits.WATCHERS_MAX:
            raise HttpError(503, "too many pages watch")
        is_valid = partial(self.logins.is_valid, login)
        answer = Response(200, headers=_HEAD, is_stream=True)
        return Upgrade(answer, lambda link: begin(link, self.live, login, is_valid))


def begin(link: Link, live: Live, login: Login, is_valid: Callable[[], bool]) -> ServingReceiver:
    stream = EventStream(link, live, is_valid)
    live.join(stream.tell)
    return stream


class EventStream:
    """The receiver of a link that gets events. Implements `ServingReceiver`."""

    def __init__(self, link: Link, live: Live, is_valid: Callable[[], bool]) -> None:
        self._link = link
        self._live = live
        self._is_valid = is_valid
        self._area = bytearray(_AREA_BYTES)
        self._read_bytes = 0

    def tell(self, told: bytes) -> None:
        if self._link.backlog > http_limits.WATCHER_BACKLOG_BYTES_MAX:
            self._live.leave(self.tell)
            self._link.abort("a page that watches does not read")
        elif not self._is_valid():
            self._live.leave(self.tell)
            self._link.send([event("expired", {})])
            self._link.close("its login has ended")
        else:
            self._link.send([told])

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        self._read_bytes += size
        if self._read_bytes > _READ_BYTES_MAX:
            self._link.abort("a page that watches has nothing to say")

    def drained(self) -> None:
        """Do nothing: the next event comes at its time."""

    def closed(self, reason: str) -> None:
        self._live.leave(self.tell)

    def unfinished(self) -> Unfinished:
        return NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None:
        self._link.abort(reason)
