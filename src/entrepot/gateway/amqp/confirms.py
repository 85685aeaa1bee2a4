"""Publisher confirms of one channel: which messages arrived, told in as few words as possible.

Messages are numbered as they come. What was published in a run arrives as one, so it is
remembered as one. At the end of a turn everything is told that is known by then: up to the
first run that is still on its way with one acknowledgement for all; what comes after that
one by one, for an acknowledgement of many speaks of all that came before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from struct import Struct

from entrepot.broker.queue.message import Failure, Refused
from entrepot.core.ports import Buffer
from entrepot.wire.amqp.frames import END, method_frame
from entrepot.wire.amqp.methods.basic import Ack, Nack
from entrepot.wire.amqp.scan import METHOD

_ACK = Struct(">BHIHHQB")
_ACK_BYTES = 13


class Confirm:
    """Messages of one run, on their way. To be called when they arrive, or will not."""

    __slots__ = ("_confirms", "first", "has_arrived", "last", "lost")

    def __init__(self, confirms: Confirms, first: int, last: int) -> None:
        self._confirms = confirms
        self.first = first
        self.last = last
        self.has_arrived = False
        self.lost: Collection[int] = ()  # Numbers of those that some queue has not got.

    def __call__(self, failure: Failure | None) -> None:
        self.has_arrived = True
        if failure is not None:
            self.lost = range(self.first, self.last + 1)
            if isinstance(failure, Refused) and failure.places is not None:
                self.lost = {self.first + place: None for place in failure.places}
        self._confirms.arrived(self)


class Confirms:
    __slots__ = ("_arrived", "_channel", "_number", "_telling", "_waiting", "is_over")

    def __init__(self, channel: int, telling: dict[Confirms, None]) -> None:
        """`telling` are those of a connection that have something to tell."""
        self._channel = channel
        self._telling = telling
        self._number = 0  # Of the last message.
        # Nothing was said of these yet. By their first numbers, in order.
        self._waiting: OrderedDict[int, Confirm] = OrderedDict()
        self._arrived: list[Confirm] = []  # Those of which there is something to say.
        self.is_over = False  # The channel is closed.

    @property
    def waiting(self) -> int:
        """Messages of which nothing was said yet."""
        return sum(each.last - each.first + 1 for each in self._waiting.values())

    def depart(self, count: int) -> Confirm:
        first = self._number + 1
        self._number += count
        confirm = Confirm(self, first, self._number)
        self._waiting[first] = confirm
        return confirm

    def arrived(self, confirm: Confirm) -> None:
        if not self.is_over:
            self._arrived.append(confirm)
            self._telling[self] = None

    def tell(self) -> list[Buffer]:
        """What is known and was not told."""
        said = self._tell_oldest()
        for confirm in self._arrived:
            if confirm.first in self._waiting:
                said.append(self._tell_each(confirm))
        self._arrived.clear()
        return said

    def _tell_oldest(self) -> list[Buffer]:
        """Up to the first that is on its way, or lost."""
        last, count = 0, 0
        while self._waiting:
            confirm = next(iter(self._waiting.values()))
            if not confirm.has_arrived or confirm.lost:
                break
            del self._waiting[confirm.first]
            count += confirm.last - confirm.first + 1
            last = confirm.last
        return [self._ack(last, is_multiple=count > 1)] if last else []

    def _tell_each(self, confirm: Confirm) -> bytes:
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
        return _ACK.pack(METHOD, self._channel, _ACK_BYTES, *Ack.ID, number, is_multiple) + END
