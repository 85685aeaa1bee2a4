"""Publish and subscribe: events on subjects, for all who listen now.

A subject is a name of several words with dots between them. A subscription's filter may have `*`
for one word and `#` for any number of them, and a condition on the events' headers besides.

Advertisements tell subscribers who is going to publish what. They are events themselves: whoever
advertises says so, and says so again to everybody who asks. So no broker remembers them, and they
end with their publisher.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from entrepot.client.errors import ClientError
from entrepot.client.messaging.consuming import Consumption
from entrepot.client.messaging.filters import selector
from entrepot.client.messaging.message import Message, encoded, head_of
from entrepot.client.messaging.queues import QueueVerbs
from entrepot.client.messaging.session import Channel
from entrepot.core.clock import SystemEntropy
from entrepot.wire.amqp.methods import exchange, queue

SUBJECTS = "amq.topic"  # The exchange whose keys are subjects, in every protocol.
_ADVERTISED, _WANTED = "entrepot.advertised", "entrepot.advertisements-wanted"
_ID_BYTES = 8

logger = logging.getLogger("entrepot.client")

OnEvent = Callable[["Subscription", Message], Any]
OnAdvertised = Callable[["Subscription", "Advertisement"], Any]


class Advertisement(NamedTuple):
    """What somebody is going to publish, or, if `is_over`, is not going to any more."""

    subjects: str  # A filter that matches them.
    about: Mapping[str, Any]  # What the publisher says of them.
    publisher: str
    is_over: bool = False


class Subscription:
    """The handle of a subscription."""

    def __init__(
        self, verbs: SubjectVerbs, filter: str, where: str | None, on_event: OnEvent
    ) -> None:
        self.filter = filter
        self.where = where
        self.is_over = False
        self.count = 0  # Of events that the callback was called with.
        self._verbs = verbs
        self._on_event = on_event
        self._consumption: Consumption | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def unsubscribe(self) -> None:
        """End it: the callback is not called any more."""
        self.is_over = True
        if self._expiry is not None:
            self._expiry.cancel()
        self._verbs.forget(self)
        if self._consumption is not None:
            await self._consumption.stop()

    async def begin(self, consumption: Consumption, expiry_s: float | None) -> None:
        self._consumption = consumption
        await consumption.start()
        if expiry_s is not None:
            self._expiry = asyncio.get_running_loop().call_later(expiry_s, self._expire)

    def hear(self, event: Message) -> Any:
        """Call the callback, unless it is over."""
        if self.is_over:
            return None
        self.count += 1
        return self._on_event(self, event)

    def _expire(self) -> None:
        self.is_over = True
        self._ending = asyncio.get_running_loop().create_task(self.unsubscribe())

    def __repr__(self) -> str:
        condition = f", where={self.where!r}" if self.where else ""
        return f"Subscription({self.filter!r}{condition})"


class SubjectVerbs(QueueVerbs):
    """The part of a client that is about subjects."""

    _advertised: dict[str, Advertisement]
    _listening: dict[Subscription, OnAdvertised]
    _hearing: list[Subscription]

    def __post_init__(self) -> None:
        self._advertised = {}  # Ours, by subjects.
        self._listening = {}  # Who wants to know what others advertise.
        self._hearing = []  # Of advertisements, and of questions about them.
        self._name = SystemEntropy().token(_ID_BYTES).hex()

    async def publish(
        self,
        subject: str,
        event: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        type: str | None = None,
        id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        expires_s: float | None = None,
    ) -> None:
        """Publish an event to all who listen to its subject now.

        When it returns, the event is with all subscribers' queues. If nobody listens, it is gone.
        """
        body, content_type = encoded(event)
        head = head_of(
            content_type,
            headers=headers,
            type=type,
            id=id,
            correlation_id=correlation_id,
            reply_to=reply_to,
            expires_s=expires_s,
        )
        await self._publish(SUBJECTS, _subject(subject), head, [body], is_mandatory=False)

    async def subscribe(
        self,
        filter: str,
        callback: OnEvent,
        expiry_s: float | None = None,
        *,
        where: Any = None,
        durable: str | None = None,
        on_advertised: OnAdvertised | None = None,
    ) -> Subscription:
        """Call a function with the handle and each event whose subject matches, until `unsubscribe`
        is called or the time is over.

        `where` is a condition on the events' headers. With a name as `durable`, events are kept
        while nobody of that name is there. `on_advertised` is called when a publisher advertises
        subjects that overlap the filter. Raises AmqpRefused for a condition that does not parse.
        """
        handle = Subscription(self, filter, selector(where), callback)
        prepare = self._prepare(_subject(filter), handle.where, durable)
        consumption = Consumption(self._keeper, prepare, handle.hear, settles=durable is not None)
        await handle.begin(consumption, expiry_s)
        if on_advertised is not None:
            await self._listen(handle, on_advertised)
        return handle

    def _prepare(
        self, pattern: str, where: str | None, durable: str | None
    ) -> Callable[[Channel], Awaitable[str]]:
        async def prepare(channel: Channel) -> str:
            is_durable = durable is not None
            declare = queue.Declare(
                queue=durable or "",
                durable=is_durable,
                exclusive=not is_durable,
                auto_delete=not is_durable,
            )
            name = (await channel.ask(declare, queue.DeclareOk)).queue
            if where is None:
                await channel.ask(queue.Bind(0, name, SUBJECTS, pattern), queue.BindOk)
                return name
            # The events of a pattern whose conditions are looked at; all subscribers share it.
            chosen = f"where.{pattern}"
            made = exchange.Declare(exchange=chosen, type="x-selector", durable=True)
            await channel.ask(made, exchange.DeclareOk)
            await channel.ask(exchange.Bind(0, chosen, SUBJECTS, pattern), exchange.BindOk)
            bind = queue.Bind(0, name, chosen, "", arguments={"x-selector": where})
            await channel.ask(bind, queue.BindOk)
            return name

        return prepare

    # --- advertisements

    async def advertise(self, subjects: str, about: Mapping[str, Any] | None = None) -> None:
        """Tell everybody that we are going to publish on these subjects; now and when asked."""
        ours = Advertisement(subjects, dict(about or {}), self._name)
        if not self._advertised:
            wanted = await self.subscribe(_WANTED, self._answer_wanted)
            self._hearing.append(wanted)
        self._advertised[subjects] = ours
        await self._say(ours)

    async def unadvertise(self, subjects: str) -> None:
        """Take an advertisement back. Raises ClientError if there is none."""
        ours = self._advertised.pop(subjects, None)
        if ours is None:
            raise ClientError(f"'{subjects}' was not advertised")
        await self._say(ours._replace(is_over=True))

    async def _listen(self, handle: Subscription, on_advertised: OnAdvertised) -> None:
        if not self._listening:
            self._listening[handle] = on_advertised
            self._hearing.append(await self.subscribe(_ADVERTISED, self._hear_advertised))
        self._listening[handle] = on_advertised
        await self.publish(_WANTED, {"filter": handle.filter})

    def forget(self, handle: Subscription) -> None:
        self._listening.pop(handle, None)

    async def _say(self, ours: Advertisement) -> None:
        await self.publish(_ADVERTISED, ours._asdict(), expires_s=60)

    async def _answer_wanted(self, _: Subscription, event: Message) -> None:
        wanted = event.value.get("filter", "")
        for ours in list(self._advertised.values()):
            if overlap(wanted, ours.subjects):
                await self._say(ours)

    async def _hear_advertised(self, _: Subscription, event: Message) -> None:
        found = Advertisement(**event.value)
        for handle, on_advertised in list(self._listening.items()):
            if overlap(handle.filter, found.subjects):
                result = on_advertised(handle, found)
                if inspect.isawaitable(result):
                    await result


def _subject(name: str) -> str:
    """Return a subject with dots: slashes separate words alike."""
    return name.replace("/", ".")


def overlap(one: str, other: str) -> bool:
    """Return whether there is a subject that both filters match."""
    left, right = _subject(one).split("."), _subject(other).split(".")
    # Row by row: which beginnings of the one can match a subject that a beginning of the other
    # matches, too.
    row = [True]
    for word in right:
        row.append(row[-1] and word == "#")
    for mine in left:
        next_row = [row[0] and mine == "#"]
        for place, theirs in enumerate(right):
            fits = row[place] and (mine == theirs or mine in ("*", "#") or theirs in ("*", "#"))
            skips = (mine == "#" and row[place + 1]) or (theirs == "#" and next_row[place])
            more = (mine == "#" and next_row[place]) or (theirs == "#" and row[place + 1])
            next_row.append(fits or skips or more)
        row = next_row
    return row[-1]
