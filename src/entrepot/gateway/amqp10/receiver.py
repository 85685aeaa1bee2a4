"""A link on which the client receives: a consumer of a queue, with credit.

The client says how many messages it may get. With `drain` it asks for what there is now, and that
the rest of its credit is used up. A message larger than the client's frames is sent in several
transfers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import TYPE_CHECKING

from entrepot.broker.queue.lane import Waiter
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.selection import Selection
from entrepot.broker.sessions import ConsumerFacts
from entrepot.core.ports import Buffer
from entrepot.gateway.amqp10.format import AMQP_1_0
from entrepot.wire.amqp10 import types
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope
from entrepot.wire.amqp10.frames import HEAD_BYTES, frame_head
from entrepot.wire.amqp10.performatives import Flow

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.session import Session

_NUMBERS = 2**32
_UINT = Struct(">I")
_GUID_BYTES = 16
_COPIED_BYTES_MAX = 8_192  # A longer body is a chunk of its own, and is not copied.
_TRUE, _FALSE = b"\x41", b"\x42"
_TRANSFER = b"\0\x53\x14\xc0"  # A list with the descriptor of a transfer.


class ReceiverLink:
    """Implements `Consumer` for its queue, and `Holder` for what is not settled."""

    is_exclusive = False
    priority = 0

    def __init__(
        self,
        session: Session,
        handle: int,
        name: str,
        queue: Queue,
        *,
        is_settled: bool,
        selection: Selection | None = None,
        on_closed: Callable[[], Awaitable[None]] | None = None,
        is_service_bus: bool = False,
    ) -> None:
        """`is_settled`: messages are sent as settled. `on_closed` deletes what the link made.

        Without a `selection` the client gets all messages. A client of Azure Service Bus is told
        more about them, and takes the tag of a delivery for a GUID.
        """
        self.session = session
        self.handle = handle
        self.tag = name
        self.queue = queue
        self.auto_ack = is_settled
        self.is_active = not queue.settings.single_active
        self._connection = session.connection
        self._frame_bytes_max = session.connection.terms.frame_bytes_max
        self._on_closed = on_closed
        self._selection = selection
        if selection is not None:
            selection.on_end = self._all_looked_at
        self._handle_bytes = types.uint(handle)
        prefix = b""
        if is_service_bus:
            prefix = session.connection.context.entropy.token(_GUID_BYTES - _UINT.size)
        self._tag_lead = bytes((0xA0, len(prefix) + _UINT.size)) + prefix
        self._is_service_bus = is_service_bus
        self._credit = 0
        self._count = 0  # Of messages that were delivered, or drained.
        self._is_started = False
        self._drains = False  # When its selection has looked at all messages.

    # --- called by the queue

    def room(self) -> int:
        if not self._is_started or self._credit <= 0:
            return 0
        return max(0, min(self._credit, self._connection.room(), self.session.room()))

    def deliver(self, lane: int, taken: Taken) -> None:
        """Deliver messages. An error closes this connection only: the queue goes on."""
        self._connection.guard(self._deliver, lane, taken)

    def _deliver(self, lane: int, taken: Taken) -> None:
        count = len(taken.offsets)
        self._credit -= count
        self._count += count
        first = self.session.next_deliveries(count)
        if not self.auto_ack:  # Before sending: if that fails, they are returned.
            self.session.unsettled.add(first, self, lane, taken.offsets)
        self.session.send_transfers(self._encode(first, taken), count)

    def _encode(self, first: int, taken: Taken) -> list[list[Buffer]]:
        """Return the transfers of messages, each as chunks of bytes."""
        attempts = taken.attempts
        frames: list[list[Buffer]] = []
        for place, (envelope, body) in enumerate(taken.run.messages):
            tried = 0 if attempts is None else attempts[place]
            told = None
            if self._is_service_bus:
                told = _service_bus_told(taken.offsets[place], taken.run.time_ms)
            lead, tail = AMQP_1_0.sections(envelope, body, tried, told)
            frames += self._transfers(first + place, lead, body, tail)
        return frames

    def _transfers(self, number: int, lead: bytes, body: Buffer, tail: bytes) -> list[list[Buffer]]:
        channel = self.session.channel
        head = self._transfer(number, more=False)
        size = len(head) + len(lead) + len(body) + len(tail)
        if HEAD_BYTES + size <= self._frame_bytes_max:
            begin = b"".join((frame_head(channel, size), head, lead))
            if len(body) > _COPIED_BYTES_MAX:
                return [[begin, body, tail]] if tail else [[begin, body]]
            return [[b"".join((begin, body, tail))]]
        room = self._frame_bytes_max - HEAD_BYTES - len(head) - 1
        data = memoryview(b"".join((lead, body, tail)))
        found: list[list[Buffer]] = []
        for at in range(0, len(data), room):
            part = data[at : at + room]
            head = self._transfer(number, more=at + room < len(data))
            found.append([frame_head(channel, len(head) + len(part)) + head, part])
        return found

    def _transfer(self, number: int, *, more: bool) -> bytes:
        """Return the performative: handle, id, tag, format, settled, more."""
        told = _UINT.pack(number % _NUMBERS)
        fields = b"".join(
            (
                self._handle_bytes,
                b"\x70",
                told,
                self._tag_lead,
                told,
                b"\x43",
                _TRUE if self.auto_ack else _FALSE,
                _TRUE if more else _FALSE,
            )
        )
        return _TRANSFER + bytes((len(fields) + 1, 6)) + fields

    def cancelled(self) -> None:
        error = Amqp10Error(Condition.RESOURCE_DELETED, "the queue is gone", Scope.LINK)
        self._connection.guard(self.session.fail, self.handle, error)

    def activated(self, is_active: bool) -> None:
        self.is_active = is_active

    # --- called by the session

    def start(self) -> None:
        """Begin to deliver, after the client was told that the link is attached."""
        self._is_started = True
        self.queue.add_consumer(self, self._selection)

    def flow(self, flow: Flow) -> None:
        """Take the client's credit, deliver, and use the rest of it up if the client asks."""
        if flow.link_credit is not None:
            seen = 0 if flow.delivery_count is None else flow.delivery_count
            behind = (self._count - seen) % _NUMBERS
            self._credit = max(0, flow.link_credit - behind) if behind < _NUMBERS // 2 else 0
            self._drains = flow.drain and self._selection is not None
            self.queue.dispatch()
        if flow.drain and self._credit:
            if not self._drains:
                self._drain()
        elif flow.echo or flow.drain:
            self._tell(drain=flow.drain)

    def _drain(self) -> None:
        """Use up the credit that is left."""
        self._count += self._credit
        self._credit = 0
        self._tell(drain=True)

    def _all_looked_at(self) -> None:
        """Drain, if the client asked for it: nothing more of what there is was selected."""
        if self._drains:
            self._drains = False
            self._connection.guard(self._drain)

    def _tell(self, *, drain: bool) -> None:
        self.session.send_flow(
            self.handle, self._count, self._credit, self.queue.ready_count, drain=drain
        )

    def wake(self) -> None:
        if self._credit:
            self.queue.dispatch()

    def stop(self) -> None:
        if self._is_started:
            self._is_started = False
            self.queue.remove_consumer(self)

    def release(self) -> None:
        """Return what is not settled. What an open transaction settles stays with that."""
        for run in self.session.unsettled.take_of(self):
            self.requeue(run.lane, run.offsets)

    async def detached(self, *, is_closed: bool) -> None:
        """Delete what was made for the link, if the client does not want it any more."""
        if is_closed and self._on_closed is not None:
            await self._on_closed()

    # --- as a holder

    def settle(self, lane: int, offsets: range) -> None:
        self._freed()
        self.queue.settle(self, lane, offsets)

    def reject(self, lane: int, offsets: range) -> None:
        self._freed()
        self.queue.reject(self, lane, offsets)

    def requeue(self, lane: int, offsets: range, *, is_attempt: bool = True) -> None:
        self._freed()
        self.queue.requeue(self, lane, offsets, is_attempt=is_attempt)

    def _freed(self) -> None:
        self._connection.has_room(self.queue)

    def when_settled(self, waiter: Waiter) -> None:
        self.queue.when_settlements_committed(waiter)

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(self.tag, self.queue.name, self.auto_ack, is_active=self.is_active)


def _service_bus_told(offset: int, time_ms: int) -> dict[types.Value, types.Value]:
    """Return the annotations of the message at an offset of its queue."""
    return {
        types.Symbol("x-opt-sequence-number"): offset + 1,
        types.Symbol("x-opt-enqueued-time"): types.Timestamp(time_ms),
    }
