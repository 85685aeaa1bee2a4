"""What was published and is not confirmed yet: kept until it is, and sent again when it has to be.

The broker numbers what it gets on a connection and confirms the numbers. When a connection
breaks, nobody knows which of the unconfirmed messages arrived: they are sent again on the next
one, in the same order, before anything newer. So none is lost, and one may be there twice,
unless its queue drops duplicates (`AsyncClient.put` with `once`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from entrepot.client.amqp_publisher import NotTaken
from entrepot.client.errors import ClientError
from entrepot.core.limits import MIB
from entrepot.wire.amqp.methods import basic

UNCONFIRMED_MAX = 100_000  # Messages; then whoever publishes waits.
UNCONFIRMED_BYTES_MAX = 64 * MIB


class Wire(Protocol):
    def publish(
        self, exchange: str, key: str, head: bytes, bodies: list[bytes], *, mandatory: bool
    ) -> None: ...


class Outgoing:
    """Messages that differ in their bodies only, on their way."""

    __slots__ = (
        "_answered",
        "_through",
        "bodies",
        "count",
        "done",
        "exchange",
        "first",
        "head",
        "key",
        "mandatory",
        "refusal",
        "size",
    )

    def __init__(
        self, exchange: str, key: str, head: bytes, bodies: list[bytes], *, mandatory: bool
    ) -> None:
        self.exchange, self.key, self.head, self.bodies = exchange, key, head, bodies
        self.mandatory = mandatory  # The broker says so when no queue takes it.
        self.count = len(bodies)
        self.size = sum(map(len, bodies))
        self.first = 0  # The number of the first of them on this connection.
        self.refusal: NotTaken | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._through = 0  # How many from the first on are answered,
        self._answered: dict[int, None] = {}  # and the places of others that are.

    @property
    def end(self) -> int:
        return self.first + len(self.bodies)

    @property
    def is_answered(self) -> bool:
        return self._through >= len(self.bodies)

    def answered(self, tag: int, *, is_multiple: bool) -> None:
        place = tag - self.first
        if is_multiple:
            self._through = max(self._through, min(place + 1, len(self.bodies)))
        elif place == self._through:
            self._through += 1
        elif place > self._through:
            self._answered[place] = None
        while self._answered and self._through in self._answered:
            del self._answered[self._through]
            self._through += 1

    def begin_again(self, first: int) -> None:
        """Number what is left, to be sent on another connection."""
        left = self.bodies[self._through :]
        if self._answered:
            gone = {place - self._through for place in self._answered}
            left = [body for place, body in enumerate(left) if place not in gone]
        self.bodies = left
        self._through = 0
        self._answered = {}
        self.first = first


class Publishing:
    def __init__(self) -> None:
        self._waiting: deque[Outgoing] = deque()  # In the order of their numbers.
        self._wire: Wire | None = None  # None means: there is no connection.
        self._next = 1
        self._count = self._bytes = 0
        self._has_room = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    async def room(self) -> None:
        """Wait while too much is unconfirmed."""
        while self._count >= UNCONFIRMED_MAX or self._bytes >= UNCONFIRMED_BYTES_MAX:
            self._has_room.clear()
            await self._has_room.wait()

    def add(self, outgoing: Outgoing) -> None:
        """Send it now, or as soon as there is a connection."""
        self._waiting.append(outgoing)
        self._count += outgoing.count
        self._bytes += outgoing.size
        if self._wire is not None:
            self._send(outgoing)

    def connected(self, wire: Wire) -> None:
        """Send everything that is not confirmed on a new connection."""
        self._wire, self._next = wire, 1
        for each in list(self._waiting):
            each.begin_again(self._next)
            self._send(each)
        self._finish_answered()

    def disconnected(self) -> None:
        self._wire = None

    def fail(self, failure: ClientError) -> None:
        """Give up on all that is not confirmed: nobody knows whether it arrived."""
        while self._waiting:
            self._finish(failure)

    def acks(self, tags: Sequence[int], is_multiple: bool) -> None:
        for tag in tags:
            self._answer(tag, is_multiple=is_multiple)

    def nack(self, tag: int, is_multiple: bool) -> None:
        refusal = NotTaken("the broker does not take a message; is its queue full?")
        for each in self._waiting:
            if each.first > tag:
                break
            if each.end > tag or is_multiple:
                each.refusal = each.refusal or refusal
        self._answer(tag, is_multiple=is_multiple)

    def returned(self, method: basic.Return) -> None:
        """Note that no queue takes a message. It is confirmed afterwards, all the same."""
        for each in self._waiting:
            is_it = (each.exchange, each.key) == (method.exchange, method.routing_key)
            if is_it and each.mandatory and each.refusal is None:
                place = f"exchange '{method.exchange}', routing key '{method.routing_key}'"
                each.refusal = NotTaken(f"{place}: {method.reply_text}")
                return

    def _send(self, outgoing: Outgoing) -> None:
        assert self._wire is not None
        outgoing.first = self._next
        self._next += len(outgoing.bodies)
        if outgoing.bodies:
            self._wire.publish(
                outgoing.exchange,
                outgoing.key,
                outgoing.head,
                outgoing.bodies,
                mandatory=outgoing.mandatory,
            )

    def _answer(self, tag: int, *, is_multiple: bool) -> None:
        for each in self._waiting:
            if each.first > tag:
                break
            if is_multiple or each.end > tag:
                each.answered(tag, is_multiple=is_multiple)
        self._finish_answered()

    def _finish_answered(self) -> None:
        while self._waiting and self._waiting[0].is_answered:
            self._finish(None)

    def _finish(self, failure: ClientError | None) -> None:
        each = self._waiting.popleft()
        self._count -= each.count
        self._bytes -= each.size
        self._has_room.set()
        if each.done.done():  # Who published it does not wait any more.
            return
        failure = failure or each.refusal
        if failure is None:
            each.done.set_result(None)
        else:
            each.done.set_exception(failure)
