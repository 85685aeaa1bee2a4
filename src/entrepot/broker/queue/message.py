"""Messages of queues as the broker has them: runs that came at one time.

A message's properties are bytes of AMQP's wire, whatever protocol it came by: the broker
hands them on and asks a `PropertyReader` the little that it must know. A run is handled as one,
wherever its messages were published to; a run of a thousand costs little more than one of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.router.event import OlderRecords
from entrepot.core import limits
from entrepot.core.envelope import Envelope, Message
from entrepot.core.errors import StorageError
from entrepot.core.record import Record
from entrepot.core.value import FrozenTable

Headers = tuple[tuple[str, bytes | None], ...]


class Run(NamedTuple):
    """Messages in their order."""

    time_ms: int  # When they came.
    messages: Sequence[Message]


def is_large(run: Run) -> bool:
    """Whether it is one message, to be written in slices before it is appended."""
    messages = run.messages
    return len(messages) == 1 and len(messages[0][1]) > limits.LARGE_BYTES


class Taken(NamedTuple):
    """Messages on their way to a consumer."""

    offsets: range  # As many as the run has messages; of any step.
    run: Run
    attempts: Sequence[int] | None  # How often each was handed out before; None: never.

    def part(self, which: slice) -> Taken:
        """Some of them."""
        offsets, (time_ms, messages), attempts = self
        run = Run(time_ms, messages[which])
        return Taken(offsets[which], run, None if attempts is None else attempts[which])


class Facts(NamedTuple):
    """What of a message's properties the broker acts upon."""

    is_persistent: bool = False
    priority: int = 0
    ttl_ms: int | None = None


class PropertyReader(OlderRecords, Protocol):
    """Knows the bytes. Equal bytes are asked about often, so it remembers its answers."""

    def facts(self, properties: bytes) -> Facts: ...

    def headers(self, properties: bytes) -> Mapping[str, object]:
        """The table of headers; empty when there is none."""

    def named(self, properties: bytes) -> Mapping[str, object]:
        """Of `correlation_id`, `message_id` and `timestamp` those that are there."""

    def with_headers(
        self, properties: bytes, headers: Mapping[str, object], *, expires: bool = True
    ) -> bytes:
        """The same with another table of headers; and without its expiration unless `expires`."""

    def to_record(self, envelope: Envelope) -> Headers:
        """A record's headers: all there is to know, also for those who speak no AMQP."""

    def from_record(self, record: Record) -> Envelope:
        """Also of a record that came by another way."""

    def stored_settings(self, arguments: FrozenTable, where: str) -> QueueSettings:
        """Return the settings of a queue of which only the arguments are stored.

        Raises InvalidQueue.
        """


class Publication:
    """Tells a publisher once that all queues have its messages, or that one has not.

    Counts itself as one, so that it cannot end before all queues are asked: `arrived` is to be
    called once more for that, with the answer of the publisher's own side.
    """

    __slots__ = ("_done", "_failure", "_waiting")

    def __init__(self, done: Callable[[StorageError | Refused | None], None]) -> None:
        self._done = done
        self._waiting = 1
        self._failure: StorageError | Refused | None = None

    def part(self, places: Sequence[int]) -> Publication:
        """For some of the run's messages, which are at these places in it.

        What is refused of them is then told with its places in the whole.
        """
        self.expect()

        def done(failure: Failure | None) -> None:
            if isinstance(failure, Refused):
                within = range(len(places)) if failure.places is None else failure.places
                failure = Refused(str(failure), [places[place] for place in within])
            self.arrived(failure)

        return Publication(done)

    def expect(self) -> None:
        """One more queue is going to answer."""
        self._waiting += 1

    def arrived(self, failure: StorageError | Refused | None = None) -> None:
        self._failure = _worse(self._failure, failure)
        self._waiting -= 1
        if self._waiting == 0:
            self._done(self._failure)


class Refused(Exception):
    """A queue that takes no more: it is full, or gone."""

    def __init__(self, text: str, places: Sequence[int] | None = None) -> None:
        super().__init__(text)
        self.places = places  # Of the messages in the run; None: all of them.


Failure = StorageError | Refused


def _worse(one: Failure | None, other: Failure | None) -> Failure | None:
    """What two queues say together."""
    if one is None or other is None:
        return one or other
    if not isinstance(one, Refused) or one.places is None:
        return one
    if not isinstance(other, Refused) or other.places is None:
        return other
    return Refused(str(one), sorted({*one.places, *other.places}))
