"""What a session uses, and does not make itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from entrepot.broker.queue.queue import Queue
from entrepot.broker.record_store import RecordStore
from entrepot.broker.session.ports import Granted, Receiver, Subscription
from entrepot.core.faults import Faults

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session


class Member(Protocol):
    """A session's part in a queue that it shares with others."""

    @property
    def queue(self) -> Queue: ...
    def settle(self, lane: int, offset: int) -> None: ...
    def attach(self) -> None: ...
    def detach(self) -> None: ...
    def wake(self) -> None: ...


class Feed(Protocol):
    """Delivers retained messages to a session, as it has room."""

    def go_on(self) -> None: ...


class Home(Protocol):
    """What a session needs of its registry."""

    @property
    def store(self) -> RecordStore: ...
    @property
    def faults(self) -> Faults: ...

    def subscribe_now(
        self, session: Session, wanted: Sequence[Subscription]
    ) -> list[Granted] | None: ...
    async def subscribe(
        self, session: Session, wanted: Sequence[Subscription]
    ) -> list[Granted]: ...
    async def unsubscribe(self, session: Session, filters: Sequence[str]) -> list[bool]: ...
    def send_retained(
        self, session: Session, wanted: Sequence[Subscription], granted: Sequence[Granted]
    ) -> None: ...
    def detach(
        self, session: Session, receiver: Receiver, expiry_ms: int | None, with_will: bool
    ) -> None: ...
