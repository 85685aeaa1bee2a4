"""SUBSCRIBE and UNSUBSCRIBE: rights are checked here, and the session does the rest.

A filter is permitted if the client may read the topic of that name: a right to all topics, or to
all that begin with some text, covers filters with wildcards. What matches a filter is checked
again when it is delivered, so that a filter shows nobody what they must not read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, Principal, ResourceKind
from entrepot.broker.session import ports
from entrepot.broker.subject.name import to_subject
from entrepot.core.errors import PeerError, SessionRefused, StorageError
from entrepot.wire.mqtt.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe, write
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.topics import shared_filter

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session
    from entrepot.gateway.mqtt.context import Terms
    from entrepot.gateway.mqtt.outbox import Outbox

_QUEUE = "$queue/"
Wanted = dict[int, ports.Subscription]  # What is permitted, by place in the packet.


class Subscribing:
    __slots__ = ("_outbox", "_rewrite", "_session", "_terms", "_vhost")

    def __init__(
        self,
        outbox: Outbox,
        terms: Terms,
        session: Session,
        vhost: str,
        rewrite: Callable[[str], str],
    ) -> None:
        self._outbox = outbox
        self._rewrite = rewrite  # Returns the filter that is meant by one. Raises MqttError.
        self._terms = terms
        self._session = session
        self._vhost = vhost

    def subscribe(self, packet: Subscribe) -> Awaitable[None] | None:
        """Subscribe to the filters that are permitted, then send retained messages.

        Returns what must be awaited, if it takes longer than this turn.
        """
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else 0
        reasons: dict[int, Reason] = {}  # Of refused filters, by place.
        wanted: Wanted = {}
        for place, each in enumerate(packet.subscriptions):
            try:
                filter = self._rewrite(each.filter)
            except MqttError as error:
                reasons[place] = error.reason
                continue
            if _may_read(self._terms.principal, filter, self._vhost):
                wanted[place] = _wanted(each, filter, identifier)
            else:
                reasons[place] = Reason.NOT_AUTHORIZED
        granted = self._session.subscribe_now([*wanted.values()])
        if granted is None:
            return self._subscribe(packet, wanted, reasons)
        self._subscribed(packet, wanted, granted, reasons)
        return None

    async def _subscribe(
        self, packet: Subscribe, wanted: Wanted, reasons: dict[int, Reason]
    ) -> None:
        granted: list[ports.Granted] = []
        try:
            if wanted:
                granted = await self._session.subscribe([*wanted.values()])
        except SessionRefused:
            reasons |= dict.fromkeys(wanted, Reason.QUOTA_EXCEEDED)
        except (PeerError, StorageError):
            reasons |= dict.fromkeys(wanted, Reason.UNSPECIFIED_ERROR)
        self._subscribed(packet, wanted, granted, reasons)

    def _subscribed(
        self,
        packet: Subscribe,
        wanted: Wanted,
        granted: Sequence[ports.Granted],
        reasons: dict[int, Reason],
    ) -> None:
        for place, answer in zip(wanted, granted, strict=False):
            quality = answer.quality
            reasons[place] = Reason.QUOTA_EXCEEDED if quality is None else Reason(quality)
        codes = tuple(reasons[place] for place in range(len(packet.subscriptions)))
        self._outbox.send(write(Suback(packet.packet_id, codes), self._terms.version))
        if granted:
            self._session.send_retained([*wanted.values()], granted)

    async def unsubscribe(self, packet: Unsubscribe) -> None:
        try:
            filters = [self._rewrite(each) for each in packet.filters]
            found = await self._session.unsubscribe(filters)
        except (PeerError, StorageError):
            reasons = (Reason.UNSPECIFIED_ERROR,) * len(packet.filters)
        else:
            reasons = tuple(
                Reason.SUCCESS if existed else Reason.NO_SUBSCRIPTION_EXISTED for existed in found
            )
        self._outbox.send(write(Unsuback(packet.packet_id, reasons), self._terms.version))


def _wanted(each: Subscription, filter: str, identifier: int) -> ports.Subscription:
    return ports.Subscription(
        filter,
        each.qos,
        each.no_local,
        each.retain_as_published,
        each.retain_handling,
        identifier,
    )


def _may_read(principal: Principal, text: str, vhost: str) -> bool:
    """Return whether the client may subscribe to this filter. Raises MqttError."""
    if principal.is_unlimited:
        return True
    shared = shared_filter(text)
    filter = text if shared is None else shared.filter
    if filter.startswith(_QUEUE):
        name = filter.removeprefix(_QUEUE)
        return principal.may(Operation.READ, ResourceKind.QUEUE, name, vhost)
    return principal.may(Operation.READ, ResourceKind.TOPIC, to_subject(filter))
