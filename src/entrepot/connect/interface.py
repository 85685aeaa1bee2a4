"""What a connector is, and what it may raise.

A source says, with every handful of records, where it goes on after them. Its runner
writes the records and that position in one transaction, and hands the position of the
last one back when the source is opened again: so a source need not remember anything.

A sink is handed records and returns when they are where they belong, for good. Its runner
then commits their offsets. A sink whose target can keep an offset together with the records
keeps it there, and says so when it is opened: then nothing is written twice.

Whatever a connector cannot do now but may be able to do later is `Unavailable`: it is
closed, and opened again after a pause.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.core.ports import Clock

Position = Any  # Whatever JSON can say.


class ConnectError(Exception):
    """The connector cannot go on. The text is one line for the person who started it."""


class ConfigError(ConnectError):
    """A setting somebody got wrong."""


class Unavailable(ConnectError):
    """It may be better later: the other side is down, or busy."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1  # -1: now.
    topic: str | None = None  # None: the connector's.
    partition: int | None = None  # None: by the key, as Kafka's clients do.


@dataclass(frozen=True, slots=True)
class Rejected:
    """What a source found that cannot be a record."""

    data: bytes
    where: str
    reason: str


class Polled(NamedTuple):
    records: Sequence[SourceRecord | Rejected]
    position: Position  # Where to go on when these are committed.


@dataclass(frozen=True, slots=True)
class Context:
    """What a connector may know and do beside its options."""

    name: str
    clock: Clock
    # Sinks give a record that they cannot write to it. It returns when the record is in
    # the dead-letter topic, or raises, which ends the connector.
    reject: Callable[[Message, str], Awaitable[None]]
    # Repeats what raises Unavailable, with pauses, until it must be raised.
    persist: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class Source(ABC):
    """Reads from the world. Made anew each time it is opened."""

    # A frozen dataclass whose fields are the legal options; without one, they are a dict.
    Options: ClassVar[type[Any] | None] = None
    # Unless the file says: records in one transaction, and the pause after nothing was there.
    batch_records: ClassVar[int] = 1_000
    poll_ms: ClassVar[int] = 500

    def __init__(self, options: Any, context: Context) -> None:
        self.options = options
        self.context = context

    async def open(self, position: Position | None) -> None:
        """Go on there; None is the very beginning."""
        return None

    @abstractmethod
    async def poll(self, count_max: int) -> Polled | None:
        """The next records; None when there is nothing for now."""

    async def committed(self, position: Position) -> None:
        """All before it is in the topic for good: what was kept for it may go."""
        return None

    async def close(self) -> None:
        """Give back what was opened, however far that came."""
        return None


class Sink(ABC):
    """Writes to the world. Made anew each time it is opened."""

    Options: ClassVar[type[Any] | None] = None
    # How much is gathered for one `write`, unless the file says.
    batch_records: ClassVar[int] = 1_000
    batch_wait_ms: ClassVar[int] = 100

    def __init__(self, options: Any, context: Context) -> None:
        self.options = options
        self.context = context

    async def open(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The next offset of each partition whose offset the target keeps."""
        return {}

    @abstractmethod
    async def write(self, messages: Sequence[Message]) -> None:
        """They are in the target for good when it returns, but for those rejected."""

    async def close(self) -> None:
        """Give back what was opened, however far that came."""
        return None
