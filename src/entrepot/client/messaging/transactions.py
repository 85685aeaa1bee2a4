"""Transactions of queues: what is got and put in one counts when it is committed, or not at all.

It is AMQP's transaction. A rollback, or the end of the client or its connection before the commit,
leaves every message where it was. A commit publishes first and settles then: when the broker is
killed in the middle of one, what was put may be there and what was got come again, so something may
be done twice and nothing is lost. Where that is not enough, see `TopicVerbs.topic_transaction`,
which is atomic through any crash, and is of topics only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from entrepot.client.amqp_publisher import NotTaken
from entrepot.client.messaging.filters import selector
from entrepot.client.messaging.inbox import first_of
from entrepot.client.messaging.message import Message, encoded, head_of
from entrepot.client.messaging.session import Channel
from entrepot.client.messaging.subjects import SUBJECTS
from entrepot.client.messaging.types import TypeVerbs
from entrepot.wire.amqp.methods import basic, tx


class QueueTransaction:
    """Gets and puts that are held until the commit."""

    def __init__(self, verbs: TransactionVerbs, channel: Channel) -> None:
        self._verbs = verbs
        self._channel = channel

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
        """Get a message, as outside; it is ready again if the transaction does not commit."""
        await self._verbs.ensure_queue(name)
        text = selector(where, id, correlation_id, type)
        found = None if text else await self._channel.get(name)
        if found is None and (text is not None or timeout_s != 0):
            await self._channel.ask(basic.Qos(prefetch_count=1), basic.QosOk)
            found = await first_of(self._channel, name, timeout_s, text)
        if found is None:
            raise TimeoutError(f"nothing came to queue '{name}' in {timeout_s} s")
        found.ack()
        return found

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
        content_type: str | None = None,
    ) -> None:
        """Put a message into a queue; nobody sees it before the commit.

        `content_type` says what bytes are.
        """
        await self._verbs.ensure_queue(name)
        body, kind = encoded(value)
        head = head_of(
            content_type or kind,
            headers=headers,
            id=id,
            correlation_id=correlation_id,
            reply_to=reply_to,
            type=type,
            priority=priority,
            expires_s=expires_s,
        )
        self._publish("", name, head, body, is_mandatory=True)

    async def publish(
        self,
        subject: str,
        event: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        type: str | None = None,
    ) -> None:
        """Publish an event; nobody hears it before the commit."""
        body, content_type = encoded(event)
        head = head_of(content_type, headers=headers, type=type)
        self._publish(SUBJECTS, subject, head, body)

    def _publish(
        self, exchange: str, key: str, head: bytes, body: bytes, *, is_mandatory: bool = False
    ) -> None:
        self._channel.check()
        self._channel.publish(exchange, key, head, [body], mandatory=is_mandatory)


class TransactionVerbs(TypeVerbs):
    """The part of a client that is about transactions of queues."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[QueueTransaction]:
        """Get, put and publish as one: when the block ends; if it raises, nothing has happened.

        Raises Unreachable if the connection breaks. Then the transaction was rolled back, unless it
        was being committed: in that case it may have happened. Raises NotTaken if something was put
        into a queue that is gone, or of a manager that nobody knows; the rest is committed.
        """
        channel = await (await self._keeper.session()).channel()
        try:
            await channel.ask(tx.Select(), tx.SelectOk)
            yield QueueTransaction(self, channel)
            await channel.ask(tx.Commit(), tx.CommitOk)
            lost = channel.returned
            if lost is not None:
                text = f"committed, but not put into '{lost.routing_key}': {lost.reply_text}"
                raise NotTaken(text)
        finally:
            if channel.failure is None:
                await channel.close()  # What was not committed is rolled back.
