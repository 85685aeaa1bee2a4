"""HTTP endpoints that subscribe: which are allowed, and who sends to each.

What is to be sent to an endpoint waits in a durable queue, `sns.` and the subscription's id, for
an hour at most. The first message there asks the endpoint to confirm the subscription.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from entrepot.broker.broker import Broker
from entrepot.broker.push import (
    PushSubscription,
    subscription_deleted_record,
    subscription_record,
)
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings, QueueSpec
from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.core.errors import InvalidQueue
from entrepot.core.ports import Clock, Entropy, Net
from entrepot.gateway.sqs import queue_attributes
from entrepot.gateway.sqs.sns import delivery_policy, url
from entrepot.gateway.sqs.sns.delivery import Delivery
from entrepot.gateway.sqs.sns.posting import Headers, PostFailed, post_status
from entrepot.gateway.sqs.sns.url import Url
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError

log = logging.getLogger("entrepot.sns")

PREFIX = "sns."  # Of the queues of endpoints.
PROTOCOLS = ("http", "https")
DELIVERY_POLICY, REDRIVE = "DeliveryPolicy", "RedrivePolicy"


@dataclass(frozen=True, slots=True)
class _QueueDeclaration:
    """The queue of an endpoint. Implements `Declaration`."""

    name: str
    settings: QueueSettings
    exclusive: bool = False

    def spec(self) -> QueueSpec:
        return QueueSpec(self.name, durable=True, settings=self.settings)

    def check_same(self, current: QueueSpec) -> None:
        """Accept the queue as it is: its settings may have been changed by hand."""


class Endpoints:
    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        entropy: Entropy,
        nets: dict[str, Net],
        allowed: Iterable[Url],
    ) -> None:
        """`nets` are by scheme."""
        self._broker = broker
        self._clock = clock
        self._entropy = entropy
        self._nets = nets
        self._allowed = tuple(allowed)
        self._deliveries: dict[str, Delivery] = {}  # By the subscription's id.
        self._slots = asyncio.Semaphore(sqs_limits.POSTS_MAX)

    def allows(self, endpoint: str) -> bool:
        parsed = url.parse(endpoint)
        return parsed is not None and url.is_allowed(parsed, self._allowed)

    async def start(self) -> None:
        """Send what waits. Raises StorageError, PeerError."""
        for each in self._broker.push.subscriptions.all():
            if not each.endpoint:
                continue
            if self.allows(each.endpoint):
                await self._begin(each)
            else:
                log.warning("nothing is sent to %s: sns.endpoints does not have it", each.endpoint)

    async def stop(self) -> None:
        deliveries, self._deliveries = self._deliveries, {}
        for each in deliveries.values():
            await each.stop()

    def new_token(self) -> str:
        return self._entropy.token(32).hex()

    async def add(self, made: PushSubscription) -> Queue:
        """Store a subscription and begin to send; return the queue for its messages. Raises
        StorageError, PeerError."""
        await self._broker.change_security(subscription_record(made))
        return await self._begin(made)

    async def change(self, changed: PushSubscription) -> None:
        """Apply the settings of a subscription that is stored."""
        dead_letters = _dead_letters(changed)
        vhost = self._broker.vhosts.default
        await vhost.change_queue(changed.queue, lambda old: replace(old, **dead_letters))
        found = self._deliveries.get(changed.id)
        if found is not None:
            found.policy = delivery_policy.read(changed.settings.get(DELIVERY_POLICY, ""))

    async def remove(self, removed: PushSubscription) -> None:
        """Send nothing more, and drop what waits."""
        found = self._deliveries.pop(removed.id, None)
        if found is not None:
            await found.stop()
        if removed.queue in self._broker.vhosts.default.queues:
            await self._broker.vhosts.default.delete_queue(removed.queue, None)

    async def confirm(self, topic: str, token: str) -> PushSubscription | None:
        """Confirm the subscription that has this token; None if there is none, or not any more."""
        for each in self._broker.push.subscriptions.of(topic):
            if each.token and hmac.compare_digest(each.token.encode(), token.encode()):
                if self.is_late(each):
                    return None
                if not each.is_pending:
                    return each
                confirmed = replace(each, is_pending=False)
                await self._broker.change_security(subscription_record(confirmed))
                return confirmed
        return None

    def is_late(self, subscription: PushSubscription) -> bool:
        """Return whether a subscription was not confirmed in time."""
        age_ms = self._clock.now_ms() - subscription.made_ms
        return subscription.is_pending and age_ms > sqs_limits.CONFIRMATION_S * 1_000

    async def remove_late(self, topic: str) -> None:
        for each in self._broker.push.subscriptions.of(topic):
            if each.endpoint and self.is_late(each):
                await self._broker.change_security(subscription_deleted_record(each.id))
                await self.remove(each)

    # --- sending

    async def _begin(self, made: PushSubscription) -> Queue:
        settings = QueueSettings(ttl_ms=sqs_limits.DELIVERY_S_MAX * 1_000, **_dead_letters(made))
        declaration = _QueueDeclaration(made.queue, settings)
        queue = await self._broker.vhosts.default.declare_queue(declaration, None)
        if not isinstance(queue, Queue):
            raise InvalidQueue(f"'{made.queue}' is a topic, and should be the queue of an endpoint")
        to = url.parse(made.endpoint)
        assert to is not None

        async def post(body: bytes, headers: Headers, content_type: str) -> int:
            net = self._nets.get(to.scheme)
            if net is None:
                raise PostFailed(f"{to.scheme} is not spoken here")
            async with self._slots:
                return await post_status(net, to, body, headers, content_type)

        policy = delivery_policy.read(made.settings.get(DELIVERY_POLICY, ""))
        delivery = Delivery(queue, policy, post, self._clock, self._broker.faults)
        self._deliveries[made.id] = delivery
        delivery.start()
        return queue


def read_redrive(text: str) -> str | None:
    """Return the queue for dead letters that a redrive policy names; None for an empty one. Raises
    SqsError."""
    if not text:
        return None
    try:
        policy = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        policy = {}
    name = queue_attributes.name_in(policy.get("deadLetterTargetArn", ""))
    if name is None or len(policy) != 1:
        raise SqsError("InvalidParameter", f"Invalid parameter: {REDRIVE}")
    return name


def _dead_letters(subscription: PushSubscription) -> dict[str, Any]:
    """Return the settings of its queue that say where dead letters go."""
    target = read_redrive(subscription.settings.get(REDRIVE, ""))
    return {
        "dead_letter_exchange": None if target is None else DEFAULT_EXCHANGE,
        "dead_letter_key": target,
        "dead_letter_at_least_once": target is not None,
    }
