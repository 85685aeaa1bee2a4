"""What a queue is declared to be, in the broker's own words.

Each protocol has its own names for these rules and says itself what is wrong with a value; a
gateway translates. What was declared is kept as it was said, too: whoever declares the queue
again must say the same, and whoever lists it expects to see that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from entrepot.core import limits
from entrepot.core.value import FrozenTable


class WhenFull(Enum):
    """What a queue does with one message more than it may have. Persisted: never change one."""

    DROP_OLDEST = "drop-oldest"
    REFUSE = "refuse"
    REFUSE_AND_DEAD_LETTER = "refuse-and-dead-letter"  # What is refused becomes a dead letter.


class QueueSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of a queue. None: without such a rule. Persisted: never change a name."""

    is_stream: bool = False  # A topic that is declared like a queue.
    keeps_all: bool = False  # Every message survives a restart, whatever it says of itself.
    ttl_ms: int | None = None
    heeds_expiration: bool = True  # Whether a message may have a time to live of its own.
    expires_ms: int | None = None  # How long the queue itself lives while nobody uses it.
    length_max: int | None = None
    length_bytes_max: int | None = None
    when_full: WhenFull = WhenFull.DROP_OLDEST
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    dead_letter_at_least_once: bool = False
    priority_max: int = 0
    single_active: bool = False
    delivery_limit: int | None = None
    retention_ms: int = limits.QUEUE_RETENTION_MS  # How long what is settled can be rewound to,
    retention_bytes: int | None = None  # and how much of it.
    age_ms_max: int | None = None  # Of a stream: how long,
    segment_bytes: int | None = None  # and in files of which size.

    @property
    def lane_count(self) -> int:
        """One for each priority; lane 0 has the lowest."""
        return self.priority_max + 1


PLAIN = QueueSettings()


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue as it is declared."""

    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    settings: QueueSettings = PLAIN
    arguments: FrozenTable = ()  # In the words of the protocol; the broker only keeps them.


class Declaration(Protocol):
    """A queue as a client asks for it."""

    @property
    def name(self) -> str: ...

    @property
    def exclusive(self) -> bool: ...

    def spec(self) -> QueueSpec:
        """Return what is asked for. Raises InvalidQueue."""

    def check_same(self, current: QueueSpec) -> None:
        """Raises QueueMismatch when the queue that there is differs from what is asked for."""
