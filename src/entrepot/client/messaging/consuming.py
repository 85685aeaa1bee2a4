"""Consumers that outlive connections: what comes is handed to a function, one after the other.

A message is settled when the function has returned. What fails comes once more, and if it fails
again it is rejected: a dead letter, where the queue has such. When the connection breaks, all that
was not settled comes again on the next one, so nothing of what waits here is handed out twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from entrepot.client.errors import ClientError, Unreachable
from entrepot.client.messaging.keeper import Keeper
from entrepot.client.messaging.message import Message
from entrepot.client.messaging.session import Channel, Session
from entrepot.core.clock import SystemEntropy
from entrepot.wire.amqp.methods import basic

PREFETCH = 100
_TAG_BYTES = 8

logger = logging.getLogger("entrepot.client")

Prepare = Callable[[Channel], Awaitable[str]]  # Makes what is needed; returns the queue's name.
Handle = Callable[[Message], Any]


class Consumption:
    """A consumer. Implements `Living`."""

    def __init__(
        self,
        keeper: Keeper,
        prepare: Prepare,
        handle: Handle,
        *,
        settles: bool = True,
        prefetch: int = PREFETCH,
        where: str | None = None,
    ) -> None:
        """With `settles` false, messages count as settled when they are sent to us."""
        self._keeper = keeper
        self._prepare = prepare
        self._handle = handle
        self._settles = settles
        self._prefetch = prefetch
        self._where = where
        self._channel: Channel | None = None
        self._inbox: deque[Message] = deque()  # No more than the prefetch, if messages are settled.
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self.failure: ClientError | None = None
        self.is_over = False
        self.queue = ""

    async def start(self) -> None:
        """Raises ClientError."""
        await self._keeper.live(self)
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Nothing is handed out any more when this returns. What was not settled is ready again."""
        self.is_over = True
        self._inbox.clear()
        self._keeper.leave(self)
        self._wake.set()
        worker, channel = self._worker, self._channel
        if worker is not None and worker is not asyncio.current_task():
            worker.cancel()
            await asyncio.wait([worker])
        if channel is not None and channel.failure is None:
            with contextlib.suppress(ClientError):  # Then it is closed, too.
                await channel.close()

    # --- called by the keeper

    async def attach(self, session: Session) -> None:
        self._inbox.clear()  # They come again.
        channel = await session.channel()
        try:
            self.queue = await self._prepare(channel)
            if self._settles:
                await channel.ask(basic.Qos(prefetch_count=self._prefetch), basic.QosOk)
            arguments = {} if self._where is None else {"x-selector": self._where}
            consume = basic.Consume(
                queue=self.queue,
                consumer_tag=SystemEntropy().token(_TAG_BYTES).hex(),
                no_ack=not self._settles,
                arguments=arguments,
            )
            self._channel = channel
            await channel.consume(consume, self._hear, self._cancelled)
        except ClientError:
            if channel.failure is None:
                await channel.close()
            raise

    def ended(self, failure: ClientError) -> None:
        if not self.is_over and not self._keeper.is_closed:
            logger.warning("nothing more comes from '%s': %s", self.queue, failure)
        self.failure, self.is_over = failure, True
        self._wake.set()

    # --- what comes

    def _hear(self, message: Message) -> None:
        self._inbox.append(message)
        self._wake.set()

    def _cancelled(self, failure: ClientError | None) -> None:
        self._inbox.clear()
        if isinstance(failure, Unreachable):
            return  # It goes on, on another connection.
        self._keeper.leave(self)
        self.ended(failure or Unreachable(f"queue '{self.queue}' was deleted"))

    async def _work(self) -> None:
        while not self.is_over:
            while self._inbox and not self.is_over:
                await self._hand_over(self._inbox.popleft())
            self._wake.clear()
            if not self._inbox and not self.is_over:
                await self._wake.wait()

    async def _hand_over(self, message: Message) -> None:
        try:
            result = self._handle(message)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            message.requeue()
            raise
        except Exception:
            logger.exception("a message of '%s' was not handled", self.queue)
            if message.is_redelivered:
                message.reject()
            else:
                message.requeue()
        else:
            message.ack()
