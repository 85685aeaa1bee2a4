"""Logging in and out: `/api/console/login`.

GET says who is logged in, if anybody is, and what a page needs to know before. POST logs in with
a user and a password, DELETE logs out. Nobody is asked for a password here by the browser itself.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from entrepot.broker.access import Operation, Principal, ResourceKind
from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginRefused, Origin
from entrepot.gateway.http.console.logins import TOKEN_HEADER, Login
from entrepot.gateway.http.login import is_addressed_here, log
from entrepot.gateway.http.management.call import Context
from entrepot.gateway.http.management.fields import Fields
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.http.response import NO_CONTENT, Response

PATH = ("api", "console", "login")
_HEADERS = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))
_BODY_BYTES_MAX = 4_096
_VHOSTS_LOOKED_AT_MAX = 200
_METHOD = "the console"  # How one logs in, for the log.


async def serve(context: Context, request: Request, peer_host: str) -> Response:
    """Answer a request. Raises HttpError."""
    logins = context.logins
    if logins is None:
        raise HttpError(404, "Not Found")
    if request.method in ("GET", "HEAD"):
        return _told(context, logins.find(request, peer_host))
    if TOKEN_HEADER not in request.headers:  # Another site's page cannot send it.
        raise HttpError(403, f"the header {TOKEN_HEADER} is missing")
    if request.method == "DELETE":
        logins.principal(request, peer_host)  # Another site's page must not log anybody out.
        return Response(NO_CONTENT, headers=(("Set-Cookie", logins.end(request)),))
    if request.method != "POST":
        return Response(405, headers=(("Allow", "GET, POST, DELETE"),))
    principal = await _log_in(context, request, peer_host)
    logins.end(request)
    login, cookie = logins.begin(principal)
    return _told(context, login, ("Set-Cookie", cookie))


async def _log_in(context: Context, request: Request, peer_host: str) -> Principal:
    if len(request.body) > _BODY_BYTES_MAX:
        raise HttpError(413, "a user and a password are shorter")
    fields = await context.broker.turns.run(Fields.read(request.body))
    origin = Origin(peer_host, _METHOD, is_addressed_here(request))
    try:
        user, password = fields.text("user"), fields.text("password")
        return await context.login.by_password(user, password, origin)
    except LoginRefused as refused:
        log.warning("%s: %s", peer_host, refused)
        raise HttpError(401, "This user and password are not known here.") from None


def _told(context: Context, login: Login | None, *headers: tuple[str, str]) -> Response:
    told: dict[str, Any] = {"version": context.version, "node": context.node}
    if login is None:
        told |= {"user": None, "guest": context.login.guest}
    else:
        told |= _facts(login.principal) | {"token": login.csrf_token}
        broker = context.broker
        told |= {"clustered": broker.cluster is not None, "queues": broker.has_queues}
        told["creates"] = _creates(broker, login.principal)
    return Response(200, msgspec.json.encode(told), (*_HEADERS, *headers))


def _facts(principal: Principal) -> dict[str, Any]:
    """Return who this is, and what the page may offer them at all."""
    return {
        "user": principal.user,
        "administrator": principal.is_administrator,
        "monitor": principal.may(Operation.DESCRIBE, ResourceKind.CLUSTER),
    }


def _creates(broker: Broker, principal: Principal) -> dict[str, bool]:
    """Return of what the user may create some: where it is none, the page has no button for it."""
    if principal.is_unlimited:
        return dict.fromkeys(("queue", "exchange", "topic"), True)
    create, names = Operation.CREATE, [*islice(broker.vhosts.names, _VHOSTS_LOOKED_AT_MAX)]
    found = {
        kind.value: len(names) == _VHOSTS_LOOKED_AT_MAX
        or any(principal.may_with_some(create, kind, name) for name in names)
        for kind in (ResourceKind.QUEUE, ResourceKind.EXCHANGE)
    }
    some = principal.may_with_some(create, ResourceKind.TOPIC)
    return found | {"topic": some or principal.may(create, ResourceKind.CLUSTER)}
