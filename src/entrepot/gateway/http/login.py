"""Logins: a user name and a password with every request, by HTTP's Basic scheme.

The broker's login policy decides whether a login succeeds. What it cannot know is the host that
a request was addressed to: one from this machine must be addressed to this machine, too. Otherwise
a page in a browser could talk to the broker as guest, through a host name that leads here.
"""

from __future__ import annotations

import logging
from base64 import b64decode

from entrepot.broker.access import Principal
from entrepot.broker.login import LoginPolicy, LoginRefused, Origin, is_loopback
from entrepot.wire.http.request import HttpError, Request

log = logging.getLogger("entrepot.http")

_BASIC = "Basic"


async def log_in(policy: LoginPolicy, request: Request, peer_host: str) -> Principal:
    """Return the principal of the request's user. Raises HttpError, after a delay if a password
    was sent."""
    user, password = _credentials(request)
    try:
        origin = Origin(peer_host, _BASIC, is_addressed_here(request))
        return await policy.by_password(user, password, origin)
    except LoginRefused as refused:
        log.warning("%s: %s", peer_host, refused)
        raise HttpError(401, "Login failed") from None


def _credentials(request: Request) -> tuple[str, str]:
    """Return name and password of the request. Raises HttpError."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != _BASIC.lower():
        raise HttpError(401, "a user and a password are needed")
    try:
        name, colon, password = b64decode(token.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = ""
    if not colon:
        raise HttpError(401, "the authorization cannot be read")
    return name, password


def is_addressed_here(request: Request) -> bool:
    """Return whether a request is addressed to a local name."""
    host = request.headers.get("host", "localhost")
    named = host.rpartition("]")[0].strip("[") if host.startswith("[") else host.split(":")[0]
    return named == "localhost" or is_loopback(named)
