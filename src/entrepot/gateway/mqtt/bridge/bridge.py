"""A bridge: a session here, and a connection that is made again whenever it is lost.

The session subscribes to what goes to the other side and lives as long as the bridge is in the
settings; what matches waits in it while there is no connection. It does not get what it publishes
itself, so nothing that came from the other side goes back there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from entrepot.broker.access import Access, Operation, Principal, ResourceKind
from entrepot.broker.bridges import BridgeFacts
from entrepot.broker.session import ports
from entrepot.broker.session.session import Session
from entrepot.core import limits
from entrepot.core.errors import PeerError, SessionRefused, StorageError
from entrepot.core.ports import Link, Net
from entrepot.gateway.mqtt.bridge.connection import BridgeConnection
from entrepot.gateway.mqtt.bridge.topics import Topics
from entrepot.gateway.mqtt.context import BRIDGE_LEAD, Context
from entrepot.wire.mqtt.packets import V5

log = logging.getLogger("entrepot.bridge")


class BridgePrincipal(Principal):
    """The broker itself: what it bridges is what the settings say."""

    __slots__ = ()

    def __init__(self, access: Access, user: str, host: str) -> None:
        super().__init__(access, user, host)
        self.is_unlimited = True

    def may(
        self, operation: Operation, kind: ResourceKind, name: str = "", vhost: str = ""
    ) -> bool:
        return True


class Bridge:
    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        net: Net,
        context: Context,
        topics: Topics,
        *,
        version: int = V5,
        client_id: str = "",
        user: str | None = None,
        password: str | None = None,
        keep_alive_s: int = 60,
    ) -> None:
        self.name = name
        self.context = context
        self.topics = topics
        self.version = version
        self.client_id = client_id or f"entrepot-{name}"
        self.user = user
        self.password = password
        self.keep_alive_s = keep_alive_s
        self.session_id = BRIDGE_LEAD + name
        access: Access = context.broker.access
        self.principal = BridgePrincipal(access, self.session_id, "")
        self.problem: str | None = None  # Why it is not connected, or what was refused.
        self.received = 0  # Messages that came from the other side.
        self._address = address
        self._net = net
        self._connection: BridgeConnection | None = None  # Open, and both sides are ready.
        self._is_bit_known = True  # The other side has not refused the bit of bridges yet.
        self._retry_s = limits.BRIDGE_RETRY_MS_MIN / 1_000
        self._task: asyncio.Task[None] | None = None
        self._connections = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if self._connection is not None:
            self._connection.leave()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # --- the session

    def wanted(self) -> list[ports.Subscription]:
        return [
            ports.Subscription(each.local_filter, each.qos, no_local=True, keeps_retain=True)
            for each in self.topics.routes
            if each.is_out
        ]

    async def open_session(self, receiver: ports.Receiver) -> Session:
        """Open the session and subscribe as the settings say. Raises SessionRefused, StorageError.

        Nothing is delivered before the receiver is attached.
        """
        sessions = self.context.broker.vhosts.default.sessions
        session, _ = await sessions.open(
            self.session_id, self.session_id, receiver, clean_start=False, expiry_ms=None
        )
        wanted = {each.filter: each for each in self.wanted()}
        old = [text for text in session.subscriptions if text not in wanted]
        if old:
            await session.unsubscribe(old)
        new = [each for each in wanted.values() if session.subscriptions.get(each.filter) != each]
        if new:
            await session.subscribe(new)
        return session

    async def _prepare(self) -> None:
        """Make the session, so that it keeps messages before the first connection."""
        receiver = _Nobody()
        session = await self.open_session(receiver)
        session.detach(receiver, expiry_ms=None, with_will=False)

    # --- connections

    def opened(self, connection: BridgeConnection) -> None:
        """Note that both sides are ready."""
        self._connection = connection
        self._connections += 1
        self._retry_s = limits.BRIDGE_RETRY_MS_MIN / 1_000
        self.problem = None
        log.info("bridge %s: connected to %s:%d", self.name, *self._address)

    async def _run(self) -> None:
        is_prepared = False
        while True:
            try:
                if not is_prepared:
                    await self._prepare()
                    is_prepared = True
                self.problem = await self._connect()
            except (OSError, TimeoutError, PeerError, SessionRefused, StorageError) as error:
                self.problem = str(error) or type(error).__name__
            except Exception as error:
                self.problem = "internal error"
                self.context.broker.faults.caught(f"bridge {self.name}", error)
            self._connection = None
            log.warning("bridge %s: %s; again in %.0f s", self.name, self.problem, self._retry_s)
            share = 0.5 + self.context.entropy.token(1)[0] / 512  # So that not all come at once.
            await asyncio.sleep(self._retry_s * share)
            self._retry_s = min(2 * self._retry_s, limits.BRIDGE_RETRY_MS_MAX / 1_000)

    async def _connect(self) -> str:
        """Connect, and wait until the connection is over; return why. Raises OSError."""
        made: list[BridgeConnection] = []
        with_bit = self.version != V5 and self._is_bit_known

        def attach(link: Link) -> BridgeConnection:
            made.append(BridgeConnection(link, self, with_bit=with_bit))
            return made[0]

        async with asyncio.timeout(limits.BRIDGE_CONNECT_MS_MAX / 1_000):
            await self._net.connect(*self._address, attach)
        (connection,) = made
        try:
            reason = await connection.over
        except asyncio.CancelledError:
            connection.link.abort("the broker stops")
            raise
        if self.version != V5 and not connection.was_opened:
            # Brokers that do not know the bit refuse it, in one way or another.
            self._is_bit_known = not with_bit
        return reason

    # --- facts

    def facts(self) -> BridgeFacts:
        session = self.context.broker.vhosts.default.sessions.find(self.session_id)
        queue = None if session is None else session.queue
        return BridgeFacts(
            name=self.name,
            address="{}:{}".format(*self._address),
            is_connected=self._connection is not None,
            problem=self.problem,
            waiting=0 if queue is None else queue.ready_count + queue.unacked_count,
            received=self.received,
            connections=self._connections,
        )


class _Nobody:
    """The receiver of a session that is only to be made."""

    def room(self) -> int:
        return 0

    def receive(self, broadcast: ports.Broadcast, way: ports.Way) -> None:
        """Do nothing: nobody is connected."""

    def deliver(self, parcel: ports.Parcel) -> None:
        raise AssertionError("there was no room")

    def release(self, numbers: Sequence[int]) -> None:
        """Do nothing: it is never attached."""

    def taken_over(self) -> None:
        """Do nothing: the connection has the session."""

    def ended(self, reason: str) -> None:
        """Do nothing: it is made again with the next connection."""
