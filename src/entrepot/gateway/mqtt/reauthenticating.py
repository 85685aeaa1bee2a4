"""AUTH on an open connection: the client proves once more who it is (section 4.12.1).

It uses the method that it used to connect, and is the same user. Until the proof the connection
goes on as before; a wrong one ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrepot.broker.login import LoginRefused
from entrepot.gateway.mqtt.authentication import Exchange
from entrepot.wire.mqtt.packets import V5, Auth, write
from entrepot.wire.mqtt.properties import Properties
from entrepot.wire.mqtt.reasons import MqttError, Reason, violated

if TYPE_CHECKING:
    from entrepot.gateway.mqtt.adapter import MqttAdapter
    from entrepot.gateway.mqtt.context import Context, Terms


class Reauthenticating:
    """Of one connection."""

    __slots__ = ("_adapter", "_context", "_exchange", "_terms")

    def __init__(self, adapter: MqttAdapter, context: Context, terms: Terms) -> None:
        self._adapter = adapter
        self._context = context
        self._terms = terms
        self._exchange: Exchange | None = None

    async def serve(self, packet: Auth) -> None:
        """Answer a packet of the exchange. Raises MqttError."""
        method, data = (
            packet.properties.authentication_method,
            packet.properties.authentication_data,
        )
        if not self._terms.has_method or method != self._terms.mechanism:
            raise violated("another authentication method than in CONNECT")
        try:
            if packet.reason is Reason.REAUTHENTICATE:
                self._exchange = Exchange(self._context.login, self._adapter.link, method)
                answer = await self._exchange.challenge(data)
                self._send(Reason.CONTINUE_AUTHENTICATION, answer)
            elif packet.reason is Reason.CONTINUE_AUTHENTICATION and self._exchange is not None:
                exchange, self._exchange = self._exchange, None
                principal = await exchange.prove(data)
                if principal.user != self._terms.principal.user:
                    raise MqttError(Reason.NOT_AUTHORIZED, "another user than in CONNECT")
                self._send(Reason.SUCCESS, exchange.signature)
            else:
                raise violated("AUTH that was not asked for")
        except LoginRefused as refused:
            self._adapter.log_refusal(str(refused))
            raise MqttError(Reason.NOT_AUTHORIZED, "login refused") from None

    def _send(self, reason: Reason, data: bytes) -> None:
        properties = Properties(
            authentication_method=self._terms.mechanism, authentication_data=data
        )
        self._adapter.outbox.send(write(Auth(reason, properties), V5))
