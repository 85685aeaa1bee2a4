"""A message of a queue or a topic, whatever protocol it came by: an envelope and a body.

An envelope says where a message was published to, and has the properties that its publisher
gave it, as bytes in the format of the publisher's protocol. These bytes are handed on unread:
whoever speaks the same protocol gets them back as they were. What the broker itself must act
upon is the envelope's `handling`, and what all protocols share its `properties`; both are read
out of the bytes by the envelope's `Format`, when somebody asks.

Messages of one publisher differ in little but their bodies. Those that are alike share an
envelope, mostly: what is worked out for a message is worked out once for each envelope.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from operator import is_not, itemgetter
from typing import NamedTuple, Protocol

from entrepot.core.ports import Buffer
from entrepot.core.properties import Death, Properties


class Handling(NamedTuple):
    """What the broker does with a message because of its properties."""

    is_persistent: bool = False  # It survives a restart, in a queue that does.
    priority: int = 0
    ttl_ms: int | None = None  # None means: it does not expire.
    delay_ms: int = 0  # How long a delayed exchange keeps it.
    confirms_when_consumed: bool = False  # Its publisher waits for the consumer.
    copies: tuple[str, ...] = ()  # Further subjects that it is published to,
    blind_copies: tuple[str, ...] = ()  # and those that no receiver may see.
    deduplication_id: bytes | None = None  # A deduplicating exchange passes one of equal ids on,
    deduplication_ttl_ms: int | None = None  # for this time. None means: as the exchange says.
    group: str | None = None  # A queue with ordered groups delivers the messages of one in order.

    @property
    def has_copies(self) -> bool:
        """Return whether the message is published to further subjects than its own."""
        return bool(self.copies or self.blind_copies)


PLAIN = Handling()
PERSISTENT = Handling(is_persistent=True)


class Format(Protocol):
    """Reads the properties of one protocol, and writes what the broker has to add to them.

    A `head` is the bytes of a message's properties. What it is given was checked when the
    message came, or comes from records that anybody may have written: a format reads what it
    can and never fails.
    """

    @property
    def name(self) -> str:
        """Return the name of the record header that holds envelopes of this format. Persisted."""

    def handling(self, head: bytes) -> Handling:
        """Return the properties that the broker itself acts upon."""

    def properties(self, head: bytes) -> Properties:
        """Return the properties that other protocols have, too."""

    def readable(self, head: bytes) -> Iterable[tuple[str, bytes | None]]:
        """Return the properties as headers of a record, for those who read the log."""

    def without_blind_copies(self, head: bytes) -> bytes:
        """Return the properties as receivers may see them."""

    def delayed_at(self, head: bytes, exchange: str) -> bytes:
        """Return the properties, and in them the name of the delayed exchange that keeps it."""

    def after_delay(self, head: bytes) -> tuple[str, bytes]:
        """Return the name that `delayed_at` added, and the properties without it and the delay."""

    def deaths(self, head: bytes) -> Sequence[Death]:
        """Return the message's deaths, the newest first."""

    def with_deaths(
        self, head: bytes, deaths: Sequence[Death], exchange: str, *, keeps_copies: bool
    ) -> bytes:
        """Return the properties of a dead letter: these deaths, and no time to live.

        The newest death comes first. `exchange` is where the message was published to before it.
        """

    def pack(self, envelope: Envelope) -> bytes:
        """Encode an envelope of this format. Persisted."""

    def unpack(self, packed: bytes) -> Envelope | None:
        """Decode what `pack` encoded; None if the bytes are not an envelope."""


class Envelope:
    """Where a message was published to, and its properties. It does not change."""

    __slots__ = (
        "_handling",
        "exchange",
        "format",
        "head",
        "is_checked",
        "is_plain",
        "path",
        "section",
        "subject",
    )

    def __init__(self, exchange: str, subject: str, head: bytes, format: Format) -> None:
        self.exchange = exchange
        self.subject = subject  # A routing key, a topic, a destination.
        self.head = head  # The properties, in bytes of the format.
        self.format = format
        self._handling: Handling | None = None
        # Whether the broker is known to have nothing to heed but whether it is persistent.
        self.is_plain = False
        self.is_checked = False  # Whether its gateway has checked the properties.
        self.section: bytes | None = None  # The encoded headers of its record, once they are used.
        self.path: bytes | None = None  # The subject as an encoded path, once it is used.

    @property
    def handling(self) -> Handling:
        handling = self._handling
        if handling is None:
            handling = self.handling = self.format.handling(self.head)
        return handling

    @handling.setter
    def handling(self, handling: Handling) -> None:
        """Set the handling, if it is known without decoding the properties."""
        self._handling = handling
        self.is_plain = handling is PLAIN or handling is PERSISTENT

    @property
    def properties(self) -> Properties:
        return self.format.properties(self.head)

    def with_head(self, head: bytes) -> Envelope:
        """Return a copy with other properties."""
        return Envelope(self.exchange, self.subject, head, self.format)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Envelope)
            and self.head == other.head
            and self.subject == other.subject
            and self.exchange == other.exchange
            and self.format is other.format
        )

    def __hash__(self) -> int:
        return hash((self.exchange, self.subject, self.head))

    def __repr__(self) -> str:
        where = f"{self.exchange!r}, {self.subject!r}"
        return f"Envelope({where}, {self.head!r}, {self.format.name})"


Message = tuple[Envelope, Buffer]
_first = itemgetter(0)


def distinct(messages: Sequence[Message]) -> Collection[Envelope]:
    """Return the envelopes of the messages, each object once, in order. There must be a message."""
    first = messages[0][0]
    if len(messages) == 1:
        return (first,)
    envelopes = list(map(_first, messages))
    if first is envelopes[-1] and not any(map(is_not, envelopes, repeat(first))):
        return (first,)  # Nearly always.
    return dict(zip(map(id, envelopes), envelopes, strict=True)).values()


def subjects(messages: Sequence[Message]) -> Collection[str]:
    """Return the subjects of the messages, each once, in order. There must be a message."""
    if len(messages) == 1:
        return (messages[0][0].subject,)
    return dict.fromkeys([envelope.subject for envelope in distinct(messages)])


class OpaqueFormat:
    """Implements `Format` for properties that are carried and never read."""

    name = "opaque"

    def handling(self, head: bytes) -> Handling:
        return Handling()

    def properties(self, head: bytes) -> Properties:
        return Properties()

    def readable(self, head: bytes) -> Iterable[tuple[str, bytes | None]]:
        return ()

    def without_blind_copies(self, head: bytes) -> bytes:
        return head

    def delayed_at(self, head: bytes, exchange: str) -> bytes:
        return head

    def after_delay(self, head: bytes) -> tuple[str, bytes]:
        return "", head

    def deaths(self, head: bytes) -> Sequence[Death]:
        return ()

    def with_deaths(
        self, head: bytes, deaths: Sequence[Death], exchange: str, *, keeps_copies: bool
    ) -> bytes:
        return head

    def pack(self, envelope: Envelope) -> bytes:
        return envelope.head

    def unpack(self, packed: bytes) -> Envelope | None:
        return None


OPAQUE = OpaqueFormat()
