"""Finds the function for a request, and makes an answer of what it returns or raises.

A function takes a call. It returns data, which is sent as JSON; None, for an answer without
content; or a Response. Lists can be sorted, paged, and reduced to some columns, whatever is in
them.
"""

from __future__ import annotations

import inspect

import msgspec

from entrepot.core import errors
from entrepot.core.errors import PeerError, StorageError
from entrepot.gateway.http.browser import is_foreign
from entrepot.gateway.http.console import entering
from entrepot.gateway.http.console.logins import TOKEN_HEADER
from entrepot.gateway.http.json_reader import AT_ONCE_BYTES_MAX
from entrepot.gateway.http.json_writer import encoded
from entrepot.gateway.http.login import log_in
from entrepot.gateway.http.management import health, metrics
from entrepot.gateway.http.management.call import Call, Context
from entrepot.gateway.http.management.fields import Fields
from entrepot.gateway.http.management.listing import arranged
from entrepot.gateway.http.management.routes import ROUTES, Function
from entrepot.wire.http import target
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.http.response import NO_CONTENT, Response

PREFIX = "api"
CONSOLE = "console"
METRICS = "metrics"  # Outside of the prefix, where Prometheus looks for it.

_JSON = ("Content-Type", "application/json")
_UNCACHED = ("Cache-Control", "no-cache")
_ASK = ("WWW-Authenticate", 'Basic realm="entrepot"')
_NAMES = {
    400: "bad_request",
    401: "not_authorized",
    403: "not_authorised",
    404: "not_found",
    405: "method_not_allowed",
    503: "service_unavailable",
}
_NOT_FOUND = (
    errors.UnknownExchange,
    errors.UnknownQueue,
    errors.UnknownTopic,
    errors.UnknownVhost,
)
# What only the node can tell that has the queues. Any other would show that there are none.
_OF_QUEUES = (
    "accounts", "bindings", "channels", "consumers", "definitions", "exchanges", "queues",
    "retained", "sessions",
)  # fmt: skip
_READING = ("GET", "HEAD", "OPTIONS")
_REFUSED = (errors.ExchangeRefused, errors.QueueNameRefused, errors.VhostRefused)


class Management:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._health = health.Health(context)

    async def __call__(self, request: Request, peer_host: str) -> Response:
        """Answer a request. Errors of the client become answers and are not raised."""
        try:
            return await self._serve(request, peer_host)
        except HttpError as error:
            # The console asks for passwords itself: its users get no window of the browser's.
            return failure(error.status, str(error), asks=TOKEN_HEADER not in request.headers)
        except _NOT_FOUND as error:
            return failure(404, str(error))
        except _REFUSED as error:
            return failure(403, str(error))
        except StorageError as error:
            return failure(503, str(error))
        except PeerError as error:
            return failure(400, str(error))

    async def _serve(self, request: Request, peer_host: str) -> Response:
        asked = target.split(request.target)
        if asked.path[:1] == (health.PREFIX,):
            return await self._health.answer(asked.path, request)
        is_own = request.method in _READING or not is_foreign(request)
        if asked.path == entering.PATH and is_own:
            return await entering.serve(self._context, request, peer_host)
        functions, named = find(asked.path)
        if not is_own:
            raise HttpError(403, "a page of another site may not change anything here")
        logins = self._context.logins
        principal = None if logins is None else logins.principal(request, peer_host)
        if principal is None:
            principal = await log_in(self._context.login, request, peer_host)
        self._check_home(asked.path)
        method = "GET" if request.method == "HEAD" else request.method
        if method not in functions:
            allowed = (("Allow", ", ".join([*functions, "OPTIONS"])),)
            return Response(200 if method == "OPTIONS" else 405, headers=allowed)
        body, long_fields, turns = request.body, None, self._context.broker.turns
        if len(body) > AT_ONCE_BYTES_MAX:
            long_fields = await turns.run(Fields.read(body))
        call = Call(
            self._context,
            principal,
            named,
            asked.query,
            request.headers,
            body,
            long_fields,
        )
        result = functions[method](call)
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, list):
            result = arranged(result, asked.query)
        if isinstance(result, list | dict):
            return Response(200, await turns.run(encoded(result)), (_JSON, _UNCACHED))
        return answer(result)

    def _check_home(self, path: tuple[str, ...]) -> None:
        """Raise HttpError if another node of the cluster has the queues, and this is of them."""
        broker = self._context.broker
        place = path[2] if path[1:2] == (CONSOLE,) and len(path) > 2 else "".join(path[1:2])
        if broker.cluster is None or not broker.has_queues or place not in _OF_QUEUES:
            return
        if broker.cluster.queues.is_here:
            return
        peer = broker.cluster.queues.peer()
        where = "no node now" if peer is None else f"node {peer.id}, {peer.host}"
        raise HttpError(503, f"the queues are at {where}")


def find(path: tuple[str, ...]) -> tuple[dict[str, Function], dict[str, str]]:
    """Return the functions for a path, by method, and its named parts. Raises HttpError."""
    if path and not path[-1]:  # The path ends with a slash.
        path = path[:-1]
    if path == (METRICS,):
        return {"GET": metrics.scrape}, {}
    if path[:1] == (PREFIX,):
        for pattern, functions in ROUTES:
            named = match(pattern, path[1:])
            if named is not None:
                return functions, named
    raise HttpError(404, "Not Found")


def match(pattern: tuple[str, ...], path: tuple[str, ...]) -> dict[str, str] | None:
    """Return the named parts of the path; None when it does not match the pattern."""
    if len(pattern) != len(path):
        return None
    named = {}
    for wanted, found in zip(pattern, path, strict=True):
        if wanted.startswith("{"):
            named[wanted[1:-1]] = found
        elif wanted != found:
            return None
    return named


def answer(result: object) -> Response:
    """Return the answer that has this result as its content; None means: no content."""
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(NO_CONTENT)
    return Response(200, msgspec.json.encode(result), (_JSON, _UNCACHED))


def failure(status: int, reason: str, *, asks: bool = True) -> Response:
    """Return the answer for an error, as RabbitMQ writes it."""
    name = _NAMES.get(status, "internal_error")
    body = msgspec.json.encode({"error": name, "reason": reason})
    return Response(status, body, (_JSON, _ASK) if asks and status == 401 else (_JSON,))
