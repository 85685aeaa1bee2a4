"""What a session knows of the messages that its client publishes exactly once.

Each has a packet number of the client's choice, which is in use until the client releases it. A
message with a number in use is a repeated one. That is kept in memory: what a crash takes of it
is found again in the queues and topics that got the message, for it is stored with an *identity*:
the session, the packet number, and a serial that counts how often the number was released. Only
the serial is recorded, and before the client may use the number again.

A message that was refused may be stored as well: in some of the queues and not in others, or in all
of them but on too few nodes of a cluster. When it comes again, it is looked for like after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from entrepot.broker.record_store import RecordStore
from entrepot.broker.session.ports import Receipt
from entrepot.broker.session.records import serial_record
from entrepot.core.errors import StorageError

_IDENTITY = Struct(">QHI")  # Session's number, packet number, serial.

# Called when a message is published (True), or is not (False).
WhenStored = Callable[[bool], None]


class _Receiving:
    """A message that is being published, or is published and not released."""

    __slots__ = ("is_stored", "waiters")

    def __init__(self) -> None:
        self.is_stored = False
        self.waiters: list[WhenStored] = []


class Sender:
    """A session, as far as its client publishes."""

    def __init__(
        self, number: int, store: RecordStore, *, is_durable: bool, is_restored: bool
    ) -> None:
        self.number = number
        self.is_durable = is_durable  # Whether it outlives its connection.
        self.is_restored = is_restored  # Whether it is from before the start.
        self.serials: dict[int, int] = {}  # By packet number: how often it was released.
        self._store = store
        self._receiving: dict[int, _Receiving] = {}  # By packet number.
        self._refused: dict[int, None] = {}  # Packet numbers of messages that were refused.

    def identity(self, packet: int) -> bytes:
        """Return what a message that is published exactly once is recognised by."""
        return _IDENTITY.pack(self.number, packet, self.serials.get(packet, 0))

    def receipt(self, packet: int, *, is_repeat: bool) -> Receipt:
        """Note that the client publishes a message exactly once, with that packet number.

        `is_repeat` says whether the client says that it may have sent it before.
        """
        known = self._receiving.get(packet)
        if known is not None:
            return Receipt.KNOWN if known.is_stored else Receipt.PENDING
        self._receiving[packet] = _Receiving()
        was_refused = self._refused.pop(packet, self) is None
        is_doubtful = is_repeat and (self.is_restored or was_refused)
        return Receipt.PERHAPS if is_doubtful else Receipt.NEW

    def when_stored(self, packet: int, waiter: WhenStored) -> None:
        """Call the waiter when a message that is being published is stored, or refused."""
        known = self._receiving.get(packet)
        if known is None or known.is_stored:
            waiter(known is not None)
        else:
            known.waiters.append(waiter)

    def stored(self, packet: int) -> None:
        """Note that the message is published everywhere, and committed."""
        known = self._receiving.get(packet)
        if known is not None:
            known.is_stored = True
            waiters, known.waiters = known.waiters, []
            for waiter in waiters:
                waiter(True)

    def refused(self, packet: int) -> None:
        """Note that the message was not published everywhere: the packet number is free."""
        known = self._receiving.pop(packet, None)
        self._refused[packet] = None
        if known is not None:
            for waiter in known.waiters:
                waiter(False)

    def released(self, packet: int, done: Callable[[StorageError | None], None]) -> bool:
        """Free a packet number, and call `done` when that is committed.

        Returns whether the number was in use, as far as is known.
        """
        is_known = self._receiving.pop(packet, None) is not None
        self._refused.pop(packet, None)
        if not self.is_durable:
            done(None)
            return is_known
        serial = self.serials[packet] = (self.serials.get(packet, 0) + 1) % 2**32
        self._store.put(serial_record(self.number, packet, serial))
        self._store.when_committed(done)
        return is_known or self.is_restored

    def begin_anew(self) -> None:
        """Free all packet numbers: the sender has forgotten which of them it has used."""
        received, self._receiving = self._receiving, {}
        self._refused.clear()
        for packet in {**self.serials, **dict.fromkeys(received)}:
            serial = self.serials[packet] = (self.serials.get(packet, 0) + 1) % 2**32
            if self.is_durable:
                self._store.put(serial_record(self.number, packet, serial))
        for known in received.values():
            for waiter in known.waiters:
                waiter(False)
