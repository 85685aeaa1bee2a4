"""What came to one consumer and nobody has taken yet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.message import Message
from entrepot.client.messaging.session import Channel
from entrepot.core.clock import SystemEntropy
from entrepot.wire.amqp.methods import basic

_TAG_BYTES = 8


class AtEnd(ClientError):
    """A consumer has looked at all that there is."""


class Inbox:
    """What came to one consumer and was not taken."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._wake = asyncio.Event()
        self._failure: ClientError | None = None

    @property
    def is_empty(self) -> bool:
        return not self._messages

    def put(self, message: Message) -> None:
        self._messages.append(message)
        self._wake.set()

    def give_back(self) -> None:
        """Let all be ready again."""
        for each in self._messages:
            each.requeue()

    def end(self, failure: ClientError | None) -> None:
        self._failure = failure or AtEnd("there is nothing more")
        self._wake.set()

    async def take(self, count: int) -> list[Message]:
        """Return at least one, and what else is there. Raises ClientError, AtEnd."""
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            self._wake.clear()
            await self._wake.wait()
        found, self._messages = self._messages[:count], self._messages[count:]
        return found


async def first_of(
    channel: Channel, name: str, timeout_s: float | None, where: str | None
) -> Message | None:
    """Be a consumer until one message has come; return it, leased, or None.

    With a time of 0 it is looked at what is there. Consumers of the channel must get one message
    each and no second before that is settled.
    """
    inbox = Inbox()
    method = consume_method(name, where, until_end=timeout_s == 0)
    await channel.consume(method, inbox.put, inbox.end)
    try:
        async with asyncio.timeout(timeout_s or None):
            (found,) = await inbox.take(1)
    except AtEnd:
        return None
    except TimeoutError:
        await channel.cancel(method.consumer_tag)
        # It may have come while we cancelled.
        return None if inbox.is_empty else (await inbox.take(1))[0]
    except asyncio.CancelledError:
        if channel.failure is None:  # What comes meanwhile is given back, too.
            channel.drop(method.consumer_tag)
            inbox.give_back()
        raise
    channel.drop(method.consumer_tag)
    return found


async def browsed(channel: Channel, name: str, where: str | None, count_max: int) -> list[Message]:
    """Return copies of the first messages of a queue. Raises AmqpRefused."""
    inbox = Inbox()
    found: list[Message] = []

    def put(message: Message) -> None:
        if len(found) < count_max:  # More may be on their way until it is cancelled.
            found.append(message)
            if len(found) == count_max:
                inbox.end(None)

    method = consume_method(name, where, until_end=True, browses=True)
    await channel.consume(method, put, inbox.end)
    with contextlib.suppress(AtEnd):
        await inbox.take(1)
    return found


def consume_method(
    name: str, where: str | None, *, until_end: bool = False, browses: bool = False
) -> basic.Consume:
    arguments: dict[str, Any] = {}
    if where is not None:
        arguments["x-selector"] = where
    if until_end:
        arguments["x-until-end"] = True
    if browses:
        arguments["x-browse"] = True
    tag = SystemEntropy().token(_TAG_BYTES).hex()
    return basic.Consume(queue=name, consumer_tag=tag, no_ack=browses, arguments=arguments)
