"""What passes between a session and the gateway of its client.

A message that is delivered at most once goes to the receiver at once, or nowhere. Any other waits
in the session's queue until the receiver has room, and is delivered with a *number*, by which
the gateway answers: `Session.acknowledge`, or `Session.received` and `Session.completed` for
exactly once. A number stays with its message until the last answer, also over a restart of the
broker, so that a client that is told the same message again recognises it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from entrepot.broker.queue.message import Publication, Run
from entrepot.core.message import Message, distinct

if TYPE_CHECKING:
    from entrepot.broker.queue.queue import Queue

# Publishes a run to a queue.
Send: TypeAlias = "Callable[[Queue, Run, Publication | None], None]"


class Quality(IntEnum):
    """How often a message may reach its receiver. Values are persisted: never change one."""

    AT_MOST_ONCE = 0
    AT_LEAST_ONCE = 1
    EXACTLY_ONCE = 2


class RetainedWanted(IntEnum):
    """Which retained messages a subscription wants. Values are persisted: never change one."""

    ALWAYS = 0
    IF_NEW = 1  # Only if there was no subscription to this filter.
    NEVER = 2


class Subscription(NamedTuple):
    """A filter that a client subscribes to, and how it wants what matches."""

    filter: str  # As the client wrote it, with `/` between levels.
    quality: int = Quality.AT_MOST_ONCE  # The best that it takes.
    no_local: bool = False  # It does not want what it publishes itself.
    keeps_retain: bool = False  # Whether it sees that a message was published to be retained.
    retained: int = RetainedWanted.ALWAYS
    identifier: int = 0  # The client's own number for it. 0 means: none.


class Granted(NamedTuple):
    """The answer to a subscription."""

    quality: int | None  # The quality granted; None means: it is refused,
    reason: str = ""  # for this reason.
    is_new: bool = True  # Whether there was no subscription to this filter before.


class Way(NamedTuple):
    """How a session gets messages: by which of its subscriptions, taken together."""

    quality: int  # The best quality of its subscriptions that match.
    identifiers: tuple[int, ...] = ()  # Of all subscriptions that match and have one.
    keeps_retain: bool = False
    no_local: bool = False  # All of them have it.
    is_retained: bool = False  # The message was retained before the subscription was made.


class Broadcast:
    """Messages on their way to all who hear them. Each of these gets this same object."""

    __slots__ = (
        "_parts",
        "_send",
        "encoded",
        "envelopes",
        "is_first",
        "publication",
        "run",
        "sender",
    )

    def __init__(
        self,
        run: Run,
        publication: Publication | None = None,
        sender: object | None = None,
        *,
        send: Send | None = None,
        encoded: dict[object, bytes] | None = None,
    ) -> None:
        self.run = run
        self.publication = publication
        self.sender = sender  # The session that publishes it.
        messages = run.messages
        # Of the messages, each once.
        self.envelopes = (messages[0][0],) if len(messages) == 1 else distinct(messages)
        self.is_first = send is None  # Nobody can have got the messages before.
        self._send = send  # Publishes to a queue. None means: as any other run.
        self._parts: dict[tuple[int, int], Broadcast] | None = None  # Made for the first one.
        # For gateways: the run as bytes, encoded for one receiver. It serves others. Keys are
        # theirs. The publisher may have put something there.
        self.encoded: dict[object, bytes] = {} if encoded is None else encoded

    def part(self, start: int, end: int) -> Broadcast:
        """Return the messages at these places: the same object whenever it is asked for."""
        messages = self.run.messages
        if end - start == len(messages):
            return self
        if self._parts is None:
            self._parts = {}
        part = self._parts.get((start, end))
        if part is None:
            run = self.run._replace(messages=messages[start:end])
            part = self._parts[start, end] = Broadcast(run)
        return part

    def store(self, queue: Queue, run: Run, publication: Publication | None) -> None:
        """Publish the run, or a part of it, to a queue."""
        if self._send is None:
            queue.publish(run, publication)
        else:
            self._send(queue, run, publication)


class Parcel(NamedTuple):
    """Messages from a session's queue, delivered together."""

    run: Run  # When they were published, and the messages.
    numbers: Sequence[int]  # One for each message, 1 to 65,535, to answer by.
    way: Way  # The same for all of them.
    is_repeated: bool  # Whether they may have been delivered before.


class Receiver(Protocol):
    """A client's connection. Implemented by gateways; none of these methods may fail."""

    def room(self) -> int:
        """Return how many more messages that are answered may be delivered now.

        When there is room again, the gateway calls `Session.wake`.
        """

    def receive(self, broadcast: Broadcast, way: Way) -> None:
        """Deliver messages at most once. If there is too much unsent output, drop them."""

    def deliver(self, parcel: Parcel) -> None:
        """Deliver messages that are answered, at most as many as there is room for.

        Those that only need `AT_MOST_ONCE` (the lesser of the message's own quality and the
        way's) must be acknowledged by the gateway itself, when they are sent.
        """

    def release(self, numbers: Sequence[int]) -> None:
        """Tell the client that these numbers, which it has received, are free again.

        Called when a call of `Session.received` is committed, and after `attach` for those that
        were received and not completed before, in their old order.
        """

    def taken_over(self) -> None:
        """Handle that another connection has the session now. It must not be used any more."""

    def ended(self, reason: str) -> None:
        """Handle that the session was deleted by an administrator."""


class Will(NamedTuple):
    """A message that is published when the client goes away without saying so."""

    message: Message  # Its envelope is made like those of other messages.
    is_retained: bool = False
    delay_ms: int = 0  # It is published so long after, or when the session ends if that is first.


class Receipt(Enum):
    """What is to be done with a message that its sender publishes exactly once."""

    NEW = "new"  # Publish it.
    KNOWN = "known"  # It is published already: answer it, and no more.
    PENDING = "pending"  # It is being published: the answer to the first one serves both.
    # It may be stored, from before a start or although it was refused.
    PERHAPS = "perhaps"  # Publish it to those that do not have it: `is_repeated`.
