"""Who asks: a name and a password with every request, by HTTP's Basic scheme.

The rule is that of AMQP: where the broker asks who its clients are, they are the users of its
store. Where it asks nobody, there is the user `guest` with the password `guest`, from this
machine only, unless the broker is said to be open to others; and from this machine a request
must be addressed to it, too, lest a page in a browser talks to the broker under a name of its
own.

Failed logins are answered at one time after the attempt, whatever was wrong with them, so
that the time does not tell whether there is such a user.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from ipaddress import ip_address

from entrepot.broker.users import Users
from entrepot.core import limits
from entrepot.wire.http.request import HttpError, Request

GUEST = "guest"


class Login:
    def __init__(self, users: Users, *, asks_users: bool, is_open: bool = False) -> None:
        """`is_open`: where nobody is asked, guest may come from anywhere."""
        self._users = users
        self._asks_users = asks_users
        self._is_open = is_open

    async def user(self, request: Request, peer_host: str) -> str:
        """Raises HttpError."""
        name, password = _credentials(request)
        loop = asyncio.get_running_loop()
        answer_at = loop.time() + limits.LOGIN_FAILURE_MS / 1_000
        if self._asks_users:
            is_known = await self._users.knows(name, password)
        else:
            is_here = self._is_open or _is_here(request, peer_host)
            is_known = is_here and (name, password) == (GUEST, GUEST)
        if not is_known:
            await asyncio.sleep(answer_at - loop.time())
            raise HttpError(401, "Login failed")
        return name


def _credentials(request: Request) -> tuple[str, str]:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        raise HttpError(401, "a user and a password are needed")
    try:
        name, colon, password = b64decode(token.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = ""
    if not colon:
        raise HttpError(401, "the authorization cannot be read")
    return name, password


def _is_here(request: Request, peer_host: str) -> bool:
    host = request.headers.get("host", "localhost")
    named = host.rpartition("]")[0].strip("[") if host.startswith("[") else host.split(":")[0]
    return _is_loopback(peer_host) and (named == "localhost" or _is_loopback(named))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
