"""Sessions as records of an internal topic, `__sessions`. `docs/formats/sessions.md` has the bytes.

A key begins with the kind of the record and the session's number. The newest of a key counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

import msgspec

from entrepot.broker.session.ports import Subscription, Will
from entrepot.core.neutral import Formats
from entrepot.core.record import Record

# Kinds. Persisted: never change one.
SESSION, SUBSCRIPTION, SERIAL, RELEASED, WILL, ASSIGNED = 1, 2, 3, 4, 5, 6
_KEY = Struct(">BQ")  # Kind, session's number.
_NUMBER_KEY = Struct(">BQH")  # And a packet's number.
_RELEASED_KEY = Struct(">BQQ")  # And an offset.
_SERIAL = Struct(">I")
_WILL = Struct(">QB")  # Delay in ms, whether it is retained; then the body.
_ASSIGNED = Struct(">QB")  # Offset, whether it is received; then the name of the queue.


class SessionFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Persisted: never change a name."""

    vhost: str
    client_id: str
    user: str
    expiry_ms: int | None = None  # None means: it never expires.
    ended_ms: int | None = None  # When its connection ended. None means: it has one.


class _SubscriptionValue(msgspec.Struct, frozen=True, array_like=True):
    """Persisted: only grows at its end."""

    quality: int
    no_local: bool
    keeps_retain: bool
    retained: int
    identifier: int


class StoredAssignment(NamedTuple):
    """A message of a shared queue that belongs to a session."""

    queue: str
    offset: int
    is_received: bool


class StoredSession:
    """What the records say of one session."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.facts: SessionFacts | None = None  # None means: it is deleted.
        self.subscriptions: dict[str, Subscription] = {}
        self.serials: dict[int, int] = {}  # By packet number.
        self.released: dict[int, None] = {}  # Offsets.
        self.assigned: dict[int, StoredAssignment] = {}  # By number.
        self.will: Will | None = None

    @property
    def is_empty(self) -> bool:
        parts = (self.facts, self.subscriptions, self.serials, self.released, self.assigned)
        return not any(parts) and self.will is None

    def deletions(self) -> list[Record]:
        """Return records that delete all that is stored."""
        return [
            Record(_KEY.pack(SESSION, self.number), None),
            *[unassigned_record(self.number, each) for each in self.assigned],
            *deletions(self.number, self.subscriptions, self.serials, self.released, True),
        ]


def deletions(
    number: int,
    filters: Iterable[str],
    serials: Iterable[int],
    released: Iterable[int],
    has_will: bool,
) -> list[Record]:
    """Return records that delete what belongs to a session, but for the session itself."""
    found = [subscription_deleted(number, each) for each in filters]
    found += [Record(_NUMBER_KEY.pack(SERIAL, number, each), None) for each in serials]
    found += [released_record(number, each, is_over=True) for each in released]
    return [*found, will_deleted(number)] if has_will else found


def session_record(number: int, facts: SessionFacts) -> Record:
    return Record(_KEY.pack(SESSION, number), msgspec.msgpack.encode(facts))


def session_deleted(number: int) -> Record:
    return Record(_KEY.pack(SESSION, number), None)


def subscription_record(number: int, wanted: Subscription) -> Record:
    value = _SubscriptionValue(*wanted[1:])
    return Record(_subscription_key(number, wanted.filter), msgspec.msgpack.encode(value))


def subscription_deleted(number: int, filter: str) -> Record:
    return Record(_subscription_key(number, filter), None)


def _subscription_key(number: int, filter: str) -> bytes:
    return _KEY.pack(SUBSCRIPTION, number) + filter.encode("utf-8", "surrogateescape")


def serial_record(number: int, packet: int, serial: int) -> Record:
    return Record(_NUMBER_KEY.pack(SERIAL, number, packet), _SERIAL.pack(serial))


def released_record(number: int, offset: int, *, is_over: bool = False) -> Record:
    """Return the record of a message that its receiver has, and has not completed; or that it has
    completed it, which deletes that record."""
    return Record(_RELEASED_KEY.pack(RELEASED, number, offset), None if is_over else b"")


def assigned_record(
    session: int, number: int, queue: str, offset: int, *, is_received: bool = False
) -> Record:
    """Return the record that a message of a shared queue belongs to a session, which has it under
    that number."""
    value = _ASSIGNED.pack(offset, is_received) + queue.encode("utf-8", "surrogateescape")
    return Record(_NUMBER_KEY.pack(ASSIGNED, session, number), value)


def unassigned_record(session: int, number: int) -> Record:
    return Record(_NUMBER_KEY.pack(ASSIGNED, session, number), None)


def will_record(number: int, will: Will) -> Record:
    envelope, body = will.message
    headers = ((envelope.format.name, envelope.format.pack(envelope)),)
    value = _WILL.pack(will.delay_ms, will.is_retained) + bytes(body)
    return Record(_KEY.pack(WILL, number), value, headers)


def will_deleted(number: int) -> Record:
    return Record(_KEY.pack(WILL, number), None)


class StoredSessions:
    """All sessions, folded from their records."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self.by_number: dict[int, StoredSession] = {}

    def apply(self, record: Record) -> None:
        """Apply a record. One of another kind is passed over."""
        key, value = record.key, record.value
        if key is None or len(key) < _KEY.size:
            return
        kind, number = _KEY.unpack_from(key)
        stored = self.by_number.get(number)
        if stored is None:
            stored = self.by_number[number] = StoredSession(number)
        rest = key[_KEY.size :]
        if kind == SESSION:
            stored.facts = (
                None if value is None else msgspec.msgpack.decode(value, type=SessionFacts)
            )
        elif kind == SUBSCRIPTION:
            filter = rest.decode("utf-8", "surrogateescape")
            stored.subscriptions.pop(filter, None)
            if value is not None:
                facts = msgspec.msgpack.decode(value, type=_SubscriptionValue)
                stored.subscriptions[filter] = Subscription(filter, *msgspec.structs.astuple(facts))
        elif kind == SERIAL:
            packet = int.from_bytes(rest, "big")
            stored.serials.pop(packet, None)
            if value is not None:
                (stored.serials[packet],) = _SERIAL.unpack(value)
        elif kind == RELEASED:
            offset = int.from_bytes(rest, "big")
            stored.released.pop(offset, None)
            if value is not None:
                stored.released[offset] = None
        elif kind == ASSIGNED:
            packet = int.from_bytes(rest, "big")
            stored.assigned.pop(packet, None)
            if value is not None:
                offset, is_received = _ASSIGNED.unpack_from(value)
                queue = value[_ASSIGNED.size :].decode("utf-8", "surrogateescape")
                stored.assigned[packet] = StoredAssignment(queue, offset, bool(is_received))
        elif kind == WILL:
            stored.will = None if value is None else self._will(record, value)

    def _will(self, record: Record, value: bytes) -> Will:
        delay_ms, is_retained = _WILL.unpack_from(value)
        envelope = self._formats.envelope(record._replace(key=None))
        return Will((envelope, value[_WILL.size :]), bool(is_retained), delay_ms)
