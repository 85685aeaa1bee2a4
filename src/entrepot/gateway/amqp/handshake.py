"""From the first byte to an open connection: login, limits, heartbeat and virtual host.

The server begins and the client answers, in a fixed order. Before the login, an error closes
the connection without an explanation. A client with the capability for it is sent a notice of a
failed login, which does not say why it failed.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from entrepot.broker.access import Principal
from entrepot.broker.login import LoginRefused
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.errors import UnknownVhost
from entrepot.core.ports import Link
from entrepot.gateway.amqp.context import Context
from entrepot.gateway.amqp.login import login, mechanisms
from entrepot.gateway.rabbitmq.names import MANAGER
from entrepot.gateway.rabbitmq.rights import vhost_refusal
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import PROTOCOL_HEADER, ProtocolHeader
from entrepot.wire.amqp.methods import decode
from entrepot.wire.amqp.methods.connection import (
    Close,
    CloseOk,
    Open,
    OpenOk,
    Start,
    StartOk,
    Tune,
    TuneOk,
)
from entrepot.wire.amqp.scan import Event, Heartbeat, MethodFrame

if TYPE_CHECKING:
    from entrepot.gateway.amqp.adapter import AmqpAdapter

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What client and server have agreed on."""

    peer: str
    principal: Principal
    mechanism: str
    client_properties: Mapping[str, object]
    frame_bytes_max: int
    channels_max: int
    heartbeat_s: int

    @property
    def user(self) -> str:
        return self.principal.user


class HandshakeState(Enum):
    """What the client has to send next."""

    GREETING = "greeting"
    STARTING = "starting"
    TUNING = "tuning"
    OPENING = "opening"


class Handshake:
    def __init__(self, adapter: AmqpAdapter, link: Link, context: Context) -> None:
        self._adapter = adapter
        self._link = link
        self._context = context
        self._state = HandshakeState.GREETING
        self._principal: Principal | None = None  # None before the login.
        self._start_ok = StartOk()
        self._tune_ok = TuneOk()

    def serve(self, event: ProtocolHeader | Event) -> Awaitable[None] | None:
        """Serve an event of a connection that is not open yet. Raises AmqpError."""
        if isinstance(event, ProtocolHeader):
            self._greet(event)
            return None
        if isinstance(event, AmqpError):
            raise event
        if isinstance(event, Heartbeat):
            return None
        if not isinstance(event, MethodFrame) or event.channel != 0:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "a channel before the connection is open")
        method = decode(event.payload)
        match self._state, method:
            case HandshakeState.STARTING, StartOk():
                self._start_ok = method
                return self._login()
            case HandshakeState.TUNING, TuneOk():
                self._tune(method)
            case HandshakeState.OPENING, Open():
                self._open(method)
            case _, Close():
                self._adapter.outbox.method(0, CloseOk())
                self._adapter.hang_up("closed by the client")
            case _:
                raise AmqpError(
                    ReplyCode.CHANNEL_ERROR,
                    f"unexpected method in connection state {self._state.value}",
                    method_id=method.ID,
                )
        return None

    @property
    def may_explain(self) -> bool:
        """Return whether the client has logged in, so that errors may be explained to it."""
        return self._state in (HandshakeState.TUNING, HandshakeState.OPENING)

    def _greet(self, header: ProtocolHeader) -> None:
        if not header.is_ours:
            self._adapter.outbox.send([PROTOCOL_HEADER])
            self._adapter.hang_up(f"not AMQP 0-9-1: {header.octets!r}")
            return
        self._state = HandshakeState.STARTING
        offered = " ".join(mechanisms(self._link)).encode()
        start = Start(0, 9, self._server_properties(), offered, b"en_US")
        self._adapter.outbox.method(0, start)

    def _server_properties(self) -> dict[str, object]:
        version = ".".join(map(str, sys.version_info[:3]))
        broker = self._context.broker
        found: dict[str, object] = {
            "capabilities": dict.fromkeys(CAPABILITIES, True),
            "cluster_name": broker.cluster_id,
            "platform": f"Python {version}",
            "product": "entrepot",
            "version": self._context.version,
        }
        return found | {MANAGER: broker.manager_name} if broker.manager_name else found

    async def _login(self) -> None:
        mechanism, response = self._start_ok.mechanism, self._start_ok.response
        try:
            policy = self._context.login
            self._principal = await login(policy, self._link, mechanism, response)
        except LoginRefused as refused:
            self._adapter.log_refusal(str(refused))
            self._refuse_login(mechanism)
            return
        self._state = HandshakeState.TUNING
        tune = Tune(amqp_limits.CHANNELS_MAX, amqp_limits.FRAME_BYTES_MAX, amqp_limits.HEARTBEAT_S)
        self._adapter.outbox.method(0, tune)

    def _refuse_login(self, mechanism: str) -> None:
        capabilities = self._start_ok.client_properties.get("capabilities")
        if isinstance(capabilities, dict) and capabilities.get("authentication_failure_close"):
            error = AmqpError(
                ReplyCode.ACCESS_REFUSED,
                f"Login was refused using authentication mechanism {mechanism}. "
                "For details see the broker logfile.",
            )
            self._adapter.outbox.method(0, Close(error.code, error.text))
        self._adapter.hang_up("login refused")

    def _tune(self, method: TuneOk) -> None:
        for name, value, value_min, value_max in (
            (
                "frame_max",
                method.frame_max,
                amqp_limits.FRAME_BYTES_MIN,
                amqp_limits.FRAME_BYTES_MAX,
            ),
            ("channel_max", method.channel_max, 1, amqp_limits.CHANNELS_MAX),
        ):
            if value == 0 or value > value_max:
                detail = " (no limit)" if name == "channel_max" and value == 0 else ""
                raise _not_agreed(f"{name} = {value}{detail} is higher than the maximum", value_max)
            if value < value_min:
                raise _not_agreed(f"{name} = {value} is lower than the minimum", value_min)
        self._tune_ok = method
        self._state = HandshakeState.OPENING
        self._adapter.tuned(method.frame_max, method.heartbeat)

    def _open(self, method: Open) -> None:
        assert self._principal is not None
        vhost = self._vhost(method.virtual_host, self._principal)
        start_ok, tune_ok = self._start_ok, self._tune_ok
        terms = Terms(
            self._link.peer,
            self._principal,
            start_ok.mechanism,
            start_ok.client_properties,
            tune_ok.frame_max,
            tune_ok.channel_max,
            tune_ok.heartbeat,
        )
        self._adapter.outbox.method(0, OpenOk())
        self._adapter.opened(terms, vhost)

    def _vhost(self, name: str, principal: Principal) -> VirtualHost:
        try:
            vhost = self._context.broker.vhosts.get(name)
        except UnknownVhost:
            raise AmqpError(
                ReplyCode.NOT_ALLOWED, f"vhost {name} not found", method_id=Open.ID
            ) from None
        if not principal.may_enter(name):
            refusal = vhost_refusal(name, principal.user)
            raise AmqpError(ReplyCode.NOT_ALLOWED, refusal, method_id=Open.ID)
        return vhost


def _not_agreed(what: str, bound: int) -> AmqpError:
    return AmqpError(
        ReplyCode.NOT_ALLOWED, f"negotiated {what} allowed value ({bound})", method_id=Tune.ID
    )
