"""A session: links, flow control over all of them, and deliveries that are not settled.

Both sides count transfers. The client says how many more it takes (its window) and may send as
many as ours is; a transfer beyond it waits here, and a client that exceeds ours is ended. Each
link has credit besides, in messages.

Deliveries to the client have consecutive numbers, of which 32 bits are told. Those that it has
not settled are kept as runs (`Unacked`), whatever link they are of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from entrepot.broker.sessions import ChannelFacts
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.ports import Buffer
from entrepot.gateway.amqp10 import attaching
from entrepot.gateway.amqp10.errors import explain
from entrepot.gateway.amqp10.outcome import (
    ACCEPTED,
    FAILED,
    REJECTED,
    RELEASED,
    Outcome,
    conclude,
)
from entrepot.gateway.amqp10.receiver import ReceiverLink
from entrepot.gateway.amqp10.sender import SenderLink
from entrepot.gateway.unacked import Held, Unacked
from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope
from entrepot.wire.amqp10.frames import frame
from entrepot.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.connection import Connection

_NUMBERS = 2**32  # Numbers of transfers and deliveries begin anew after so many.


def after(number: int, base: int) -> int:
    """Return how far a number of 32 bits is after another one; negative if it is before it."""
    return (number - base + _NUMBERS // 2) % _NUMBERS - _NUMBERS // 2


class Session:
    def __init__(self, connection: Connection, channel: int, begin: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self._next_incoming = begin.next_outgoing_id  # The number of the client's next transfer.
        self._window = amqp_limits.INCOMING_WINDOW  # How many more it may send.
        self._next_outgoing = 0  # Of our next transfer, in 32 bits.
        self._remote_window = begin.incoming_window  # How many more of ours the client takes.
        self.links: dict[int, attaching.AnyLink] = {}  # By the client's handle.
        self._detaching: dict[int, None] = {}  # Handles of links that we ended, until Detach.
        self.unsettled = Unacked()  # Deliveries to the client, by their full number.
        self._next_delivery = 0  # The number of the next one, in full.
        self._waiting: deque[Buffer] = deque()  # Frames of transfers beyond the client's window.
        self._answers: list[tuple[int, int, Any]] = []  # First, last, state: to be sent.
        self._is_open = True

    def answer(self) -> Begin:
        return Begin(
            remote_channel=self.channel,
            next_outgoing_id=0,
            incoming_window=self._window,
            outgoing_window=amqp_limits.OUTGOING_WINDOW,
            handle_max=amqp_limits.LINKS_MAX - 1,
        )

    # --- serving frames

    def serve(self, performative: Any) -> Awaitable[None] | None:
        """Serve a frame. Raises Amqp10Error that ends the session, or the connection."""
        match performative:
            case Attach():
                return self._attach(performative)
            case Flow():
                self._flow(performative)
            case Disposition():
                self._dispose(performative)
            case Detach():
                return self._detach(performative)
            case _:
                raise Amqp10Error(Condition.NOT_ALLOWED, "a performative that has no place here")
        return None

    def transfer(self, transfers: Sequence[tuple[Transfer, bytes]]) -> Awaitable[None] | None:
        """Serve transfers of one link."""
        self._next_incoming = (self._next_incoming + len(transfers)) % _NUMBERS
        self._window -= len(transfers)
        if self._window < 0:
            text = "more transfers than the window allows"
            raise Amqp10Error(Condition.WINDOW_VIOLATION, text, Scope.SESSION)
        handle = transfers[0][0].handle
        link = self.links.get(handle)
        work = None
        if isinstance(link, SenderLink):
            try:
                work = link.transfer(transfers)
            except (PeerError, StorageError) as error:
                self.fail(link.handle, explain(error, Scope.LINK))
            else:
                if work is not None:
                    work = self._guarded(handle, work)
        elif handle not in self._detaching:
            text = f"a transfer on handle {handle}, which is not attached as a sender"
            raise Amqp10Error(Condition.UNATTACHED_HANDLE, text, Scope.SESSION)
        if self._window <= amqp_limits.INCOMING_WINDOW // 2:
            self._window = amqp_limits.INCOMING_WINDOW
            self.send_flow()
        return work

    # --- links

    async def _attach(self, wanted: Attach) -> None:
        handle = wanted.handle
        if handle in self.links or handle in self._detaching:
            text = f"handle {handle} is in use"
            raise Amqp10Error(Condition.HANDLE_IN_USE, text, Scope.SESSION)
        if handle >= amqp_limits.LINKS_MAX or self.connection.link_count >= amqp_limits.LINKS_MAX:
            text = f"more than {amqp_limits.LINKS_MAX} links, or a handle beyond that"
            raise Amqp10Error(Condition.LIMIT_EXCEEDED, text, Scope.SESSION)
        try:
            link, answer = await attaching.attach(self, wanted)
        except (PeerError, StorageError) as error:
            self._refuse(wanted, explain(error, Scope.LINK))
            return
        if not self._is_open:
            link.stop()
            return
        self.links[handle] = link
        self.send(answer)
        link.start()

    def _refuse(self, wanted: Attach, error: Amqp10Error) -> None:
        """Answer an attach without a terminus, and detach: so a link is refused."""
        if error.scope is not Scope.LINK:
            raise error
        answer = Attach(
            wanted.name,
            wanted.handle,
            not wanted.is_receiver,
            initial_delivery_count=0 if wanted.is_receiver else None,
        )
        self.send(answer)
        self._detaching[wanted.handle] = None
        self.send(Detach(wanted.handle, True, Error(error.condition.value, error.text)))

    async def _guarded(self, handle: int, work: Awaitable[None]) -> None:
        try:
            await work
        except (PeerError, StorageError) as error:
            self.fail(handle, explain(error, Scope.LINK))

    def fail(self, handle: int, error: Amqp10Error) -> None:
        """End a link, or more, because of an error."""
        if error.scope is not Scope.LINK:
            raise error
        link = self.links.pop(handle, None)
        if link is not None:
            link.stop()
            link.release()
            self._detaching[handle] = None
            self.send(Detach(handle, True, Error(error.condition.value, error.text)))

    async def _detach(self, wanted: Detach) -> None:
        link = self.links.pop(wanted.handle, None)
        if self._detaching.pop(wanted.handle, self) is None:
            return
        if link is None:
            text = f"handle {wanted.handle} is not attached"
            raise Amqp10Error(Condition.UNATTACHED_HANDLE, text, Scope.SESSION)
        link.stop()
        link.release()
        await link.detached(is_closed=wanted.closed)
        self.send(Detach(wanted.handle, wanted.closed))

    def receivers(self) -> Iterator[ReceiverLink]:
        """Return the links that deliver to the client."""
        for link in [*self.links.values()]:
            if isinstance(link, ReceiverLink):
                yield link

    def wake_links(self) -> None:
        for link in self.receivers():
            link.wake()

    # --- flow

    def _flow(self, flow: Flow) -> None:
        begin = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        sent = after(self._next_outgoing, begin)
        if sent < 0:
            text = "a next-incoming-id that was not sent yet"
            raise Amqp10Error(Condition.INVALID_FIELD, text, Scope.SESSION)
        self._remote_window = max(flow.incoming_window - sent, 0)
        self._send_waiting()
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
            self.wake_links()
            return
        link = self.links.get(flow.handle)
        if link is not None:
            link.flow(flow)
        elif flow.handle not in self._detaching:
            text = f"a flow for handle {flow.handle}, which is not attached"
            raise Amqp10Error(Condition.UNATTACHED_HANDLE, text, Scope.SESSION)

    def send_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        credit: int | None = None,
        available: int | None = None,
        *,
        drain: bool = False,
    ) -> None:
        """Tell the client what it may send; with a handle, the state of a link as well."""
        flow = Flow(
            self._next_incoming,
            self._window,
            self._next_outgoing,
            amqp_limits.OUTGOING_WINDOW,
            handle,
            None if delivery_count is None else delivery_count % _NUMBERS,
            credit,
            available,
            drain,
        )
        self.send(flow)

    def send(self, performative: Any) -> None:
        self.connection.send(self.channel, performative)

    # --- delivering

    def room(self) -> int:
        """Return how many messages may be delivered within the client's window."""
        if self._waiting:
            return 0
        return min(self._remote_window, amqp_limits.UNSETTLED_MAX - self.unsettled.count)

    def next_deliveries(self, count: int) -> int:
        """Return the full number of the first of so many deliveries."""
        first = self._next_delivery
        self._next_delivery += count
        return first

    def send_transfers(self, frames: list[list[Buffer]], count: int) -> None:
        """Send the frames of so many messages; those beyond the client's window wait."""
        chunks: list[Buffer] = []
        for each in frames:
            if self._remote_window > 0:
                self._remote_window -= 1
                self._next_outgoing = (self._next_outgoing + 1) % _NUMBERS
                chunks += each
            else:
                self._waiting.append(each[0] if len(each) == 1 else b"".join(each))
        self.connection.delivered(chunks, count)

    def _send_waiting(self) -> None:
        chunks: list[Buffer] = []
        while self._waiting and self._remote_window > 0:
            self._remote_window -= 1
            self._next_outgoing = (self._next_outgoing + 1) % _NUMBERS
            chunks.append(self._waiting.popleft())
        if chunks:
            self.connection.outbox.send(chunks)

    # --- dispositions of the client

    def _dispose(self, wanted: Disposition) -> None:
        if not wanted.is_receiver:
            return  # About what it sent: we settle that ourselves, with our first answer.
        first = self._full(wanted.first)
        last = first if wanted.last is None else self._full(wanted.last)
        if last < first:
            raise Amqp10Error(Condition.INVALID_FIELD, "last is before first", Scope.SESSION)
        state, transaction = wanted.state, None
        if isinstance(state, TransactionalState):
            transaction = self.connection.transactions.find(state.txn_id)
            state = state.outcome
        outcome = _outcome(state)
        if outcome is None:
            if not wanted.settled:
                return  # Not an outcome: the client only says how far it is.
            outcome = RELEASED
        held = self._take(first, last + 1)
        if transaction is not None:
            transaction.hold_outcome(held, outcome)
            return
        conclude(held, outcome)
        if not wanted.settled:
            told = Rejected() if isinstance(state, Rejected) else state  # The error is its own.
            for run in held:
                last_one = (run.tag_end - 1) % _NUMBERS
                self.send(Disposition(False, run.tag_first % _NUMBERS, last_one, True, told))

    def _full(self, number: int) -> int:
        """Return the full number of a delivery."""
        return self._next_delivery + after(number, self._next_delivery % _NUMBERS)

    def _take(self, first: int, end: int) -> list[Held]:
        """Take the deliveries in a range that are not settled; others are passed over."""
        spans = [
            (max(first, run.tag_first), min(end, run.tag_end))
            for run in self.unsettled
            if run.tag_first < end and run.tag_end > first
        ]
        taken: list[Held] = []
        for start, stop in spans:
            taken += self.unsettled.take(start, stop)[0]
        return taken

    # --- our dispositions

    def settle(self, number: int, state: Any) -> None:
        """Settle a delivery of the client, with others at the end of the turn."""
        if not self._is_open:
            return
        if self._answers:
            first, last, before = self._answers[-1]
            # Two empty tuples are equal, whatever they are.
            is_same = type(before) is type(state) and before == state
            if is_same and (last + 1) % _NUMBERS == number:
                self._answers[-1] = first, number, state
                return
        self._answers.append((number, number, state))
        self.connection.has_answers(self)

    def send_answers(self) -> None:
        answers, self._answers = self._answers, []
        frames = [
            frame(self.channel, Disposition(True, first, last, True, state))
            for first, last, state in answers
        ]
        self.connection.outbox.send(frames)

    # --- closing

    def stop(self) -> None:
        """Deliver nothing more."""
        self._is_open = False
        for link in self.links.values():
            link.stop()

    def facts(self) -> ChannelFacts:
        consumers = tuple(link.facts() for link in self.receivers())
        return ChannelFacts(self.channel, consumers, self.unsettled.count)


def _outcome(state: Any) -> Outcome | None:
    """Return what becomes of a message in this state; None for a state that is no outcome."""
    match state:
        case Accepted():
            return ACCEPTED
        case Rejected() | Modified(undeliverable_here=True):
            return REJECTED
        case Released():
            return RELEASED
        case Modified():
            return FAILED if state.delivery_failed else RELEASED
    return None
