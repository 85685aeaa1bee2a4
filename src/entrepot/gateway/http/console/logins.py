"""Logins of browsers: a person logs in once and is known by a cookie for some hours.

The cookie is a random token. No script can read it, and a browser sends it for our own pages
only (`HttpOnly`, `SameSite=Strict`). A request that changes something must have another token as
well, in the header `X-CSRF-Token`: pages of other sites can neither read it nor set the header.

A login ends with the process, after some time, when it was not used for long, when the user's
password is changed or the user deleted, and for other addresses than the one it was made from.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from entrepot.broker.access import Principal
from entrepot.broker.login import LoginPolicy
from entrepot.core.ports import Clock, Entropy
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError, Request

TOKEN_HEADER = "x-csrf-token"
_TOKEN_BYTES = 32
_READING = ("GET", "HEAD", "OPTIONS")


@dataclass(slots=True)
class Login:
    """A person who has logged in."""

    principal: Principal
    stored: object  # What is stored of the user; another object means: it was changed.
    csrf_token: str
    begun_s: float
    used_s: float


class Logins:
    """All logins of one endpoint."""

    def __init__(
        self, policy: LoginPolicy, clock: Clock, entropy: Entropy, name: str, *, is_tls: bool
    ) -> None:
        """`name` is a part of the cookie's name: brokers on one machine have the same cookies."""
        self._policy = policy
        self._clock = clock
        self._entropy = entropy
        self._cookie = f"entrepot-{name}"
        self._attributes = "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_tls else "")
        self._logins: dict[str, Login] = {}  # By token; the one that was used last is the last.

    def __len__(self) -> int:
        return len(self._logins)

    def begin(self, principal: Principal) -> tuple[Login, str]:
        """Remember that somebody has logged in. Return the login, and the cookie's header."""
        while len(self._logins) >= http_limits.LOGINS_MAX:
            del self._logins[next(iter(self._logins))]
        token, now_s = self._token(), self._clock.monotonic()
        stored = self._policy.stored(principal.user)
        login = self._logins[token] = Login(principal, stored, self._token(), now_s, now_s)
        return login, f"{self._cookie}={token}{self._attributes}"

    def _token(self) -> str:
        return urlsafe_b64encode(self._entropy.token(_TOKEN_BYTES)).decode().rstrip("=")

    def find(self, request: Request, peer_host: str) -> Login | None:
        """Return the login that the request belongs to; None if there is none any more."""
        token = self._token_of(request)
        login = self._logins.get(token)
        if login is None or login.principal.host != peer_host:
            return None
        if not self.is_valid(login):
            del self._logins[token]
            return None
        login.used_s = self._clock.monotonic()
        self._logins[token] = self._logins.pop(token)
        return login

    def principal(self, request: Request, peer_host: str) -> Principal | None:
        """Return the principal of a request by its cookie; None if it has none that is valid.

        Raises HttpError for one that changes something and does not come from our page.
        """
        if "authorization" in request.headers or (login := self.find(request, peer_host)) is None:
            return None
        sent = request.headers.get(TOKEN_HEADER, "")
        is_right = hmac.compare_digest(sent.encode(), login.csrf_token.encode())
        if request.method not in _READING and not is_right:
            raise HttpError(403, f"the header {TOKEN_HEADER} is missing or wrong")
        return login.principal

    def is_valid(self, login: Login) -> bool:
        now_s = self._clock.monotonic()
        is_young = now_s - login.begun_s < http_limits.LOGIN_AGE_MS_MAX / 1_000
        is_used = now_s - login.used_s < http_limits.LOGIN_IDLE_MS_MAX / 1_000
        return is_young and is_used and self._policy.stored(login.principal.user) is login.stored

    def end(self, request: Request) -> str:
        """End the login of a request, if it has one. Return the header that removes the cookie."""
        self._logins.pop(self._token_of(request), None)
        return f"{self._cookie}=; Max-Age=0{self._attributes}"

    def _token_of(self, request: Request) -> str:
        for each in request.headers.get("cookie", "").split(";"):
            name, _, value = each.strip().partition("=")
            if name == self._cookie:
                return value
        return ""
