"""Who a client is: a password, a certificate, or SCRAM by enhanced authentication (section 4.12).

This module only reads what clients send. The broker's login policy decides who may log in. With
authentication off nobody is asked: a user and a password are not looked at.
"""

from __future__ import annotations

from entrepot.broker.access import Principal
from entrepot.broker.login import Challenge, LoginPolicy, Origin, host_of
from entrepot.core.ports import Link
from entrepot.core.scram import Mechanism
from entrepot.wire.mqtt.packets import Connect
from entrepot.wire.mqtt.reasons import MqttError, Reason, violated
from entrepot.wire.sasl import SaslError, ScramServer

PASSWORD, CERTIFICATE, NONE = "PASSWORD", "CERTIFICATE", "NONE"


def mechanism_of(policy: LoginPolicy, link: Link, packet: Connect) -> str:
    """Return how the client logs in, for lists of connections."""
    if packet.properties.authentication_method is not None:
        return packet.properties.authentication_method
    if link.subject is not None and packet.user is None:
        return CERTIFICATE
    return PASSWORD if policy.asks_users else NONE


async def log_in(policy: LoginPolicy, link: Link, packet: Connect) -> Principal:
    """Log the client in by what its CONNECT says; return its principal.

    Raises LoginRefused, after a delay.
    """
    host = host_of(link.peer)
    if not policy.asks_users:
        return policy.identify(link.subject, host)
    if packet.user is None and link.subject is not None:
        return policy.by_certificate(link.subject, Origin(host, CERTIFICATE))
    origin = Origin(host, PASSWORD)
    if packet.user is None or packet.password is None:
        await policy.refuse(packet.user or "", "no user or no password", origin)
    # What is not UTF-8 becomes a text that is nobody's password.
    password = packet.password.decode("utf-8", "replace")
    return await policy.by_password(packet.user, password, origin)


class Exchange:
    """SCRAM, one message at a time: the client's first, our challenge, its proof."""

    def __init__(self, policy: LoginPolicy, link: Link, method: str) -> None:
        """Begin an exchange. Raises MqttError for an unknown method."""
        found = [each for each in Mechanism if each.value == method]
        if not found or not policy.asks_users:
            text = f"authentication method {method[:50]!r}"
            raise MqttError(Reason.BAD_AUTHENTICATION_METHOD, text)
        self.method = method
        self._mechanism = found[0]
        self._policy = policy
        self._origin = Origin(host_of(link.peer), method)
        self._server = ScramServer(self._mechanism, policy.nonce())
        self._challenge: Challenge | None = None
        self.signature = b""  # Our own proof, once the client's was right.

    async def challenge(self, data: bytes | None) -> bytes:
        """Read the client's first message; return our answer. Raises LoginRefused, delayed."""
        try:
            user = self._server.first(data or b"")
        except SaslError as error:
            await self._policy.refuse("", str(error), self._origin)
        self._challenge = self._policy.challenge(user, self._mechanism)
        return self._server.challenge(self._challenge.verifier)

    async def prove(self, data: bytes | None) -> Principal:
        """Read the client's proof; return its principal. Raises LoginRefused, delayed."""
        if self._challenge is None:
            raise violated("a proof without a challenge")
        try:
            exchanged, proof = self._server.proof(data or b"")
        except SaslError as error:
            await self._policy.refuse(self._challenge.user, str(error), self._origin)
        principal = await self._policy.by_proof(self._challenge, exchanged, proof, self._origin)
        self.signature = self._server.signature(exchanged)
        return principal
