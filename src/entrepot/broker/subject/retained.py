"""Retained messages: the newest message of a name that was published to be kept.

Who subscribes gets those whose names match. They are found by an index of names, and held in
memory; each is also a record of the internal topic `__retained`, keyed by virtual host and name,
which is compacted. A message without a body deletes the one of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

from entrepot.broker.queue.message import Publication, Refused
from entrepot.broker.record_store import RecordStore
from entrepot.broker.subject.filter import Filter
from entrepot.broker.subject.name import levels_of
from entrepot.broker.subject.name_index import NameIndex
from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.message import Message
from entrepot.core.neutral import Formats
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.core.steps import Steps

_STEP_NODES = 100  # Nodes of the index that are looked at in one step.


class RetainedMessage(NamedTuple):
    time_ms: int  # When it was published.
    message: Message

    @property
    def subject(self) -> str:
        return self.message[0].subject

    @property
    def size(self) -> int:
        envelope, body = self.message
        return len(envelope.subject) + len(envelope.head) + len(body)

    def is_over(self, now_ms: int) -> bool:
        """Return whether its time to live is over."""
        ttl_ms = self.message[0].handling.ttl_ms
        return ttl_ms is not None and self.time_ms + ttl_ms <= now_ms


# Returns the messages whose names a filter matches, as they are now.
Source = Callable[[Filter], Steps[list[RetainedMessage]]]


class Retained:
    def __init__(self, vhost: str, store: RecordStore, clock: Clock) -> None:
        self._vhost = vhost
        self._store = store
        self._clock = clock
        self._messages = NameIndex[RetainedMessage]()
        self._sources: dict[str, Source] = {}  # By the first level of their names.
        self.size = 0  # Bytes of all messages.
        self.damage: StorageError | None = None  # Why not all of them could be read at the start.

    @property
    def count(self) -> int:
        return self._messages.count

    def add_source(self, level: str, source: Source) -> None:
        """Ask `source` for the messages whose names begin with this level, instead of keeping
        them here."""
        self._sources[level] = source

    def may_match(self, text: str) -> bool:
        """Return whether there may be messages whose names a path filter matches."""
        return bool(self.count) or text.partition("/")[0] in self._sources

    def get(self, subject: str) -> RetainedMessage | None:
        found = self._messages.get(levels_of(subject))
        return None if found is None or found.is_over(self._clock.now_ms()) else found

    def keep(self, message: Message, publication: Publication | None) -> None:
        """Retain a message, or delete the one of its name if this has no body.

        The publication is answered when that is committed, and refused if there is no room.
        """
        envelope, body = message
        if not len(body):
            # If there is none, an earlier message may have deleted it and not be committed.
            self.clear(envelope.subject)
        else:
            kept = RetainedMessage(self._clock.now_ms(), (envelope, bytes(body)))
            if not self._has_room(kept):
                if publication is not None:
                    publication.expect()
                    publication.arrived(Refused("the message cannot be retained: no room"))
                return
            self._put(kept)
            headers = ((envelope.format.name, envelope.format.pack(envelope)),)
            key = _key(self._vhost, envelope.subject)
            self._store.put(Record(key, bytes(body), headers, kept.time_ms))
        if publication is not None:
            publication.expect()
            self._store.when_committed(publication.arrived)

    def _has_room(self, kept: RetainedMessage) -> bool:
        old = self._messages.get(levels_of(kept.subject))
        count = self.count + (old is None)
        size = self.size + kept.size - (0 if old is None else old.size)
        return (
            len(kept.message[1]) <= limits.RETAINED_MESSAGE_BYTES_MAX
            and count <= limits.RETAINED_MAX
            and size <= limits.RETAINED_BYTES_MAX
        )

    def _put(self, kept: RetainedMessage) -> None:
        levels = levels_of(kept.subject)
        old = self._messages.get(levels)
        self.size += kept.size - (0 if old is None else old.size)
        self._messages.put(levels, kept)

    def clear(self, subject: str) -> bool:
        """Delete the message of a name. Returns whether there was one."""
        old = self._messages.remove(levels_of(subject))
        if old is None:
            return False
        self.size -= old.size
        self._store.put(Record(_key(self._vhost, subject), None))
        return True

    def when_committed(self, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` when all changes so far are committed, or have failed."""
        self._store.when_committed(done)

    def matching(self, filter: Filter) -> Steps[list[RetainedMessage]]:
        """Return the messages whose names the filter matches, without those that have expired."""
        source = self._sources.get(filter[0]) if isinstance(filter[0], str) else None
        if source is not None:
            return (yield from source(filter))
        found: list[RetainedMessage] = []
        now_ms = self._clock.now_ms()
        for number, each in enumerate(self._messages.walk(filter)):
            if each is not None and not each.is_over(now_ms):
                found.append(each)
            if number % _STEP_NODES == 0:
                yield
        return found

    def clear_all(self) -> Steps[None]:
        """Delete all messages: the virtual host is deleted."""
        messages, self._messages, self.size = self._messages, NameIndex(), 0
        for each in _every(messages):
            self._store.put(Record(_key(self._vhost, each.subject), None))
            yield

    def restore(self, kept: Iterable[RetainedMessage]) -> None:
        """Add the messages from the store, as far as it could be read."""
        for each in kept:
            self._put(each)
        self.damage = self._store.failure


def _every(messages: NameIndex[RetainedMessage]) -> Iterator[RetainedMessage]:
    return (each for each in messages.everything() if each is not None)


def _key(vhost: str, subject: str) -> bytes:
    return f"{vhost}\0{subject}".encode("utf-8", "surrogateescape")


def _split(key: bytes) -> tuple[str, str]:
    vhost, _, subject = key.decode("utf-8", "surrogateescape").partition("\0")
    return vhost, subject


class StoredRetained:
    """The retained messages of all virtual hosts, folded from their records."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._records: dict[bytes, Record] = {}

    def apply(self, record: Record) -> None:
        assert record.key is not None
        if record.value is None:
            self._records.pop(record.key, None)
        else:
            self._records[record.key] = record

    def deletions(self, vhosts: Container[str]) -> list[Record]:
        """Return records that delete what is left of virtual hosts that are deleted."""
        keys = [key for key in self._records if _split(key)[0] not in vhosts]
        return [Record(key, None) for key in keys]

    def by_vhost(self) -> dict[str, list[RetainedMessage]]:
        found: dict[str, list[RetainedMessage]] = {}
        for key, record in self._records.items():
            vhost, subject = _split(key)
            envelope = self._formats.envelope(record._replace(key=None))
            assert record.value is not None
            if envelope.subject == subject:
                kept = RetainedMessage(record.timestamp_ms, (envelope, record.value))
                found.setdefault(vhost, []).append(kept)
        return found
