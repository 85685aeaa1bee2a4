"""The settings of a queue, under the broker's own names.

Gateways translate the arguments of their protocols into these settings, and check them. The
arguments are stored, too: a second declaration must have the same, and listings show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from entrepot.core import limits
from entrepot.core.value import FrozenTable


class WhenFull(Enum):
    """What a queue does when it exceeds its limit. Values are persisted: never change one."""

    DROP_OLDEST = "drop-oldest"
    REFUSE = "refuse"
    REFUSE_AND_DEAD_LETTER = "refuse-and-dead-letter"  # What is refused becomes a dead letter.


class Grant(msgspec.Struct, frozen=True):
    """A right to one queue that a gateway gives and asks for itself. Persisted: never change a
    name."""

    label: str
    users: tuple[str, ...]
    actions: tuple[str, ...]  # In the gateway's words.


class QueueSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of a queue. None means: no such rule. Persisted: never change a name."""

    is_stream: bool = False  # A topic that is declared like a queue.
    keeps_all: bool = False  # Every message survives a restart, also a transient one.
    ttl_ms: int | None = None
    heeds_expiration: bool = True  # Whether a message may have a TTL of its own.
    expires_ms: int | None = None  # After so long without use the queue itself is deleted.
    length_max: int | None = None
    length_bytes_max: int | None = None
    when_full: WhenFull = WhenFull.DROP_OLDEST
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    dead_letter_at_least_once: bool = False
    dead_letters_expired: bool = True  # Whether what expires becomes a dead letter, too.
    priority_max: int = 0
    single_active: bool = False
    delivery_limit: int | None = None
    # How long settled messages are kept, for a rewind, and how many bytes of them.
    retention_ms: int = limits.QUEUE_RETENTION_MS
    retention_bytes: int | None = None
    # For a stream: how long messages are kept, and in segments of which size.
    age_ms_max: int | None = None
    segment_bytes: int | None = None
    delay_ms: int = 0  # What is published is not delivered earlier than this.
    # For receivers and senders that ask over a protocol without connections, unless they say so
    # themselves: how long a message is leased, how long to wait for one, how large it may be.
    lease_ms: int | None = None
    wait_ms: int = 0
    message_bytes_max: int | None = None
    # Messages of one group are delivered in order: none while an earlier one is in flight.
    has_groups: bool = False
    rate_per_group: bool = False  # Told, and not enforced: there is no limit to the rate.
    # How long the id of a message is remembered. Another message with the same id is a duplicate.
    identity_ms: int | None = None
    identity_per_group: bool = False  # Ids are compared within a group only.
    identity_is_body: bool = False  # A message that comes without an id has its body's hash.
    labels: tuple[tuple[str, str], ...] = ()  # For people and their tools, in order of the names.
    created_ms: int | None = None  # None means: not known.
    changed_ms: int | None = None  # When the settings were last changed.
    grants: tuple[Grant, ...] = ()

    @property
    def lane_count(self) -> int:
        """Return how many lanes the queue has: one for each priority, lane 0 for the lowest."""
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
    arguments: FrozenTable = ()  # As the client declared them; the broker only stores them.


class Declaration(Protocol):
    """A queue as a client asks for it."""

    @property
    def name(self) -> str: ...

    @property
    def exclusive(self) -> bool: ...

    def spec(self) -> QueueSpec:
        """Return the queue to declare. Raises InvalidQueue."""

    def check_same(self, current: QueueSpec) -> None:
        """Raise QueueMismatch if the existing queue differs from what is asked for."""
