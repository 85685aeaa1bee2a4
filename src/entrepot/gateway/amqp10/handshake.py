"""From the first byte to an open connection: login by SASL, then limits and virtual host.

A client that does not log in is the subject of its certificate or, if nobody is asked for a
password, guest. The hostname in Open names a virtual host if it begins with `vhost:`, as in
RabbitMQ; any other is the name of the machine.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from entrepot.broker.access import Principal
from entrepot.broker.login import GUEST, LoginRefused, Origin, host_of
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.errors import UnknownVhost
from entrepot.core.ports import Link
from entrepot.gateway.amqp10.context import Context
from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10.errors import Amqp10Error, Condition
from entrepot.wire.amqp10.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Event,
    Frame,
    ProtocolHeader,
    sasl_frame,
)
from entrepot.wire.amqp10.performatives import Open, SaslInit, SaslMechanisms, SaslOutcome
from entrepot.wire.sasl import SaslError, read_plain

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.adapter import Amqp10Adapter

PLAIN, ANONYMOUS, EXTERNAL = "PLAIN", "ANONYMOUS", "EXTERNAL"
_OK, _AUTH = 0, 1  # Codes of a login's outcome.
_VHOST = "vhost:"


class Terms(NamedTuple):
    """What client and server have agreed on."""

    principal: Principal
    vhost: VirtualHost
    mechanism: str
    container: str
    frame_bytes_max: int  # Of what we send.
    channel_max: int  # The highest number of a session.
    idle_ms: int | None  # After so much silence the client closes the connection.


class HandshakeState(Enum):
    """What the client has to send next."""

    GREETING = "greeting"
    LOGIN = "login"
    SECOND_GREETING = "second greeting"
    OPENING = "opening"


class Handshake:
    def __init__(self, adapter: Amqp10Adapter, link: Link, context: Context) -> None:
        self._adapter = adapter
        self._link = link
        self._context = context
        self._state = HandshakeState.GREETING
        self._principal: Principal | None = None  # None before the login.
        self._mechanism = ANONYMOUS

    def serve(self, event: Event) -> Awaitable[None] | None:
        """Serve an event of a connection that is not open yet. Raises Amqp10Error."""
        if isinstance(event, Amqp10Error):
            raise event
        if isinstance(event, ProtocolHeader):
            return self._greet(event.octets)
        performative = event.performative if isinstance(event, Frame) else None
        match self._state, performative:
            case HandshakeState.LOGIN, SaslInit():
                return self._log_in(performative)
            case HandshakeState.OPENING, Open():
                self._open(performative)
            case HandshakeState.OPENING, None if isinstance(event, Frame):
                pass
            case _:
                raise Amqp10Error(Condition.ILLEGAL_STATE, f"unexpected in {self._state.value}")
        return None

    @property
    def may_explain(self) -> bool:
        """Return whether the client has logged in, so that errors may be explained to it."""
        return self._state is HandshakeState.OPENING

    def _greet(self, octets: bytes) -> Awaitable[None] | None:
        send = self._adapter.outbox.send
        if octets == SASL_HEADER and self._state is HandshakeState.GREETING:
            self._state = HandshakeState.LOGIN
            send((SASL_HEADER, sasl_frame(SaslMechanisms(self._mechanisms()))))
            return None
        if octets != AMQP_HEADER:
            send((SASL_HEADER,))
            self._adapter.hang_up(f"not AMQP 1.0: {octets!r}")
            return None
        send((AMQP_HEADER,))
        if self._state is HandshakeState.SECOND_GREETING:
            self._state = HandshakeState.OPENING
            return None
        return self._enter_without_login()

    def _mechanisms(self) -> tuple[str, ...]:
        offered = [PLAIN]
        if self._context.login.guest is not None:
            offered.append(ANONYMOUS)
        if self._link.subject is not None:
            offered.insert(0, EXTERNAL)
        return tuple(offered)

    async def _enter_without_login(self) -> None:
        mechanism = ANONYMOUS if self._link.subject is None else EXTERNAL
        try:
            self._principal = await self._principal_of(mechanism, b"")
        except LoginRefused as refused:
            self._adapter.log_refusal(str(refused))
            self._adapter.hang_up("no login")
            return
        self._state = HandshakeState.OPENING

    async def _log_in(self, init: SaslInit) -> None:
        self._mechanism = init.mechanism
        send = self._adapter.outbox.send
        try:
            self._principal = await self._principal_of(init.mechanism, init.initial_response or b"")
        except LoginRefused as refused:
            self._adapter.log_refusal(str(refused))
            send((sasl_frame(SaslOutcome(_AUTH)),))
            self._adapter.hang_up("login refused")
            return
        send((sasl_frame(SaslOutcome(_OK)),))
        self._state = HandshakeState.SECOND_GREETING
        self._adapter.expect_header()

    async def _principal_of(self, mechanism: str, response: bytes) -> Principal:
        """Return who the client is. Raises LoginRefused, after a delay."""
        policy, link = self._context.login, self._link
        origin = Origin(host_of(link.peer), mechanism)
        if mechanism == EXTERNAL and link.subject is not None:
            return policy.by_certificate(link.subject, origin)
        if mechanism == ANONYMOUS and policy.guest is not None:
            return await policy.by_password(GUEST, GUEST, origin)
        if mechanism != PLAIN:
            await policy.refuse("", f"{mechanism[:100]!r} is not offered", origin)
        try:
            user, password = read_plain(response)
        except SaslError as error:
            await policy.refuse("", str(error), origin)
        return await policy.by_password(user, password, origin)

    def _open(self, wanted: Open) -> None:
        assert self._principal is not None
        if wanted.max_frame_size < amqp_limits.FRAME_BYTES_MIN:
            raise Amqp10Error(Condition.FRAME_TOO_SMALL, "frames of fewer than 512 bytes")
        idle_ms = wanted.idle_time_out
        if idle_ms is not None and 0 < idle_ms < amqp_limits.IDLE_MS_MIN:
            raise Amqp10Error(Condition.NOT_ALLOWED, f"an idle time-out of {idle_ms} ms")
        terms = Terms(
            self._principal,
            self._vhost(wanted.hostname or "", self._principal),
            self._mechanism,
            wanted.container_id,
            min(wanted.max_frame_size, amqp_limits.FRAME_BYTES_MAX),
            min(wanted.channel_max, amqp_limits.SESSIONS_MAX - 1),
            idle_ms or None,
        )
        self._adapter.opened(terms, wanted)

    def _vhost(self, hostname: str, principal: Principal) -> VirtualHost:
        vhosts = self._context.broker.vhosts
        vhost = vhosts.default
        if hostname.startswith(_VHOST):
            name = hostname.removeprefix(_VHOST)
            try:
                vhost = vhosts.get(name)
            except UnknownVhost:
                raise Amqp10Error(Condition.NOT_FOUND, f"no vhost '{name[:300]}'") from None
        if not principal.may_enter(vhost.name):
            text = f"access to vhost '{vhost.name}' refused for user '{principal.user}'"
            raise Amqp10Error(Condition.UNAUTHORIZED, text)
        return vhost
