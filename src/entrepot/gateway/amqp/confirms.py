"""Publisher confirms of one channel, in as few frames as possible.

Messages are numbered as they are published. The messages of a run are committed together, so
they share one `Confirm`. All messages that are committed at the end of a turn are confirmed:
those before the oldest uncommitted run with one `basic.ack` that has `multiple` set, later ones
one by one, because `multiple` acknowledges all earlier messages, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from struct import Struct
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Failure, Refused
from entrepot.core.ports import Buffer
from entrepot.gateway.amqp.in_flight import InFlight
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.methods.basic import Ack, Nack
from entrepot.wire.amqp.scan import FRAME_END, METHOD

if TYPE_CHECKING:
    from entrepot.gateway.amqp.connection import Connection

_ACK = Struct(">BHIHHQBB")
_ACK_LEAD = (13, *Ack.ID)  # The size of the payload, and what it begins with.


class Confirm(InFlight):
    """A run of messages that is to be confirmed when they are committed or have failed."""

    __slots__ = ("_confirms", "first", "is_known", "last", "lost")

    def __init__(
        self, connection: Connection, size: int | None, confirms: Confirms, first: int, last: int
    ) -> None:
        super().__init__(connection, size, None)
        self._confirms = confirms
        self.first = first
        self.last = last
        self.is_known = False  # Whether they are committed or have failed.
        self.lost: Collection[int] = ()  # Numbers of messages that some queue did not store.

    def _tell(self, failure: Failure | None) -> None:
        """Confirm the run at the end of the turn, unless the channel is closed."""
        self.is_known = True
        if failure is not None:
            self.lost = range(self.first, self.last + 1)
            if isinstance(failure, Refused) and failure.places is not None:
                self.lost = {self.first + place: None for place in failure.places}
        confirms = self._confirms
        if not confirms.is_over:
            confirms.known.append(self)
            self._connection.confirming[confirms] = None


class Confirms:
    __slots__ = ("_channel", "_number", "_waiting", "is_over", "known")

    def __init__(self, channel: int) -> None:
        """Begin with message 1."""
        self._channel = channel
        self._number = 0  # Of the last message published.
        # Runs that are not confirmed, by the numbers of their first messages, in order.
        self._waiting: OrderedDict[int, Confirm] = OrderedDict()
        self.known: list[Confirm] = []  # Those that are committed or have failed.
        self.is_over = False  # The channel is closed.

    @property
    def waiting(self) -> int:
        """Return how many messages are not confirmed."""
        return sum(each.last - each.first + 1 for each in self._waiting.values())

    def expect(self, connection: Connection, size: int | None, count: int) -> Confirm:
        """Number the next messages; return their publication, of so many bytes."""
        first = self._number + 1
        self._number += count
        confirm = Confirm(connection, size, self, first, self._number)
        self._waiting[first] = confirm
        return confirm

    def take_frames(self) -> list[Buffer]:
        """Return acks and nacks for all runs that are committed or have failed."""
        known, self.known = self.known, []
        if len(known) == 1 == len(self._waiting) and not known[0].lost:  # One run: the usual case.
            last = known[0].last
            is_multiple = last > known[0].first
            self._waiting.clear()
            return [_ACK.pack(METHOD, self._channel, *_ACK_LEAD, last, is_multiple, FRAME_END)]
        frames = self._confirm_oldest()
        for confirm in known:
            if confirm.first in self._waiting:
                frames.append(self._confirm_each(confirm))
        return frames

    def _confirm_oldest(self) -> list[Buffer]:
        """Return one ack for all runs before the first that is not committed, or lost messages."""
        last, count = 0, 0
        while self._waiting:
            confirm = next(iter(self._waiting.values()))
            if not confirm.is_known or confirm.lost:
                break
            del self._waiting[confirm.first]
            count += confirm.last - confirm.first + 1
            last = confirm.last
        return [self._ack(last, is_multiple=count > 1)] if last else []

    def _confirm_each(self, confirm: Confirm) -> bytes:
        """Return an ack or a nack for each message of the run."""
        del self._waiting[confirm.first]
        frames = []
        for number in range(confirm.first, confirm.last + 1):
            if number in confirm.lost:
                nack = Nack(number, multiple=False, requeue=False)
                frames.append(method_frame(self._channel, nack))
            else:
                frames.append(self._ack(number, is_multiple=False))
        return b"".join(frames)

    def _ack(self, number: int, *, is_multiple: bool) -> bytes:
        return _ACK.pack(METHOD, self._channel, *_ACK_LEAD, number, is_multiple, FRAME_END)
