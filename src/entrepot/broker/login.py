"""Authenticates clients, by the same rules for every protocol.

A gateway decodes the name and the proof of a client (a password, a SCRAM exchange, or a
certificate that TLS has verified) and asks here whether the login succeeds.

With authentication on, the users are those of `users.py`. With authentication off, a protocol
that always has a login knows one user, guest, who may log in from this machine only, unless the
broker is started as insecure; a protocol whose clients need not log in accepts everybody,
as the subject of their certificate or as ANONYMOUS. An empty password is always wrong. Which
virtual hosts the user may enter is answered by the `Principal` returned from here.

A failed login is answered after a fixed time, whatever was wrong, so that the time does not tell
whether the user exists. It raises `LoginRefused`, whose text is for the log and never contains a
password. The gateway tells the client that the login failed, and not why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple, NoReturn

from entrepot.broker.access import ANONYMOUS, NODE, Access, Principal
from entrepot.broker.users import Users
from entrepot.core import limits, scram
from entrepot.core.errors import PeerError
from entrepot.core.scram import Mechanism, Verifier

GUEST = "guest"  # Its password is the same.


class LoginRefused(PeerError):
    """A failed login. The text is for the log, and never contains a password."""


class Origin(NamedTuple):
    """Where an attempt comes from, and how it is made."""

    host: str
    mechanism: str  # What the protocol calls it.
    # Whether it was meant for this machine. A page in a browser on this machine may send
    # requests here that were addressed to its own site.
    is_addressed_here: bool = True


class Challenge(NamedTuple):
    """A SCRAM exchange that has begun: its user, and the verifier to check the proof against."""

    user: str
    mechanism: Mechanism
    verifier: Verifier


class LoginPolicy:
    def __init__(
        self,
        users: Users,
        access: Access,
        *,
        asks_users: bool = False,
        is_open: bool = False,
        secret: str = "",
    ) -> None:
        """Make the policy.

        `is_open` means: with authentication off, guest may log in from other machines, too.
        `secret` is the cluster's: who knows it logs in as NODE, by SCRAM, which never sends it.
        """
        self.asks_users = asks_users
        self._users = users
        self._access = access
        self._is_open = is_open
        self._nodes = {each: _node_verifier(each, secret) for each in Mechanism} if secret else {}

    @property
    def guest(self) -> str | None:
        """Return the user who exists without being stored; None with authentication on."""
        return None if self.asks_users else GUEST

    @property
    def is_for_this_machine(self) -> bool:
        """Return whether the only user with a password may come from this machine only."""
        return not self.asks_users and not self._is_open

    def stored(self, user: str) -> object:
        """Return what is stored of a user, to compare by identity: it is another object, or None,
        when the password was changed or the user deleted."""
        return self._users.get(user)

    def identify(self, subject: str | None, host: str) -> Principal:
        """Return the principal of a peer that has not logged in.

        `subject` is the subject of its certificate; None means: it has no certificate.
        """
        return self._access.principal(ANONYMOUS if subject is None else subject, host)

    async def by_password(self, user: str, password: str, origin: Origin) -> Principal:
        """Return the principal of a user with the right password. Raises LoginRefused, delayed."""
        answer_at = _failure_time()
        refusal = await self._refusal(user, password, origin)
        if refusal:
            await _refuse(user, refusal, origin, answer_at)
        return self._access.principal(user, origin.host)

    async def _refusal(self, user: str, password: str, origin: Origin) -> str:
        """Return why the login is refused; an empty text means: it is not."""
        if self.asks_users:
            is_right = await self._users.knows(user, password) and password != ""
            return "" if is_right else "wrong user or password"
        if (user, password) != (GUEST, GUEST):
            return "wrong user or password"
        is_here = origin.is_addressed_here and is_loopback(origin.host)
        return "" if self._is_open or is_here else "this user may come from this machine only"

    def has_key(self, key_id: str) -> bool:
        """Return whether there is an access key of that id."""
        return self._users.keys.get(key_id) is not None

    async def by_signature(
        self, key_id: str, is_signed_with: Callable[[str], bool], origin: Origin
    ) -> Principal:
        """Return the principal of the user whose access key it is, if its secret was used. Raises
        LoginRefused, delayed."""
        answer_at = _failure_time()
        key = self._users.keys.get(key_id)
        if key is None or not is_signed_with(key.secret):
            await _refuse(key_id, "wrong signature", origin, answer_at)
        return self._access.principal(key.user, origin.host)

    def by_certificate(self, subject: str, origin: Origin) -> Principal:
        """Return the principal of the subject of a certificate. TLS must have verified it."""
        return self._access.principal(subject, origin.host)

    # --- SCRAM

    def nonce(self) -> str:
        """Return a new random nonce, the server's part of a SCRAM exchange."""
        return self._users.nonce()

    def challenge(self, user: str, mechanism: Mechanism) -> Challenge:
        """Begin a SCRAM exchange. An unknown user gets a challenge, too, which no proof meets."""
        return Challenge(user, mechanism, self._verifier(user, mechanism))

    def _verifier(self, user: str, mechanism: Mechanism) -> Verifier:
        if user == NODE and self._nodes:  # No user is stored under this name.
            return self._nodes[mechanism]
        return self._users.verifier(user, mechanism)

    async def by_proof(
        self, challenge: Challenge, exchanged: bytes, proof: bytes, origin: Origin
    ) -> Principal:
        """Return the principal of a user with the right proof over the messages exchanged. Raises
        LoginRefused, delayed."""
        answer_at = _failure_time()
        user, mechanism, verifier = challenge
        is_right = scram.proves(mechanism, verifier, exchanged, proof)
        # The password may have been changed, or the user deleted, since the challenge.
        if not is_right or self._verifier(user, mechanism) != verifier:
            await _refuse(user, "wrong user or password", origin, answer_at)
        return self._access.principal(user, origin.host)

    async def refuse(self, user: str, reason: str, origin: Origin) -> NoReturn:
        """Refuse a login whose messages are invalid for its mechanism. Raises LoginRefused,
        delayed."""
        await _refuse(user, reason, origin, _failure_time())


def _node_verifier(mechanism: Mechanism, secret: str) -> Verifier:
    """Return the same on every node. A secret is long and random, so the salt need not be."""
    salt, iterations = f"nodes, {mechanism}".encode(), limits.SCRAM_ITERATIONS
    salted = scram.salted_password(mechanism, secret, salt, iterations)
    return scram.verifier(mechanism, salted, salt, iterations)


def _failure_time() -> float:
    """Return the loop's time at which a login that begins now is answered if it fails."""
    return asyncio.get_running_loop().time() + limits.LOGIN_FAILURE_MS / 1_000


async def _refuse(user: str, reason: str, origin: Origin, answer_at: float) -> NoReturn:
    await asyncio.sleep(answer_at - asyncio.get_running_loop().time())
    raise LoginRefused(f"login of {user[:100]!r} with {origin.mechanism} failed: {reason}")


@lru_cache(maxsize=1_000)  # Asked twice for every request of SQS.
def is_loopback(host: str) -> bool:
    """Return whether this is a loopback address. Host names are not looked up."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(peer: str) -> str:
    """Return the host of an address as links have it: `127.0.0.1:5672`, `[::1]:5672`."""
    return peer.rpartition(":")[0].strip("[]")
