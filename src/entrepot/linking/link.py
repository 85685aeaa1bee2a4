"""A link: sends what waits in the transmission queue of a neighbour, and settles what it confirms.

It is a consumer of the queue, and a client of the neighbour over AMQP. Messages are sent in
batches, one after the other, and in the order of the queue. When the connection is lost, what was
not confirmed is sent again over the next one, with the same ids; so a neighbour that deduplicates
them gets each once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from entrepot.broker.links import LinkFacts
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.client.amqp_publisher import (
    AmqpPublisher,
    AmqpRefused,
    BasicProperties,
    EncodedMessage,
    PublishResult,
)
from entrepot.client.errors import ClientError
from entrepot.client.queue_leases import Login
from entrepot.core import limits
from entrepot.core.message import Message
from entrepot.core.ports import Clock, Net
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.rabbitmq.names import LINK_EXCHANGE, MANAGER
from entrepot.linking.table import ROUTES, Announcement, RoutingTable
from entrepot.wire.amqp.errors import ReplyCode
from entrepot.wire.amqp.properties import PropertyView

log = logging.getLogger("entrepot.link")

_ID, _HOPS = "x-deduplication-header", "x-link-hops"
_HEARTBEAT_S = 30
_IDLE_S = 1.0  # How often it is looked whether the connection is still there.


class _Held(NamedTuple):
    lane: int
    offset: int
    message: Message


class ManagerLink:
    """Implements `Consumer` for its transmission queue."""

    auto_ack = False
    is_exclusive = True
    priority = 0

    def __init__(
        self,
        neighbour: str,
        address: str,
        login: Login,
        net: Net,
        clock: Clock,
        table: RoutingTable,
        queue: Queue,
        identity: str,
        *,
        stores: bool,
        vhost: str = "/",
        refresh: Callable[[], None],
    ) -> None:
        """`identity` begins the ids of its messages; `refresh` updates the table.

        Without `stores` a message keeps the id that it came with: what a crash takes here comes
        again from where it is stored.
        """
        self.neighbour = neighbour
        self.tag = f"link to {neighbour}"
        self._address = address
        self._login = login
        self._net = net
        self._clock = clock
        self._table = table
        self.queue = queue
        self._identity = identity
        self._stores = stores
        self._vhost = vhost
        self._refresh = refresh
        self._held: list[_Held] = []  # In the order of the queue: not sent, or not confirmed.
        self._held_bytes = 0
        self._wake = asyncio.Event()
        self._announced: Announcement | None = None
        self._announced_s = 0.0
        self._publisher: AmqpPublisher | None = None
        self._deduplicates = True  # The neighbour has the exchange for that, as far as is known.
        self._problem: str | None = None
        self._sent = self._undeliverable = self._connections = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.queue.add_consumer(self)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self.queue.remove_consumer(self)

    def facts(self) -> LinkFacts:
        return LinkFacts(
            self.neighbour,
            self._address,
            self._publisher is not None,
            self._deduplicates,
            self._problem,
            self.queue.ready_count + len(self._held),
            self._sent,
            self._undeliverable,
            self._connections,
        )

    # --- Consumer

    def room(self) -> int:
        if self._held_bytes > limits.LINK_BYTES_MAX:
            return 0
        return max(0, limits.LINK_MESSAGES_MAX - len(self._held))

    def deliver(self, lane: int, taken: Taken) -> None:
        for offset, message in zip(taken.offsets, taken.run.messages, strict=True):
            self._held.append(_Held(lane, offset, message))
            self._held_bytes += len(message[1])
        self._wake.set()

    def cancelled(self) -> None:
        self._problem = "its transmission queue is deleted"
        if self._task is not None:
            self._task.cancel()

    def activated(self, is_active: bool) -> None:
        """Do nothing: it is the only consumer."""

    # --- connecting

    async def _run(self) -> None:
        retry_s = limits.BRIDGE_RETRY_MS_MIN / 1_000
        while True:
            connections = self._connections
            try:
                await self._serve()
            except (ClientError, OSError) as error:
                self._problem = str(error) or type(error).__name__
                is_unknown = isinstance(error, AmqpRefused) and error.code == ReplyCode.NOT_FOUND
                if is_unknown and self._deduplicates:
                    self._deduplicates = False  # Another broker of AMQP: at least once.
                    continue
            finally:
                publisher, self._publisher = self._publisher, None
                if publisher is not None:
                    publisher.close()
            if self._connections > connections:
                retry_s = limits.BRIDGE_RETRY_MS_MIN / 1_000
            log.warning("link to %s: %s; again in %.0f s", self.neighbour, self._problem, retry_s)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, limits.BRIDGE_RETRY_MS_MAX / 1_000)

    async def _serve(self) -> None:
        """Connect, and send until the connection is lost. Raises ClientError, OSError."""
        publisher = await AmqpPublisher.open(
            self._net, self._address, self._login, vhost=self._vhost, heartbeat_s=_HEARTBEAT_S
        )
        self._publisher = publisher
        name = publisher.server_properties.get(MANAGER, self.neighbour)
        if name != self.neighbour:  # It would take what is for another one as its own.
            raise ClientError(f"{self._address} is the manager {name}")
        if self._deduplicates:
            await publisher.check_exchange(LINK_EXCHANGE)
        self._problem, self._announced = None, None
        self._connections += 1
        log.info("link to %s: connected to %s", self.neighbour, self._address)
        while True:
            publisher.check_open()
            if self._deduplicates:
                await self._announce(publisher)
            if self._held:
                await self._send(publisher)
            else:
                await self._wait(_IDLE_S)

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _announce(self, publisher: AmqpPublisher) -> None:
        """Tell the neighbour what is reached through us: when that changes, and now and then."""
        self._refresh()
        announcement = self._table.announcement(self.neighbour)
        now_s = self._clock.monotonic()
        is_due = now_s >= self._announced_s + limits.LINK_ANNOUNCE_MS / 1_000
        if announcement == self._announced and not is_due:
            return
        properties = BasicProperties(content_type="application/json")
        body = msgspec.json.encode(announcement)
        message = EncodedMessage.of("", ROUTES, properties, body)
        await publisher.offer([message], mandatory=False)
        self._announced, self._announced_s = announcement, now_s

    # --- sending

    async def _send(self, publisher: AmqpPublisher) -> None:
        """Send all that is held, and settle what is confirmed. Raises ClientError."""
        batch, late = [], []
        for held in self._held:
            encoded = self._encoded(held)
            if encoded is None:
                late.append(held)
            else:
                batch.append((held, encoded))
        if late:
            log.warning("link to %s: %d messages have gone too far", self.neighbour, len(late))
            self._reject(late)
        if batch:
            result = await publisher.offer([encoded for _, encoded in batch], mandatory=True)
            await self._answered(batch, result)

    def _encoded(self, held: _Held) -> EncodedMessage | None:
        """Return the message for the neighbour; None if it has gone too far."""
        envelope, body = held.message
        view = PropertyView(AMQP.head_of(envelope))
        hops = view.header(_HOPS)
        hops = hops + 1 if isinstance(hops, int) else 1
        if hops > limits.LINK_HOPS_MAX:
            return None
        identity = view.header(_ID)
        if self._stores or not isinstance(identity, str):
            identity = f"{self._identity}-{held.lane}-{held.offset}"
        properties = view.patch_headers({_ID: identity, _HOPS: hops})
        exchange = LINK_EXCHANGE if self._deduplicates else ""
        return EncodedMessage(exchange, self._key(envelope.subject), properties, body)

    def _key(self, subject: str) -> str:
        """Return the key for the neighbour: without a manager if that is the neighbour itself."""
        found = self._table.target(subject)
        if found is None:
            return subject
        name, manager = found
        return name if manager == self.neighbour else f"{name}@{manager}"

    async def _answered(
        self, batch: Sequence[tuple[_Held, EncodedMessage]], result: PublishResult
    ) -> None:
        nacked = dict.fromkeys(result.nacked)
        returned = dict.fromkeys(
            str(PropertyView(each.properties).header(_ID)) for each in result.returned
        )
        settled, rejected, refused = [], [], []
        for place, (held, encoded) in enumerate(batch):
            if place in nacked:
                refused.append(held)
            elif returned and str(PropertyView(encoded.properties).header(_ID)) in returned:
                rejected.append(held)
            else:
                settled.append(held)
        self._sent += len(settled)
        if result.returned:
            self._problem = f"undeliverable, {result.returned[-1].reason}"
            log.warning("link to %s: %s", self.neighbour, self._problem)
        self._conclude(settled, self.queue.settle)
        self._reject(rejected)
        if refused:
            self._problem = "the neighbour refuses messages: is a queue of it full?"
            self._conclude(refused, self.queue.requeue)
            await asyncio.sleep(limits.DEAD_LETTER_RETRY_MS / 1_000)
        self.queue.dispatch()

    def _reject(self, rejected: Sequence[_Held]) -> None:
        self._undeliverable += len(rejected)
        self._conclude(rejected, self.queue.reject)

    def _conclude(
        self, concluded: Sequence[_Held], answer: Callable[[object, int, Sequence[int]], None]
    ) -> None:
        """Answer the queue for these messages, which are then held no longer."""
        lanes: dict[int, list[int]] = {}
        for lane, offset, message in concluded:
            lanes.setdefault(lane, []).append(offset)
            self._held_bytes -= len(message[1])
        gone = dict.fromkeys((each.lane, each.offset) for each in concluded)
        self._held = [each for each in self._held if (each.lane, each.offset) not in gone]
        for lane, offsets in lanes.items():
            answer(self, lane, offsets)
