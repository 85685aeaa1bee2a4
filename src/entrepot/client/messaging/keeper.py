"""The connection of a client: made when it is needed, and made anew when it breaks.

Whoever needs it waits until it is there. What lives longer than a connection (messages that are
not confirmed, consumers, subscriptions) is put on the next one before anybody else gets it. There
may be several addresses: the next one is tried when one does not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from entrepot.client.amqp_connection import TIMEOUT_S
from entrepot.client.errors import ClientError, Unreachable
from entrepot.client.messaging.publishing import Publishing
from entrepot.client.messaging.session import Channel, Session
from entrepot.client.queue_leases import Login
from entrepot.core.ports import Net

PATIENCE_S = 60.0  # So long without a broker, and it is an error.
HEARTBEAT_S = 30
PAUSE_S_FIRST, PAUSE_S_MAX = 0.02, 1.0

logger = logging.getLogger("entrepot.client")

_Result = TypeVar("_Result")


class Living(Protocol):
    """Something that is put on each new connection."""

    async def attach(self, session: Session) -> None:
        """Raises ClientError."""

    def ended(self, failure: ClientError) -> None:
        """Handle that there will be no connection."""


class Keeper:
    def __init__(
        self,
        net: Net,
        addresses: str,
        login: Login,
        vhost: str = "/",
        *,
        patience_s: float = PATIENCE_S,
        connect_s: float | None = None,
    ) -> None:
        self.publishing = Publishing()
        self.patience_s = patience_s
        self._connect_s = connect_s  # The first time, if that is another time.
        self._net = net
        self._addresses = [each.strip() for each in addresses.split(",") if each.strip()]
        self._login = login
        self._vhost = vhost
        self._session: Session | None = None
        self._connecting: asyncio.Task[Session] | None = None
        self._living: dict[Living, None] = {}
        self.is_closed = False
        self.connections = 0  # How many there have been.

    async def session(self) -> Session:
        """Return the connection. Raises Unreachable, AmqpRefused."""
        if self._session is not None:
            return self._session
        if self.is_closed:
            raise Unreachable("the client is closed")
        return await asyncio.shield(self._connect())

    async def with_channel(self, work: Callable[[Channel], Awaitable[_Result]]) -> _Result:
        """Do something on a channel of its own. When the connection breaks, it is done again."""
        deadline = asyncio.get_running_loop().time() + self.patience_s
        while True:
            try:
                channel = await (await self.session()).channel()
                try:
                    return await work(channel)
                finally:
                    if channel.failure is None:
                        await channel.close()
            except Unreachable:
                if self.is_closed or asyncio.get_running_loop().time() > deadline:
                    raise

    async def live(self, living: Living) -> None:
        """Put it on this connection and on all that come. Raises ClientError."""
        self._living[living] = None
        try:
            while True:
                session = await self.session()
                try:
                    await living.attach(session)
                    return
                except Unreachable:
                    if self.is_closed:
                        raise
        except BaseException:
            self._living.pop(living, None)
            raise

    def leave(self, living: Living) -> None:
        self._living.pop(living, None)

    async def close(self) -> None:
        """Close the connection. What is not confirmed fails."""
        self.is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        session, self._session = self._session, None
        closed = Unreachable("the client was closed before it was confirmed")
        self.publishing.fail(closed)
        for each in list(self._living):
            self.leave(each)
            each.ended(closed)
        if session is not None:
            await session.leave()

    # --- connecting

    def _connect(self) -> asyncio.Task[Session]:
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._until_connected())
            self._connecting.add_done_callback(self._connected)
        return self._connecting

    def _connected(self, task: asyncio.Task[Session]) -> None:
        self._connecting = None
        if task.cancelled() or task.exception() is None:
            return
        failure = task.exception()
        if not isinstance(failure, ClientError):
            failure = Unreachable(f"no connection could be made: {failure!r}")
        self.publishing.fail(failure)
        for each in list(self._living):
            self.leave(each)
            each.ended(failure)

    async def _until_connected(self) -> Session:
        loop = asyncio.get_running_loop()
        limit_s = None if self.connections else self._connect_s
        patience_s = self.patience_s if limit_s is None else limit_s
        deadline, pause_s, number = loop.time() + patience_s, PAUSE_S_FIRST, 0
        while True:
            address = self._addresses[number % len(self._addresses)]
            number += 1
            try:
                session = await Session.open(
                    self._net,
                    address,
                    self._login,
                    vhost=self._vhost,
                    heartbeat_s=HEARTBEAT_S,
                    timeout_s=TIMEOUT_S if limit_s is None else limit_s,
                )
                await self._begin(session)
                return session
            except ClientError as error:
                if not error.retriable or loop.time() + pause_s > deadline:
                    raise
                if number == len(self._addresses):
                    logger.warning("no connection, trying again: %s", error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _begin(self, session: Session) -> None:
        """Put everything on it that lives. Raises Unreachable."""
        self.connections += 1
        publishing = self.publishing
        session.on_acks, session.on_nack = publishing.acks, publishing.nack
        session.on_return = publishing.returned
        session.on_gone = lambda failure: self._gone(session)
        session.check_open()
        self._session = session
        for each in list(self._living) if self.connections > 1 else ():
            try:
                await each.attach(session)
            except Unreachable:
                raise
            except ClientError as error:
                self.leave(each)
                each.ended(error)
        session.check_open()
        publishing.connected(session.first)

    def _gone(self, session: Session) -> None:
        if self._session is not session:
            return
        self._session = None
        self.publishing.disconnected()
        if not self.is_closed and (self._living or not self.publishing.is_empty):
            self._connect()
