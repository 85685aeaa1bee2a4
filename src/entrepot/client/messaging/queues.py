"""Queues: put, get, poll, notify."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from entrepot.client.amqp_connection import AmqpRefused
from entrepot.client.amqp_publisher import NotTaken
from entrepot.client.errors import Unreachable
from entrepot.client.messaging.consuming import PREFETCH, Consumption, Handle
from entrepot.client.messaging.filters import selector
from entrepot.client.messaging.inbox import Inbox, browsed, consume_method, first_of
from entrepot.client.messaging.keeper import Keeper
from entrepot.client.messaging.message import Message, encoded, head_of
from entrepot.client.messaging.publishing import Outgoing
from entrepot.client.messaging.session import Channel, Session
from entrepot.core.clock import SystemEntropy
from entrepot.wire.amqp.errors import ReplyCode
from entrepot.wire.amqp.methods import basic, queue
from entrepot.wire.amqp.methods import exchange as exchanges

BATCH = 5_000
BROWSED = 1_000
QUEUES_REMEMBERED = 10_000
ONCE_IDS = 100_000  # Of the newest messages of a queue.
_AT = "@"  # Between a queue and the name of its manager.
_ONCE = "once."  # Where messages are published that a queue is to have once.
_ID_BYTES = 16


class QueueVerbs:
    """The part of a client that is about queues."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._known: dict[str, None] = {}  # Queues that are there, or were.
        self._gets: Channel | None = None  # The channel of `poll` and `get`.

    # --- making and ending them

    async def declare_queue(
        self,
        name: str,
        *,
        priorities: int = 0,
        durable: bool = True,
        expires_s: float | None = None,
        length_max: int | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a queue, if there is none. One that is there must have been made alike.

        With `priorities` from 1 on, messages of a higher priority come first. `expires_s` is the
        time to live of its messages. `arguments` are those of RabbitMQ. Raises AmqpRefused.
        """
        wanted = dict(arguments or {})
        if priorities:
            wanted["x-max-priority"] = priorities
        if expires_s is not None:
            wanted["x-message-ttl"] = round(expires_s * 1000)
        if length_max is not None:
            wanted["x-max-length"] = length_max
        method = queue.Declare(queue=name, durable=durable, arguments=wanted)
        await self._keeper.with_channel(lambda channel: channel.ask(method, queue.DeclareOk))
        self._remember(name)

    async def delete_queue(self, name: str) -> int:
        """Delete a queue with all that is in it; return how many messages these were."""
        self._known.pop(name, None)
        method = queue.Delete(queue=name)
        answer = await self._keeper.with_channel(lambda each: each.ask(method, queue.DeleteOk))
        return answer.message_count

    async def count(self, name: str) -> int:
        """Return how many messages of a queue are ready. Raises AmqpRefused if there is none."""
        method = queue.Declare(queue=name, passive=True)
        answer = await self._keeper.with_channel(lambda each: each.ask(method, queue.DeclareOk))
        return answer.message_count

    # --- put

    async def put(
        self,
        name: str,
        value: Any,
        *,
        id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        type: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: int | None = None,
        expires_s: float | None = None,
        persistent: bool = True,
        once: bool = False,
    ) -> None:
        """Put a message into a queue, which is made if there is none.

        Waits for no consumer. When it returns, the message is on disk, if queue and message are
        made to last. If the connection breaks meanwhile, it is sent again on the next one: then it
        may be in the queue twice. With `once` it is not: the queue takes one message of each `id`.
        Raises NotTaken, Unreachable.
        """
        body, content_type = encoded(value)
        exchange = ""
        if once:
            exchange = await self._exchange_of(name)
            id = id or SystemEntropy().token(_ID_BYTES).hex()
            headers = {**(headers or {}), "x-deduplication-header": id}
        elif name not in self._known:
            await self.ensure_queue(name)
        head = head_of(
            content_type,
            headers=headers,
            id=id,
            correlation_id=correlation_id,
            reply_to=reply_to,
            type=type,
            priority=priority,
            expires_s=expires_s,
            persistent=persistent,
        )
        await self._publish(exchange, name, head, [body], is_mandatory=not once)

    async def put_many(
        self,
        name: str,
        values: Iterable[Any],
        *,
        type: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: int | None = None,
        expires_s: float | None = None,
        persistent: bool = True,
    ) -> int:
        """Put many messages that have the same properties; return how many. See `put`."""
        if name not in self._known:
            await self.ensure_queue(name)
        order: list[tuple[str | None, list[bytes]]] = []
        count, last = 0, object()
        for value in values:
            body, kind = (value, None) if value.__class__ is bytes else encoded(value)
            if kind is not last or len(order[-1][1]) >= BATCH:
                order.append((kind, []))
                last = kind
            order[-1][1].append(body)
            count += 1
        heads = {
            kind: head_of(
                kind,
                headers=headers,
                type=type,
                priority=priority,
                expires_s=expires_s,
                persistent=persistent,
            )
            for kind, _ in order
        }
        waiting = [
            await self._start("", name, heads[kind], bodies, is_mandatory=True)
            for kind, bodies in order
        ]
        for each in waiting:
            await each.done
        return count

    async def _publish(
        self, exchange: str, key: str, head: bytes, bodies: list[bytes], *, is_mandatory: bool
    ) -> None:
        outgoing = await self._start(exchange, key, head, bodies, is_mandatory=is_mandatory)
        try:
            await outgoing.done
        except NotTaken:
            self._known.pop(key, None)
            raise

    async def _start(
        self, exchange: str, key: str, head: bytes, bodies: list[bytes], *, is_mandatory: bool
    ) -> Outgoing:
        publishing = self._keeper.publishing
        await self._keeper.session()
        await publishing.room()
        outgoing = Outgoing(exchange, key, head, bodies, mandatory=is_mandatory)
        publishing.add(outgoing)
        return outgoing

    async def ensure_queue(self, name: str) -> None:
        """Make a queue if there is none; one that is there may have been made in any way.

        `queue@manager` is a queue of another manager: it is not made here.
        """
        if name in self._known:
            return
        try:
            await self.count(name)
        except AmqpRefused as error:
            if error.code != ReplyCode.NOT_FOUND:
                raise
            if _AT in name:
                return
            await self.declare_queue(name)
        self._remember(name)

    async def _exchange_of(self, name: str) -> str:
        """Return the exchange that passes each message on to the queue once."""
        exchange = _ONCE + name
        if exchange in self._known:
            return exchange
        await self.ensure_queue(name)
        declare = exchanges.Declare(
            exchange=exchange,
            type="x-message-deduplication",
            durable=True,
            arguments={"x-cache-size": ONCE_IDS, "x-cache-persistence": "disk"},
        )

        async def work(channel: Channel) -> None:
            await channel.ask(declare, exchanges.DeclareOk)
            await channel.ask(queue.Bind(queue=name, exchange=exchange), queue.BindOk)

        await self._keeper.with_channel(work)
        self._remember(exchange)
        return exchange

    def _remember(self, name: str) -> None:
        if len(self._known) >= QUEUES_REMEMBERED:
            self._known.clear()
        self._known[name] = None

    # --- get

    async def poll(
        self,
        name: str,
        where: Any = None,
        *,
        id: str | None = None,
        correlation_id: str | None = None,
        type: str | None = None,
    ) -> Message | None:
        """Return a message of the queue, or None: at once. See `get`."""
        try:
            return await self._take(name, 0, selector(where, id, correlation_id, type))
        except AmqpRefused as error:
            if error.code == ReplyCode.NOT_FOUND:
                return None
            raise

    async def get(
        self,
        name: str,
        timeout_s: float | None = None,
        where: Any = None,
        *,
        id: str | None = None,
        correlation_id: str | None = None,
        type: str | None = None,
    ) -> Message:
        """Return the first message of the queue; wait for one if it is empty.

        It is gone from the queue. `where` chooses: a selector (`price < 100`), triples, or a
        dictionary of headers and their values; `id="..."` and `correlation_id="..."` choose by
        these. Raises TimeoutError, and AmqpRefused for a selector that does not parse.
        """
        if name not in self._known:
            await self.ensure_queue(name)
        found = await self._take(name, timeout_s, selector(where, id, correlation_id, type))
        if found is None:
            raise TimeoutError(f"nothing came to queue '{name}' in {timeout_s} s")
        return found

    async def browse(
        self,
        name: str,
        where: Any = None,
        *,
        id: str | None = None,
        correlation_id: str | None = None,
        type: str | None = None,
        count_max: int = BROWSED,
    ) -> list[Message]:
        """Return copies of the first messages of the queue that are ready; all stay there.

        `where` and the others choose, as in `get`. Raises AmqpRefused if there is no such queue.
        """
        text = selector(where, id, correlation_id, type)

        async def work(channel: Channel) -> list[Message]:
            return await browsed(channel, name, text, count_max)

        return await self._keeper.with_channel(work) if count_max > 0 else []

    @asynccontextmanager
    async def lease(
        self,
        name: str,
        timeout_s: float | None = None,
        where: Any = None,
        *,
        id: str | None = None,
        correlation_id: str | None = None,
        type: str | None = None,
    ) -> AsyncIterator[Message]:
        """Get a message that is settled when the block ends, and ready again if it fails.

        So it is when the client dies meanwhile. Other consumers do not see it.
        """
        await self.ensure_queue(name)
        async with self._leased(
            name, timeout_s, selector(where, id, correlation_id, type)
        ) as message:
            if message is None:
                raise TimeoutError(f"nothing came to queue '{name}' in {timeout_s} s")
            try:
                yield message
            except BaseException:
                message.requeue()
                raise
            message.ack()

    async def notify(
        self,
        name: str,
        callback: Handle,
        where: Any = None,
        *,
        prefetch: int = PREFETCH,
    ) -> Consumption:
        """Call a function with each message that comes to a queue, until `stop` is called.

        The message is settled when the function returns. If it raises, the message comes once
        more, and if that fails, too, it is rejected. The function may be a coroutine.
        """
        await self.ensure_queue(name)

        async def prepare(channel: Channel) -> str:
            return name

        consumption = Consumption(
            self._keeper, prepare, callback, prefetch=prefetch, where=selector(where)
        )
        await consumption.start()
        return consumption

    async def batches(
        self,
        name: str,
        size_max: int = BATCH,
        where: Any = None,
        *,
        timeout_s: float | None = None,
    ) -> AsyncIterator[list[Message]]:
        """Yield what comes, many messages at a time; settled when the next are asked for.

        It ends when nothing has come for that time. Who leaves before that
        has not settled the last ones.
        """
        await self.ensure_queue(name)
        text = selector(where)
        is_over = False
        while not is_over:
            try:
                async for batch in self._batches(name, size_max, text, timeout_s):
                    yield batch
                is_over = True
            except Unreachable:
                await self._keeper.session()  # Or it is an error.

    async def _batches(
        self, name: str, size_max: int, where: str | None, timeout_s: float | None
    ) -> AsyncIterator[list[Message]]:
        channel = await (await self._keeper.session()).channel()
        waiting = Inbox()
        try:
            await channel.ask(basic.Qos(prefetch_count=2 * size_max), basic.QosOk)
            await channel.consume(consume_method(name, where), waiting.put, waiting.end)
            while True:
                try:
                    async with asyncio.timeout(timeout_s):
                        found = await waiting.take(size_max)
                except TimeoutError:
                    return
                yield found
                channel.settle_through(found[-1].tag)
        finally:
            if channel.failure is None:
                with contextlib.suppress(Unreachable):  # What was leased is ready again.
                    await channel.close()

    async def _take(self, name: str, timeout_s: float | None, where: str | None) -> Message | None:
        is_looked_at = False
        if where is None and self._gets is not None and self._gets.failure is None:
            with contextlib.suppress(Unreachable):  # Then it is tried again below.
                first = await self._gets.get(name)
                if first is not None or timeout_s == 0:
                    if first is not None:
                        first.ack()
                    return first
                is_looked_at = True
        async with self._leased(name, timeout_s, where, is_looked_at=is_looked_at) as found:
            if found is not None:
                found.ack()
            return found

    @asynccontextmanager
    async def _leased(
        self, name: str, timeout_s: float | None, where: str | None, *, is_looked_at: bool = False
    ) -> AsyncIterator[Message | None]:
        """Yield a message that is leased while the block runs, which settles it, or None.

        `is_looked_at` means: there was nothing a moment ago.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        patience = loop.time() + self._keeper.patience_s
        session: Session | None = None
        channel: Channel | None = None
        while True:
            try:
                found = await self._first(name) if where is None and not is_looked_at else None
                is_looked_at = False  # If this connection breaks, it is looked at again.
                left = None if deadline is None else max(0.0, deadline - loop.time())
                if found is None and (where is not None or left != 0):
                    session = await self._keeper.session()
                    channel = await session.waiting_channel()
                    found = await first_of(channel, name, left, where)
                break
            except Unreachable:
                channel = None
                if loop.time() > (patience if deadline is None else max(patience, deadline)):
                    raise
                await self._keeper.session()
            except BaseException:  # Who waits was cancelled: a message may be on its way.
                await _closed(channel)
                raise
        try:
            yield found
        except BaseException:
            await _closed(channel)
            raise
        if session is not None and channel is not None:
            with contextlib.suppress(Unreachable):
                await session.spare(channel)

    async def _first(self, name: str) -> Message | None:
        if self._gets is None or self._gets.failure is not None:
            self._gets = await (await self._keeper.session()).channel()
        return await self._gets.get(name)


async def _closed(channel: Channel | None) -> None:
    """Close a channel: what is leased on it is ready again, and what comes to it stays ready."""
    if channel is not None and channel.failure is None:
        with contextlib.suppress(Unreachable):
            await channel.close()
