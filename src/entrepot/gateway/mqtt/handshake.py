"""From CONNECT to CONNACK: login, client identifier, session, will, and what both sides accept."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, Principal, ResourceKind
from entrepot.broker.login import LoginRefused
from entrepot.broker.session import ports
from entrepot.broker.subject.name import to_subject
from entrepot.core.errors import SessionRefused, StorageError
from entrepot.core.message import Envelope
from entrepot.core.ports import Link
from entrepot.gateway.mqtt.authentication import Exchange, log_in, mechanism_of
from entrepot.gateway.mqtt.context import BRIDGE_LEAD, NEVER_S, Context, Terms
from entrepot.gateway.mqtt.delivery import Delivery
from entrepot.gateway.mqtt.format import MQTT
from entrepot.gateway.mqtt.publishing import PRIVATE
from entrepot.wire.mqtt import limits as mqtt_limits
from entrepot.wire.mqtt.packets import (
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Will,
    write,
)
from entrepot.wire.mqtt.properties import NO_PROPERTIES, Properties, encode_raw
from entrepot.wire.mqtt.reasons import MqttError, Reason, UnknownVersion, return_code, violated
from entrepot.wire.mqtt.scan import Event

if TYPE_CHECKING:
    from entrepot.gateway.mqtt.adapter import MqttAdapter

_CLIENT_ID_BYTES_MAX = 1_024
_TOKEN_BYTES = 12


class HandshakeState(Enum):
    """What the client has to send next."""

    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    OVER = "over"


class Handshake:
    def __init__(self, adapter: MqttAdapter, link: Link, context: Context) -> None:
        self._adapter = adapter
        self._link = link
        self._context = context
        self._state = HandshakeState.CONNECTING
        self._connect = Connect()
        self._exchange: Exchange | None = None

    def serve(self, event: Event) -> Awaitable[None] | None:
        """Serve an event of a connection that is not open yet. Raises MqttError."""
        if isinstance(event, MqttError):
            raise event
        match self._state, event:
            case HandshakeState.CONNECTING, Connect():
                self._connect = event
                return self._begin()
            case HandshakeState.AUTHENTICATING, Auth():
                return self._continue(event)
            case HandshakeState.AUTHENTICATING, Disconnect():
                self._adapter.hang_up("closed by the client")
                return None
            case _:
                raise violated(f"{type(event).__name__} before the login")

    @property
    def version(self) -> int | None:
        """Return the client's version; None before CONNECT."""
        return None if self._state is HandshakeState.CONNECTING else self._connect.version

    async def _begin(self) -> None:
        packet = self._connect
        self._state = HandshakeState.AUTHENTICATING
        method = packet.properties.authentication_method
        try:
            if method is None:
                await self._open(await log_in(self._context.login, self._link, packet))
                return
            self._exchange = Exchange(self._context.login, self._link, method)
            answer = await self._exchange.challenge(packet.properties.authentication_data)
        except LoginRefused as refused:
            self._refuse_login(refused)
            return
        properties = Properties(authentication_method=method, authentication_data=answer)
        self._send(Auth(Reason.CONTINUE_AUTHENTICATION, properties))

    async def _continue(self, packet: Auth) -> None:
        exchange, properties = self._exchange, packet.properties
        if exchange is None or packet.reason is not Reason.CONTINUE_AUTHENTICATION:
            raise violated("AUTH that was not asked for")
        if properties.authentication_method != exchange.method:
            raise violated("another authentication method than in CONNECT")
        try:
            principal = await exchange.prove(properties.authentication_data)
        except LoginRefused as refused:
            self._refuse_login(refused)
            return
        await self._open(principal)

    def _refuse_login(self, refused: LoginRefused) -> None:
        self._adapter.log_refusal(str(refused))
        has_named_one = self._connect.user is not None or self._exchange is not None
        reason = Reason.BAD_USER_NAME_OR_PASSWORD if has_named_one else Reason.NOT_AUTHORIZED
        self.refuse(MqttError(reason, "login refused"))
        self._adapter.hang_up("login refused")

    def refuse(self, error: MqttError) -> None:
        """Tell the client why it cannot connect, where its version has words for it."""
        version, reason = self.version, error.reason
        if version is None:
            if not isinstance(error, UnknownVersion):
                return  # Not a client of MQTT.
            # Mosquitto's bridges set the highest bit, and try again without it.
            version = V5 if error.version & 0x7F >= V5 else V311
        if version == V5:
            properties = Properties(reason_string=error.text)
            self._send(Connack(reason=reason, properties=properties), version)
        elif return_code(reason) is not None:
            self._send(Connack(reason=reason), version)

    def _send(self, packet: Auth | Connack, version: int | None = None) -> None:
        self._adapter.outbox.send(write(packet, version or self._connect.version))

    # --- after the login

    async def _open(self, principal: Principal) -> None:
        packet, context = self._connect, self._context
        client_id = packet.client_id or self._assigned_id()
        if len(client_id.encode()) > _CLIENT_ID_BYTES_MAX:
            raise MqttError(Reason.CLIENT_IDENTIFIER_NOT_VALID, "a client identifier too long")
        if client_id.startswith(BRIDGE_LEAD):
            text = "a client identifier of the broker's bridges"
            raise MqttError(Reason.CLIENT_IDENTIFIER_NOT_VALID, text)
        principal = principal.named(client_id)
        terms = self._terms(principal, client_id)
        will = None if packet.will is None else self._will(packet.will, principal)
        delivery = Delivery(self._adapter, context, terms)
        vhost = context.broker.vhosts.default
        try:
            session, is_present = await vhost.sessions.open(
                client_id,
                principal.user,
                delivery,
                clean_start=packet.clean_start,
                expiry_ms=terms.session_expiry_ms,
                will=will,
                kept_max=context.kept_sessions_max,
            )
        except (SessionRefused, StorageError) as error:
            raise MqttError(Reason.SERVER_UNAVAILABLE, str(error)) from None
        delivery.session = session
        self._state = HandshakeState.OVER
        is_open = self._adapter.opened(terms, session, delivery)
        if is_open:
            self._send(Connack(is_present, properties=self._answer(terms)))
            session.attach(delivery)

    def _assigned_id(self) -> str:
        """Return an identifier for a client that has none. Raises MqttError."""
        packet = self._connect
        if packet.version == V31 or (packet.version != V5 and not packet.clean_start):
            text = "no client identifier"
            raise MqttError(Reason.CLIENT_IDENTIFIER_NOT_VALID, text)
        return f"auto-{self._context.entropy.token(_TOKEN_BYTES).hex()}"

    def _terms(self, principal: Principal, client_id: str) -> Terms:
        packet, context = self._connect, self._context
        given = packet.properties
        if packet.version == V5:
            expiry_s = given.session_expiry_interval or 0
        else:
            expiry_s = 0 if packet.clean_start else NEVER_S
        keep_alive_s, keep_alive_s_max = packet.keep_alive_s, context.keep_alive_s_max
        if packet.version == V5 and keep_alive_s_max:
            keep_alive_s = min(keep_alive_s or keep_alive_s_max, keep_alive_s_max)
        return Terms(
            packet.version,
            client_id,
            principal,
            mechanism_of(context.login, self._link, packet),
            keep_alive_s,
            min(given.receive_maximum or mqtt_limits.IN_FLIGHT_MAX, mqtt_limits.IN_FLIGHT_MAX),
            given.maximum_packet_size,
            given.topic_alias_maximum or 0,
            context.session_expiry_ms(expiry_s),
            self._exchange is not None,
        )

    def _will(self, will: Will, principal: Principal) -> ports.Will | None:
        """Return the will. Raises MqttError if the client has no right to publish it."""
        subject = to_subject(self._context.rewriting.topic(will.topic))
        if subject.startswith(PRIVATE):
            return None  # It will not be published: Mosquitto's bridges have such a will.
        if not principal.may(Operation.WRITE, ResourceKind.TOPIC, subject):
            raise MqttError(Reason.NOT_AUTHORIZED, "a will that must not be published")
        delay_s = will.properties.will_delay_interval or 0
        properties = replace(will.properties, will_delay_interval=None)
        flags = will.qos << 1 | will.is_retained
        head = bytes((flags,)) + encode_raw(properties)
        exchange = self._context.broker.vhosts.default.subject_exchange
        envelope = Envelope(exchange, subject, head, MQTT)
        return ports.Will((envelope, will.payload), will.is_retained, delay_s * 1_000)

    def _answer(self, terms: Terms) -> Properties:
        """Return the properties of CONNACK: what the client has to know."""
        if terms.version != V5:
            return NO_PROPERTIES
        packet, exchange = self._connect, self._exchange
        information = None
        if packet.properties.request_response_information:
            information = f"responses/{sha256(terms.client_id.encode()).hexdigest()[:24]}"
        is_changed = terms.keep_alive_s != packet.keep_alive_s
        asked_s = packet.properties.session_expiry_interval or 0
        kept_s = NEVER_S if terms.session_expiry_ms is None else terms.session_expiry_ms // 1_000
        bytes_max = self._context.message_bytes_max + mqtt_limits.PUBLISH_EXTRA_BYTES_MAX
        return Properties(
            session_expiry_interval=kept_s if kept_s != asked_s else None,
            assigned_client_identifier=None if packet.client_id else terms.client_id,
            server_keep_alive=terms.keep_alive_s if is_changed else None,
            authentication_method=None if exchange is None else exchange.method,
            authentication_data=None if exchange is None else exchange.signature,
            response_information=information,
            receive_maximum=mqtt_limits.RECEIVE_MAXIMUM,
            topic_alias_maximum=mqtt_limits.TOPIC_ALIASES_IN_MAX,
            maximum_packet_size=bytes_max,
        )
