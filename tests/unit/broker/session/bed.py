"""Sessions on a simulated disk, with receivers that write down what they get."""

import asyncio
from collections.abc import Sequence
from typing import Any

from entrepot.broker.queue.message import Publication
from entrepot.broker.session.ports import (
    Broadcast,
    Granted,
    Parcel,
    Quality,
    Subscription,
    Way,
    Will,
)
from entrepot.broker.session.session import Session
from entrepot.broker.subject.name import to_path, to_subject
from entrepot.core.message import Envelope, Message
from entrepot.core.neutral import NEUTRAL, Head
from entrepot.core.properties import Properties
from tests.unit.broker.virtual_host.bed import Failure, Host


def on(
    path: str, body: bytes, quality: int = 1, *, identity: bytes | None = None, **facts: Any
) -> Message:
    """A message on the subject of that path."""
    shared = Properties(is_persistent=quality > 0, **facts)
    head = NEUTRAL.write(Head(shared, deduplication_id=identity))
    return Envelope("amq.topic", to_subject(path), head, NEUTRAL), body


Got = tuple[str, bytes]


class Peer:
    """A connection. It answers nothing by itself."""

    def __init__(self, window: int = 1_000) -> None:
        self.window = window
        self.session: Session | None = None
        self.direct: list[Got] = []  # At most once.
        self.casts: list[tuple[Broadcast, Way]] = []
        self.parcels: list[Parcel] = []
        self.in_flight: dict[int, Got] = {}  # By number, in order.
        self.repeated: list[Got] = []
        self.freed: list[int] = []
        self.is_taken_over = False
        self.end: str | None = None

    @property
    def own(self) -> Session:
        assert self.session is not None
        return self.session

    @property
    def got(self) -> list[Got]:
        return [*self.in_flight.values()]

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.got]

    # --- as a receiver

    def room(self) -> int:
        return self.window - len(self.in_flight)

    def receive(self, broadcast: Broadcast, way: Way) -> None:
        self.casts.append((broadcast, way))
        self.direct += map(_told, broadcast.run.messages)

    def deliver(self, parcel: Parcel) -> None:
        assert not self.is_taken_over
        assert len(parcel.numbers) <= self.room()
        self.parcels.append(parcel)
        for number, message in zip(parcel.numbers, parcel.run.messages, strict=True):
            assert 1 <= number <= 65_535
            assert number not in self.in_flight
            self.in_flight[number] = _told(message)
            if parcel.is_repeated:
                self.repeated.append(_told(message))

    def release(self, numbers: Sequence[int]) -> None:
        self.freed += numbers

    def taken_over(self) -> None:
        self.is_taken_over = True

    def ended(self, reason: str) -> None:
        self.end = reason

    # --- as a client

    def acknowledge(self, *numbers: int) -> None:
        """All, if none is given."""
        which = numbers or tuple(self.in_flight)
        for number in which:
            del self.in_flight[number]
        self.own.acknowledge(which)


def _told(message: Message) -> Got:
    envelope, body = message
    return to_path(envelope.subject), bytes(body)


class Sessions(Host):
    async def connect(
        self,
        client_id: str = "c",
        *filters: str,
        quality: int = Quality.AT_LEAST_ONCE,
        clean: bool = False,
        expiry_ms: int | None = None,
        will: Will | None = None,
        window: int = 1_000,
    ) -> Peer:
        """Open a session, attach to it and subscribe."""
        peer = Peer(window)
        opened = self.vhost.sessions.open(
            client_id, "u", peer, clean_start=clean, expiry_ms=expiry_ms, will=will
        )
        peer.session, self.is_present = await self.do(opened)
        self.call(peer.own.attach, peer)
        if filters:
            await self.subscribe(peer, *[Subscription(each, quality) for each in filters])
        await self.settle()
        return peer

    async def subscribe(self, peer: Peer, *wanted: Subscription) -> list[Granted]:
        granted = await self.do(peer.own.subscribe(wanted))
        self.call(peer.own.send_retained, wanted, granted)
        return granted

    async def tell(self, *messages: Message, **facts: Any) -> list[bytes]:
        """Publish on subjects, and wait until it is committed. Returns what went nowhere."""
        nowhere, answer = self.begin_to_tell(*messages, **facts)
        assert await answer is None
        await self.settle()
        return nowhere

    def begin_to_tell(
        self, *messages: Message, **facts: Any
    ) -> tuple[list[bytes], "asyncio.Future[Failure]"]:
        answer: asyncio.Future[Failure] = self.loop.create_future()
        publication = Publication(answer.set_result)

        def publish() -> Sequence[Message]:
            found = self.vhost.subjects.publish(messages, publication, **facts)
            publication.arrived()
            return found

        nowhere = self.call(publish)
        return [bytes(body) for _, body in nowhere], answer

    async def settle(self) -> None:
        """Let all that is under way come to its end."""
        await asyncio.sleep(0.05)
