"""A queue's messages leased until a time, over a broker's management port.

One request after the other over one connection, for code that does not wait in a loop. A
request that did not succeed may have been done all the same: whoever asks again must be
ready to hear that a lease is gone, or that somebody (an earlier self, perhaps) has messages.
"""

import base64
import json
from collections.abc import Iterable
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from entrepot.client.cluster import parse_bootstrap
from entrepot.client.errors import BadAnswer, ClientError, Unreachable

TIMEOUT_S = 60.0
VHOST = "/"  # Whose queues Kafka's clients see, too.

Span = tuple[int, int, int]  # Messages of a queue: lane, first offset, end.

_Fact = TypeVar("_Fact")


class Login(NamedTuple):
    """Who we are; the user that there always is, from the broker's own machine."""

    user: str = "guest"
    password: str = "guest"


class ManagementRefused(ClientError):
    """The broker's answer is no."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.retriable = status == 503


class LeaseGone(ClientError):
    """It is over, or was forgotten by a restart."""


class Leased(NamedTuple):
    lease: str | None  # None: there was nothing.
    spans: list[Span]
    others: list[Span]  # Of those asked for, what somebody else has,
    dying: list[Span]  # and what of it the queue has, until it is a dead letter.


class QueueLeases:
    def __init__(self, address: str, login: Login, queue: str) -> None:
        """Raises ClientError for an address that is none."""
        ((host, port),) = parse_bootstrap(address)[:1]
        self._address = address
        self._connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
        token = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        self._queue = f"/api/queues/{quote(VHOST, safe='')}/{quote(queue, safe='')}"

    def facts(self) -> dict[str, Any]:
        """The queue as RabbitMQ's API describes it."""
        return self._ask("GET", "")

    def lease(self, count: int, seconds: int) -> Leased:
        """The next messages, at most so many."""
        return self._leased({"count": count, "seconds": seconds})

    def lease_again(self, spans: Iterable[Span], seconds: int) -> Leased:
        """Those of them that are free. What nobody has, and is not free, is gone."""
        wanted = [*spans]
        if not wanted:  # Without ranges we would be given the next message.
            return Leased(None, [], [], [])
        return self._leased({"ranges": wanted, "seconds": seconds})

    def settle(self, lease: str, spans: Iterable[Span]) -> None:
        """They are gone, for good, when it returns. Raises LeaseGone, as all below."""
        self._change(lease, {"settle": [*spans]})

    def release(self, lease: str, spans: Iterable[Span], *, failed: bool) -> None:
        self._change(lease, {"release": [*spans], "failed": failed})

    def reject(self, lease: str, spans: Iterable[Span]) -> None:
        self._change(lease, {"reject": [*spans]})

    def renew(self, lease: str, seconds: int) -> None:
        self._change(lease, {"renew_seconds": seconds})

    def idle_ms(self, lease: str) -> int:
        """How long ago it was made, or renewed."""
        return self._told(self._change(lease, {}), "idle_ms", int)

    def take_over(self, lease: str, release: Iterable[Span], seconds: int) -> str:
        """Renew it, without these, under a new id: the old one is unknown from now on."""
        wanted = {"take_over": True, "release": [*release], "renew_seconds": seconds}
        return self._told(self._change(lease, wanted), "lease", str)

    def close(self) -> None:
        self._connection.close()

    def _leased(self, wanted: dict[str, object]) -> Leased:
        said = self._ask("POST", "/lease", wanted)
        try:
            spans = [(lane, first, end) for lane, first, end, *_ in said["ranges"]]
            others, dying = (
                [(lane, first, end) for lane, first, end in said.get(name, ())]
                for name in ("leased_by_others", "dying")
            )
            return Leased(said["lease"], spans, others, dying)
        except (KeyError, TypeError, ValueError):
            raise self._not_a_broker() from None

    def _change(self, lease: str, wanted: dict[str, object]) -> dict[str, Any]:
        try:
            return self._ask("POST", f"/leases/{quote(lease, safe='')}", wanted)
        except ManagementRefused as error:
            if error.status == 404:
                raise LeaseGone(str(error)) from None
            raise

    def _told(self, said: dict[str, Any], name: str, kind: type[_Fact]) -> _Fact:
        found = said.get(name)
        if not isinstance(found, kind):
            raise self._not_a_broker()
        return found

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, self._queue + path, data, self._headers)
            response = self._connection.getresponse()
            status, said = response.status, response.read()
        except (OSError, HTTPException) as error:
            self._connection.close()  # The next request makes another.
            raise Unreachable(f"no management port answers at {self._address}: {error}") from None
        try:
            found = json.loads(said)
        except ValueError:
            raise self._not_a_broker() from None
        if not isinstance(found, dict):
            raise self._not_a_broker()
        if status >= 400:
            raise ManagementRefused(status, str(found.get("reason") or f"HTTP status {status}"))
        return found

    def _not_a_broker(self) -> BadAnswer:
        return BadAnswer(f"what answers at {self._address} is no broker's management port")
