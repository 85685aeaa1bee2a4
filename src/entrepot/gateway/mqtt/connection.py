"""An open connection: which packet is served by what.

A client's packets are served in order. Most are served at once; a subscription, which must be on
disk before it is answered, delays everything after it on this connection. Publishing never
waits, only its answer does.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from entrepot.broker.sessions import ConnectionFacts
from entrepot.gateway.mqtt.publishing import Publishing
from entrepot.gateway.mqtt.reauthenticating import Reauthenticating
from entrepot.gateway.mqtt.subscribing import Subscribing
from entrepot.wire.mqtt.packets import (
    V5,
    V31,
    V311,
    Auth,
    Disconnect,
    Pingreq,
    Pingresp,
    Subscribe,
    Unsubscribe,
    write,
)
from entrepot.wire.mqtt.properties import PacketType
from entrepot.wire.mqtt.reasons import MqttError, Reason, violated
from entrepot.wire.mqtt.scan import Acks, Event, Publishes

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session
    from entrepot.gateway.mqtt.adapter import MqttAdapter
    from entrepot.gateway.mqtt.context import Context, Terms
    from entrepot.gateway.mqtt.delivery import Delivery

_PONG = write(Pingresp(), V5)
VERSIONS = {V31: "MQTT 3.1", V311: "MQTT 3.1.1", V5: "MQTT 5.0"}


class Connection:
    __slots__ = (
        "_adapter",
        "_context",
        "_reauthenticating",
        "_subscribing",
        "delivery",
        "memory",
        "publishing",
        "session",
        "terms",
    )

    def __init__(
        self,
        adapter: MqttAdapter,
        context: Context,
        terms: Terms,
        session: Session,
        delivery: Delivery,
    ) -> None:
        self._adapter = adapter
        self._context = context
        self.terms = terms
        self.session = session
        self.delivery = delivery
        self.memory = context.memory
        vhost = context.broker.vhosts.default
        self.publishing = Publishing(adapter, context, terms, session)
        self._reauthenticating = Reauthenticating(adapter, context, terms)
        rewrite = context.rewriting.filter
        self._subscribing = Subscribing(adapter.outbox, terms, session, vhost.name, rewrite)

    def serve(self, event: Event) -> Awaitable[None] | None:
        """Serve an event. Raises a PeerError."""
        if isinstance(event, Publishes):
            publishing = self.publishing
            if publishing.repeats and not self._context.unordered.has_all(event.messages):
                return self.publishing.publish_after_repeats(event)
            self.publishing.publish(event)
        elif isinstance(event, Acks):
            if event.type is PacketType.PUBREL:
                self.publishing.release(event.ids)
            else:
                self.delivery.answered(event)
        elif isinstance(event, Pingreq):
            self._adapter.outbox.send(_PONG)
        elif isinstance(event, Subscribe):
            return self._subscribing.subscribe(event)
        elif isinstance(event, Unsubscribe):
            return self._subscribing.unsubscribe(event)
        elif isinstance(event, Disconnect):
            self._leave(event)
        elif isinstance(event, MqttError):
            raise event
        elif isinstance(event, Auth):
            return self._reauthenticating.serve(event)
        else:
            raise violated(f"{type(event).__name__} on an open connection")
        return None

    def _leave(self, packet: Disconnect) -> None:
        """Handle the client's DISCONNECT."""
        expiry_s = packet.properties.session_expiry_interval
        if expiry_s and self.terms.session_expiry_ms == 0:
            raise violated("a session expiry that CONNECT did not ask for")
        with_will = packet.reason is not Reason.SUCCESS
        expiry_ms = self.terms.session_expiry_ms
        if expiry_s is not None:
            expiry_ms = self._context.session_expiry_ms(expiry_s)
        self._adapter.leave(expiry_ms, with_will=with_will)

    def facts(self, state: str, connected_ms: int) -> ConnectionFacts:
        context, terms, peer = self._context, self.terms, self._adapter.link.peer
        return ConnectionFacts(
            name=f"{peer} -> {context.host}:{context.port}",
            peer=peer,
            user=terms.principal.user,
            vhost=context.broker.vhosts.default.name,
            protocol=VERSIONS[terms.version],
            connected_ms=connected_ms,
            state=state,
            is_tls=context.is_tls,
            mechanism=terms.mechanism,
            heartbeat_s=terms.keep_alive_s,
            client_properties={"client_id": terms.client_id},
            owner=self,
        )
