"""A queue: one state machine, called by publishers, consumers, timers and commits.

What is published in one turn of the loop is appended together. Once it is committed it is ready,
and is delivered to consumers that have room; the rest waits, and may meanwhile expire or exceed
the queue's limit. All of this is done by `dispatch`, which is called after every event: a commit,
a new consumer, room at a consumer, returned messages, the end of a delay or TTL. It first delivers
what can be delivered and then looks at the rest, so that a message for which a consumer has room
never expires and never exceeds the limit.

A message that becomes a dead letter stays leased by the queue itself (it is dying) until the dead
letter is committed. So it may come twice after a crash, but it is never lost. A dead letter that
another queue refuses, or that no queue gets, is dropped, unless this queue has
`dead_letter_at_least_once`; then, and after a disk error, it is published again later.

Every message that is settled or returned passes through here, so that the ledger, the lane, the
settlement watch and the account (see `conservation`) agree about it.

A client may settle or return a hundred thousand messages with one request. Others must not wait
for that, so it is done in several turns, and later requests are done after it. Until then the
messages stay leased to their owner, and the queue delivers nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from typing import NamedTuple, Protocol

from entrepot.broker.ledger import NEVER, Lease, rows
from entrepot.broker.queue.conservation import (
    CANCELLED,
    CONSUMED,
    DEAD_LETTERED,
    LOST,
    PURGED,
    REFUSED,
    UNROUTABLE,
    UNSELECTED,
    Account,
    Conservation,
    Turnover,
)
from entrepot.broker.queue.consumer import Consumer, Consumers, Ring, RoundRobin, Seat
from entrepot.broker.queue.dead_letter import (
    DELIVERY_LIMIT,
    EXPIRED,
    MAXLEN,
    REJECTED,
    Cause,
    DeadLetters,
    dead_letters,
)
from entrepot.broker.queue.front import Front, Popped, divide, gaps
from entrepot.broker.queue.identities import Identities
from entrepot.broker.queue.lane import Lane, Piece, Waiter
from entrepot.broker.queue.length_limit import LengthLimit
from entrepot.broker.queue.message import (
    Failure,
    Pending,
    Publication,
    Refused,
    Run,
    Taken,
    is_large,
)
from entrepot.broker.queue.receipts import Receipts
from entrepot.broker.queue.selection import Progress, Selection
from entrepot.broker.queue.settings import QueueSettings, QueueSpec, WhenFull
from entrepot.broker.queue.settlement_watch import SettlementWatch
from entrepot.broker.queue.timed_leases import TimedLeases
from entrepot.broker.queue.timer import Timer
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.errors import (
    InvalidQueue,
    NotEnoughReplicasAfterAppend,
    QueueDown,
    QueueInUse,
    StorageError,
)
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.message import Message
from entrepot.core.ports import Clock
from entrepot.core.ranges import Ranges
from entrepot.core.steps import Steps

# Why a queue is stopped if nobody says why.
_MISTAKE = "a mistake of the broker's own; the log has more"


class PublishDeadLetters(Protocol):
    def __call__(
        self, queue: Queue, run: Run, avoided: Sequence[str], publication: Publication | None
    ) -> Sequence[Message]:
        """Publish dead letters of a queue to the exchange in their envelopes, the same for all.

        The avoided queues must not get them, or they would go round for ever. Returns the
        messages that no queue gets, which is no failure.
        """


class Surroundings(NamedTuple):
    """What the queues of a virtual host have in common."""

    clock: Clock
    publish_dead_letters: PublishDeadLetters
    on_unused: Callable[[Queue], None]  # Deletes a queue that is unused: see `touch`.
    turns: Turns
    faults: Faults = Uncaught()


class Deferred(NamedTuple):
    """A message that is not delivered before a certain time."""

    lane: int
    offset: int
    due_ms: int


# Runs that all queues together may read from the disk in one iteration of the loop; those that
# come after that have to wait for turns.
_LOADED_MAX = limits.QUEUE_TURN_BYTES_MAX // limits.QUEUE_READ_RUN_BYTES

# Settles, rejects or returns the messages at these offsets.
Answer = Callable[[Sequence[int]], None]


class Queue:
    def __init__(
        self,
        vhost: str,
        spec: QueueSpec,
        lanes: Sequence[Lane],
        surroundings: Surroundings,
        owner: object | None = None,
    ) -> None:
        settings = spec.settings
        assert len(lanes) == settings.lane_count
        self.vhost = vhost
        self.name = spec.name
        self.spec = spec
        self.owner = owner  # The connection that the queue is exclusive to, if any.
        # Whether publishers are told that it is gone. Not if it is nothing to them.
        self.refuses_when_gone = True
        self.confirms_when_settled = False  # All publishers wait until messages are consumed.
        self.lanes = lanes
        self._clock = surroundings.clock
        self._publish_dead_letters = surroundings.publish_dead_letters
        self._on_unused = surroundings.on_unused
        self._turns = surroundings.turns
        self._faults = surroundings.faults
        self._loop = asyncio.get_running_loop()
        self._stopped: str | None = None  # Why it was stopped, until the next start.
        self._is_gone = False  # Whether it is closed, deleted or stopped.
        self._is_deleted = False
        self._fronts = [Front(lane, settings) for lane in lanes]
        self._by_priority = [*enumerate(self._fronts)][::-1]  # The highest first.
        self._watches = [SettlementWatch(lane) for lane in lanes]
        self._consumers = Consumers(self._text, single_active=settings.single_active)
        # Runs published in this turn, or after a large message that is still being written.
        self._append_buffer: list[Pending] = []
        self._is_append_due = False  # Whether `_append` is called at the end of this turn.
        self._turn_appended = 0  # The last turn in which a run was appended at once.
        self._is_in_memory = all(lane.is_in_memory for lane in lanes)
        self._is_writing_large = False
        self._due_last_ms: int | None = None  # Of all that is deferred. None means: not known yet.
        self._apply_settings(settings)
        self._dying = Lease(self)  # Of messages whose dead letters are not committed yet.
        self._dying_count = 0  # How many messages have that lease.
        self._conservation = Conservation(self._fronts, self)
        # Requests for very many messages that are not done yet, with the offsets that are left.
        self._unfinished: deque[tuple[Answer, Sequence[int]]] = deque()
        self._waiting_for_unfinished: list[Waiter] = []
        self._is_dispatching = False
        self._is_continuing = False  # Whether `dispatch` is called in the next turn,
        self._is_spent = False  # and does nothing before, since enough was read in this one.
        self._timer = Timer(self._clock, self._turns, partial(self.guard, self._on_time))
        self._unused = Timer(self._clock, self._turns, partial(self.guard, self._on_expiry))
        self.timed_leases = TimedLeases(self, self._clock, self._turns)
        self._receipts: Receipts | None = None  # None means: nobody has asked for one yet.
        self._identities: Identities | None = None
        self.touch()
        self._continue()  # Not now: at a start, queues for dead letters may not be restored yet.

    def _apply_settings(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._limit = LengthLimit(settings)
        self._has_dead_letters = settings.dead_letter_exchange is not None

    def change_settings(self, settings: QueueSettings) -> None:
        """Follow other settings from now on. Those of what a queue is made of stay the same."""
        assert settings.lane_count == self.settings.lane_count
        self.spec = replace(self.spec, settings=settings)
        if settings.identity_per_group != self.settings.identity_per_group:
            self._identities = None  # They are compared otherwise, and read from the log again.
        self._apply_settings(settings)
        for front in self._fronts:
            front.change_settings(settings)
        self._continue()

    def become_fair(self) -> None:
        """Let groups of which many messages are in flight wait for the others, from now on.

        Nothing of it is stored: whoever sees that messages of the queue have groups says so.
        """
        for front in self._fronts:
            front.become_fair()

    @property
    def receipts(self) -> Receipts:
        """Return the leases of single messages."""
        if self._receipts is None:
            self._receipts = Receipts(self, self._clock, self._turns)
        return self._receipts

    @property
    def identities(self) -> Identities:
        """Return the ids of a queue that remembers them: through it each is published once."""
        if self._identities is None:
            self._identities = Identities(self, self._clock, self._turns)
        return self._identities

    @property
    def _text(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost}'"

    # --- bugs

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function for the queue. If it fails by a bug, only this queue is stopped."""
        try:
            call(*arguments)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Report a bug and stop the queue."""
        self._faults.caught(f"{self._text} is stopped", error)
        self.stop()

    def stop(self, reason: str = _MISTAKE) -> None:
        """Stop serving the queue, because its state in memory cannot be trusted.

        The next start restores it from what is committed.
        """
        self._stopped = reason
        self.close()
        self._cancel_consumers()

    @property
    def is_stopped(self) -> bool:
        return self._stopped is not None

    def _check_running(self) -> None:
        """Raise QueueDown if the queue was stopped."""
        if self._stopped == _MISTAKE:
            raise QueueDown(f"{self._text} has crashed and failed to restart")
        if self.is_stopped:
            raise QueueDown(f"{self._text} is down: {self._stopped}")

    # --- state

    @property
    def ready_count(self) -> int:
        return sum(front.ready_count for front in self._fronts)

    @property
    def has_ready(self) -> bool:
        """Return quickly whether any messages are ready; deferred ones may be included."""
        if len(self._fronts) == 1:  # Mostly; and it is often asked.
            return self._fronts[0].ready_count_most > 0
        return any(front.ready_count_most for front in self._fronts)

    @property
    def has_waiting(self) -> bool:
        """Return whether messages may be ready or deferred, or are about to be appended."""
        if self._append_buffer or self._is_writing_large:
            return True
        if len(self._fronts) == 1:
            return self._fronts[0].ready_count_most > 0
        return any(front.ready_count_most for front in self._fronts)

    @property
    def unacked_count(self) -> int:
        leased = sum(len(front.ledger.leased) for front in self._fronts)
        return leased - self._dying_count

    @property
    def deferred_count(self) -> int:
        return sum(len(front.ledger.deferred) for front in self._fronts)

    @property
    def bytes_kept(self) -> int:
        """Return the bytes of all messages that are kept, including settled ones."""
        return sum(lane.bytes_kept for lane in self.lanes)

    @property
    def consumer_count(self) -> int:
        return self._consumers.count

    @property
    def consumers(self) -> Iterator[Consumer]:
        return iter(self._consumers)

    @property
    def active_consumer(self) -> Consumer | None:
        """Return the active consumer; None if the queue does not have a single active consumer."""
        return self._consumers.active

    @property
    def fault(self) -> str | None:
        """Return why the queue is down: it was stopped, or its data cannot be read.

        None means: it is not down.
        """
        if self._stopped is not None:
            return self._stopped
        for lane in self.lanes:
            fault = lane.fault
            if fault is not None:
                return fault
        return None

    def check_up(self) -> None:
        """Raise QueueDown if the queue is stopped or cannot be read."""
        self._check_running()
        if self.fault is not None:
            raise QueueDown(f"{self._text} is down: {self.fault}")

    @property
    def is_gone(self) -> bool:
        """Return whether the queue is closed, deleted or stopped. Its counts are then outdated."""
        return self._is_gone

    @property
    def dropped(self) -> Mapping[str, int]:
        """Return how many messages were dropped since the queue was opened, by reason."""
        return self._conservation.dropped

    @property
    def turnover(self) -> Turnover:
        """Return how many messages came and went since the queue was opened."""
        return self._conservation.turnover

    @property
    def lane_count(self) -> int:
        return len(self._fronts)

    def account(self) -> Account:
        """Return how many messages are in which state, and contradictions, if there are any."""
        return self._conservation.account(self._dying_count)

    def peek(self, count: int) -> Iterator[tuple[int, Taken]]:
        """Yield the next messages with their lanes, and leave them ready. Raises StorageError."""
        for number, front in self._by_priority:
            self.check_up()
            for taken in front.peek(count):
                yield number, taken
                count -= len(taken.offsets)

    # --- publishing

    def publish(
        self,
        run: Run,
        publication: Publication | None,
        *,
        until_settled: bool = False,
        due_ms: int | None = None,
        at_once: bool = False,
    ) -> Pending:
        """Append the run at the end of this turn, together with others published until then.

        With `at_once`, the first run of a turn is appended now if the queue is in memory: a message
        that comes alone is confirmed and delivered without another turn of the loop. Only for
        what clients publish, or dead letters could go round in one call.

        The publication is answered when the run is committed, or consumed if `until_settled`.
        With `due_ms` its messages are deferred until then; 0 means: they are not deferred, even
        if the queue delays what is published.
        """
        until_settled = until_settled or self.confirms_when_settled
        if due_ms is None and self.settings.delay_ms:
            due_ms = run.time_ms + self.settings.delay_ms
        if self.settings.has_groups:
            due_ms = self._due_in_order(run, due_ms)
        if publication is not None:
            publication.waiting += 1
        pending = Pending(run, publication, until_settled, due_ms or None)
        self._append_buffer.append(pending)
        if self._is_append_due:
            return pending
        if at_once and self._is_in_memory and not self._is_dispatching:
            turn = self._turns.number()
            if turn != self._turn_appended:
                self._turn_appended = turn
                self._append()
                return pending
        self._is_append_due = True
        self._turns.at_end(self._append)
        return pending

    def _due_in_order(self, run: Run, due_ms: int | None) -> int | None:
        """Return until when to defer a run, so that it does not overtake one that came before."""
        if self._due_last_ms is None:
            times_ms = (time for front in self._fronts for time in front.ledger.deferred.values())
            self._due_last_ms = max(times_ms, default=0)
        if self._due_last_ms <= run.time_ms:
            self._due_last_ms = due_ms or 0
        else:
            due_ms = self._due_last_ms = max(self._due_last_ms, due_ms or 0)
        return due_ms

    def publish_now(
        self, run: Run, publication: Publication | None, *, until_settled: bool = False
    ) -> None:
        """Publish, and do not leave the append for the end of the turn.

        For who publishes to very many queues in turns: the appends are most of the work.
        """
        self.publish(run, publication, until_settled=until_settled)
        self._append()

    def _append(self) -> None:
        """Append the buffered runs. Those after a large message wait until that is written."""
        self._is_append_due = False
        if self._is_writing_large or not self._append_buffer:
            return
        pending, self._append_buffer = self._append_buffer, []
        try:
            if self._is_gone:
                for each in pending:
                    each.arrived(self._gone())
            elif self._limit.refuses or False in [each.is_plain for each in pending]:
                self._append_admitted(pending)
            elif len(self._fronts) == 1:
                self._append_to(0, pending)
            else:
                self._append_all(pending)
        except Exception as error:
            self._append_buffer = []
            for each in pending:
                each.arrived(Refused("internal error"))
            self._failed(error)

    def _gone(self) -> Refused | None:
        """Return the answer to publishers of a queue that is gone."""
        is_failure = self.refuses_when_gone or self.is_stopped
        return Refused("the queue is gone") if is_failure else None

    def _append_admitted(self, pending: list[Pending]) -> None:
        """Append the runs that are not refused, up to a large message, and begin to write that."""
        place = next((at for at, each in enumerate(pending) if is_large(each.run)), len(pending))
        self._append_buffer = pending[place + 1 :]  # Runs published from now on come after these.
        self._append_all(self._admitted(pending[:place]))
        for large in self._admitted(pending[place : place + 1]):
            self._is_writing_large = True
            work = asyncio.ensure_future(self._append_large(large))
            work.add_done_callback(lambda done: done.cancelled() or done.result())
            return
        if self._append_buffer:  # The large message was refused.
            self._append()

    async def _append_large(self, large: Pending) -> None:
        """Write a large message in slices, append it, and then the runs that waited for it."""
        try:
            await self.lanes[self._lane_of(large.run.messages[0])].prepare(large.run)
            if self._is_gone:
                is_refused = large.until_settled or not self._is_deleted
                large.arrived(self._gone() if is_refused else None)
            else:
                self._append_all([large])
        except Exception as error:
            large.arrived(Refused("internal error"))
            self._failed(error)
        self._is_writing_large = False
        self._append()

    def _append_all(self, pending: list[Pending]) -> None:
        """Append these runs to their lanes. A run with several priorities is divided."""
        if len(self._fronts) == 1:
            if pending:
                self._append_to(0, pending)
            return
        lanes: dict[int, list[Pending]] = {}
        for each in pending:
            parts: dict[int, list[Message]] = {}
            for message in each.run.messages:
                parts.setdefault(self._lane_of(message), []).append(message)
            if each.publication is not None:
                for _ in range(len(parts) - 1):
                    each.publication.expect()
            for number, messages in parts.items():
                part = each if len(parts) == 1 else each.part(messages)
                lanes.setdefault(number, []).append(part)
        for number, some in lanes.items():
            self._append_to(number, some)

    def _lane_of(self, message: Message) -> int:
        return min(self.settings.priority_max, message[0].handling.priority)

    def _append_to(self, number: int, pending: list[Pending]) -> None:
        front = self._fronts[number]
        try:
            front.append(pending)
        except StorageError as failure:
            for each in pending:
                each.arrived(failure)
            return
        for each in pending:
            if each.until_settled and each.publication is not None:
                self._watches[number].add(each.offsets, each.publication)
        if self._is_in_memory:
            self._committed(number, pending, None)
        else:
            committed = partial(self._committed, number, pending)
            front.lane.when_committed(front.appended_end, committed)

    def _committed(self, number: int, pending: list[Pending], failure: StorageError | None) -> None:
        """Answer the publications, and deliver what is ready now."""
        try:
            for each in pending:
                if failure is not None:
                    self._watches[number].forget(each.offsets)
                if each.publication is not None and (failure is not None or not each.until_settled):
                    each.publication.arrived(failure)
            if failure is None or isinstance(failure, NotEnoughReplicasAfterAppend):
                self.dispatch()
        except Exception as error:
            self._failed(error)

    # --- refusing

    def _admitted(self, pending: list[Pending]) -> list[Pending]:
        """Refuse messages that exceed a limit. Returns the others."""
        pending = [each for each in pending if self._has_memory(each)]
        if not self._limit.refuses:
            return pending
        waiting = sum(front.waiting_count for front in self._fronts)
        size = self._ready_bytes
        room = self._consumers.room()
        admitted: list[Pending] = []
        for each in pending:
            places = self._limit.refused(each.run.messages, waiting, size, room)
            rest = self._refuse(each, places) if places else each
            waiting += len(rest.run.messages)
            size += sum(len(body) for _, body in rest.run.messages)
            if rest.run.messages:
                admitted.append(rest)
            else:
                rest.arrived()
        return admitted

    def _has_memory(self, pending: Pending) -> bool:
        """Return whether the queue may have more deferred or watched messages; refuse them if not.

        Each of these takes memory.
        """
        deferred = watched = 0
        if pending.due_ms is not None:
            deferred = self.deferred_count
        if pending.until_settled:
            watched = sum(map(len, self._watches))
        if deferred < limits.QUEUE_DEFERRED_MAX and watched < limits.QUEUE_WATCHED_MAX:
            return True
        pending.arrived(Refused("the queue has too many messages that wait"))
        return False

    def _refuse(self, pending: Pending, places: Sequence[int]) -> Pending:
        """Refuse the messages at these places of a run. Returns the others."""
        messages = pending.run.messages
        if self._has_dead_letters and self.settings.when_full is WhenFull.REFUSE_AND_DEAD_LETTER:
            refused = Run(pending.run.time_ms, [messages[place] for place in places])
            for letters in dead_letters(refused, self._cause(MAXLEN), self._faults):
                if letters.may_go:  # No publication: there is nothing to settle when they arrive.
                    self._publish_dead_letters(self, letters.run, letters.avoided, None)
        if pending.publication is not None:
            pending.publication.expect()
            pending.publication.arrived(Refused("the queue is full", places))
        gone = dict.fromkeys(places)
        return pending.part([each for at, each in enumerate(messages) if at not in gone])

    # --- delivering

    def add_consumer(self, consumer: Consumer, selection: Selection | None = None) -> None:
        """Add a consumer, and deliver to it from the next turn on; only some messages if it has a
        selection. Raises QueueInUse, QueueDown."""
        self._check_running()
        if selection is not None and self.settings.has_groups:
            raise QueueInUse(f"{self._text} has ordered groups, which cannot be selected from")
        self._consumers.add(consumer, selection)
        if selection is not None:
            selection.lanes = [Progress(front.ledger.offset_low) for front in self._fronts]
            self._selecting_changed()
        self._unused.stop()
        self._continue()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Deliver nothing more to a consumer. It keeps its leases until `settle` or `release`."""
        if not self._consumers.remove(consumer):
            return
        self._selecting_changed()
        if not self._consumers.count:
            if self.spec.auto_delete:
                self._on_unused(self)
            else:
                self.touch()
        self._continue()

    def _selecting_changed(self) -> None:
        selections = [seat.selection for seat in self._consumers.selecting]
        for number, front in enumerate(self._fronts):
            front.selecting = [each.lanes[number] for each in selections if each is not None]

    def dispatch(self) -> None:
        """Deliver what can be delivered, then drop what has expired or exceeds the limit.

        Does nothing while many messages are being settled or returned: these come first. Comes
        in a turn of its own if other queues have read much from the disk in this iteration.
        """
        if self._turns.spent >= _LOADED_MAX and not self._is_in_memory:
            self._continue()
        else:
            self._dispatch()

    def _dispatch(self) -> None:
        if self._is_dispatching or self._is_spent or self._unfinished or self._is_gone:
            return
        if not self._is_in_memory:  # What is in memory can always be read.
            for lane in self.lanes:
                if lane.fault is not None:
                    return
        left, loaded = limits.QUEUE_TURN_MESSAGES_MAX, self._loaded
        try:
            self._is_dispatching = True
            try:
                if self._consumers.selecting:
                    left -= self._hand_out_selected(left)
                while left > 0 and self._consumers.count:
                    popped = self._hand_out(left)
                    if popped is None:
                        break
                    left -= popped.size
                    if popped.is_cut or self._loaded - loaded >= _LOADED_MAX:
                        left, self._is_spent = 0, True
            finally:
                self._is_dispatching = False
            if left > 0:
                self._process_rest()
            else:
                self._continue()
            if self._loaded != loaded:
                self._turns.spend(self._loaded - loaded)
        except Exception as error:
            self._failed(error)

    @property
    def _loaded(self) -> int:
        """Return how many runs were read from the disk so far."""
        return 0 if self._is_in_memory else sum([lane.loaded for lane in self.lanes])

    def _continue(self) -> None:
        """Dispatch again, in the turn of this queue: very many may have much to do at once."""
        if not self._is_continuing:
            self._is_continuing = True
            self._turns.call_soon(self._continued)

    def _continued(self) -> None:
        self._is_continuing = self._is_spent = False
        self._dispatch()

    def _hand_out(self, count: int) -> Popped | None:
        """Deliver at most `count` messages of the highest priority that has ready ones.

        Returns what was taken out of the lane; some messages may have expired instead.
        """
        for number, front in self._by_priority:
            ready_count = front.ready_count_most
            if not ready_count:
                continue
            only = self._consumers.only
            if only is not None:
                room = only.consumer.room()
                if room <= 0:
                    return None
                popped = self._pop(front, min(count, ready_count, room))
                if popped.size:
                    self._deliver(number, popped, [(only, taken) for taken in popped.good])
                    return popped
                continue
            found = self._consumers.next_ones(min(count, ready_count))
            if found is None:
                return None
            ring, seats = found
            if front.groups is not None and front.groups.is_ordered:
                seats = seats[:1]  # What is in flight of a group is with one consumer.
            room = sum([room for _, room in seats])
            popped = self._pop(front, min(count, ready_count, room))
            if popped.size:
                self._deliver_in_turn(number, popped, ring, seats)
                return popped
        return None

    @property
    def is_behind(self) -> bool:
        """Return whether `take` may find more if it is called again: there are many groups."""
        return any(
            front.groups is not None and front.ready_count_most and front.groups.is_behind
            for front in self._fronts
        )

    def _deliver_in_turn(
        self, number: int, popped: Popped, ring: Ring, seats: Sequence[tuple[Seat, int]]
    ) -> None:
        """Divide messages among consumers, one each in turn, and deliver them."""
        last = seats[0][0]
        if len(seats) == 1:
            deliveries = [(last, taken) for taken in popped.good]
        else:
            turns = RoundRobin(seats)
            deliveries = [
                (seat, whole.part(places))
                for whole in popped.good
                for seat, places in turns.shares(len(whole.offsets))
            ]
            last = turns.last
        self._deliver(number, popped, deliveries)
        if deliveries and len(ring.seats) > 1:
            ring.served(last)

    def _deliver(self, number: int, popped: Popped, deliveries: list[tuple[Seat, Taken]]) -> None:
        """Lease or settle messages, and then deliver them."""
        ledger = self._fronts[number].ledger
        consumed: list[range] = []
        for seat, taken in deliveries:
            if seat.auto_ack:
                consumed.append(taken.offsets)
            else:
                ledger.lease(taken.offsets, seat.lease)
        if popped.expired or popped.lost:
            self._finish(number, popped, consumed)
        elif consumed:
            self._settle_popped(number, consumed, CONSUMED)
        for seat, taken in deliveries:
            seat.consumer.deliver(number, taken)

    def _hand_out_selected(self, count: int) -> int:
        """Deliver to consumers that select what they want of what they have not looked at.

        Returns how many messages were looked at, counted as deliveries that take as long.
        """
        spent, left_bytes = 0, limits.QUEUE_TURN_BYTES_MAX
        for seat in [*self._consumers.selecting]:
            selection = seat.selection
            assert selection is not None
            for number, front in self._by_priority:
                progress = selection.lanes[number]
                while spent < count and left_bytes > 0 and seat.consumer.room() > 0:
                    looked = 1 + (count - spent) // selection.cost
                    ready = progress.take(front.ledger, front.lane.offset_end, looked)
                    if not ready:
                        break
                    spent += selection.cost * sum(map(len, ready))
                    try:
                        for offsets in ready:
                            left_bytes -= self._select(seat, number, offsets, left_bytes)
                    except StorageError:
                        for offsets in ready:
                            progress.put_back(offsets)
                        self._unreadable()
                        return spent
            if left_bytes <= 0:
                self._is_spent = True
                return max(spent, count)
            if spent >= count:
                return spent
            if selection.on_end is not None and seat.consumer.room() > 0:
                selection.on_end()
        return spent

    def _select(self, seat: Seat, number: int, offsets: range, bytes_max: int) -> int:
        """Deliver those of the messages that a consumer wants, as far as it has room.

        Returns how many bytes were read, or what the reads have cost. Raises StorageError.
        """
        selection, front, size = seat.selection, self._fronts[number], 0
        assert selection is not None
        progress = selection.lanes[number]
        loaded = front.lane.loaded
        pieces = front.lane.read(offsets, bytes_max) if bytes_max > 0 else []
        size += front.cost_since(loaded)
        end = pieces[-1][0].stop if pieces else offsets.start if bytes_max <= 0 else offsets.stop
        progress.put_back(range(end, offsets.stop))
        for gap in gaps(range(offsets.start, end), pieces):
            self._drop_unselected(number, gap)
        for piece in pieces:
            size += sum([len(body) for _, body in piece[1].messages])
            for is_wanted, (part, run) in divide(piece, selection.wants):
                if is_wanted:
                    room = max(0, seat.consumer.room())
                    progress.put_back(part[room:])
                    if room and selection.browses:
                        seat.consumer.deliver(number, front.copied(part[:room], run))
                    elif room:
                        self._deliver_at(number, part[:room], seat)
                elif selection.drops_others:
                    self._drop_unselected(number, part)
        return size

    def _deliver_at(self, number: int, offsets: range, seat: Seat) -> None:
        front, selection = self._fronts[number], seat.selection
        popped = front.pop_at(offsets, self._clock.now_ms() if front.may_expire else 0)
        if popped.is_cut and selection is not None:
            selection.lanes[number].put_back(range(popped.offset_end, offsets.stop))
        self._deliver(number, popped, [(seat, taken) for taken in popped.good])
        self._consumers.served_selecting(seat)

    def _drop_unselected(self, number: int, offsets: range) -> None:
        """Drop messages that their only consumer does not want, or that are deleted."""
        left: range | None = offsets
        while left:
            popped = self._fronts[number].pop_at(left, now_ms=0)
            self._finish(number, popped)
            self._settle_popped(number, [taken.offsets for taken in popped.good], UNSELECTED)
            left = range(popped.offset_end, left.stop) if popped.is_cut else None

    def get(self, owner: object, *, auto_ack: bool) -> tuple[int, Taken] | None:
        """Take the next message and return it with its lane; None if none is ready.

        Raises QueueDown.
        """
        self.check_up()
        self.touch()
        found = self.take(None if auto_ack else Lease(owner), 1)
        return found[0] if found else None

    def take(self, lease: Lease | None, count: int) -> list[tuple[int, Taken]]:
        """Take the next messages, at most `count` and at most as many as in one turn, which are
        fewer if they are large.

        Returns runs with their lanes. Without a lease they are settled. Raises QueueDown.
        """
        for number, front in self._by_priority:
            while front.ready_count_most:
                popped = self._pop(front, min(count, limits.QUEUE_TURN_MESSAGES_MAX))
                found = self._leased(number, popped, lease)
                if found:
                    self._look_ahead()
                    return found
                if not popped.size:
                    break
        self.check_up()
        return []

    def take_at(
        self, lease: Lease, lane: int, offsets: range
    ) -> tuple[list[tuple[int, Taken]], range]:
        """Take the messages at these offsets that are ready, as many as in one turn.

        Returns runs with their lanes, and the offsets that are left for another turn.
        Raises StorageError.
        """
        turn = offsets[: limits.QUEUE_TURN_MESSAGES_MAX]
        popped = self._fronts[lane].pop_at(turn, now_ms=0)
        if popped.is_cut:
            turn = range(turn.start, popped.offset_end)
        return self._leased(lane, popped, lease), offsets[len(turn) :]

    def _leased(self, number: int, popped: Popped, lease: Lease | None) -> list[tuple[int, Taken]]:
        """Lease the good messages, or settle them if there is no lease, and return them."""
        consumed: list[range] = []
        for taken in popped.good:
            if lease is None:
                consumed.append(taken.offsets)
            else:
                self._fronts[number].ledger.lease(taken.offsets, lease)
        self._finish(number, popped, consumed)
        return [(number, taken) for taken in popped.good]

    def _pop(self, front: Front, count: int) -> Popped:
        """Take out the next messages; none if the log cannot be read, which reports that error
        itself."""
        try:
            if front.groups is not None:
                front.end_times(self._clock.now_ms())  # Before any that came later.
            popped = front.pop(count, self._clock.now_ms() if front.may_expire else 0)
        except StorageError:
            self._unreadable()
            return Popped()
        if front.groups is not None and not popped.size and front.groups.is_behind:
            self._continue()  # There may be groups, further on, that are not blocked.
        return popped

    def _unreadable(self) -> None:
        """Cancel the consumers if the queue is down until the next start."""
        if self.fault is not None:
            self._loop.call_soon(self._cancel_consumers)

    def _cancel_consumers(self) -> None:
        for consumer in [*self._consumers]:
            self._consumers.remove(consumer)
            consumer.cancelled()

    # --- messages that no consumer has room for

    def _process_rest(self) -> None:
        """Count bytes, drop what exceeds the limit, and let overdue messages expire."""
        heeds_times = False
        for front in self._fronts:
            heeds_times = front.came_up() or heeds_times
            if self._limit.counts_bytes and front.count_more():
                self._is_spent = True
                self._continue()
        if self._limit.drops:
            self._drop_excess()
        if heeds_times:
            self._look_ahead()

    def _drop_excess(self) -> None:
        """Drop messages that exceed the limit, at most as many as in one turn."""
        left, left_bytes = limits.QUEUE_TURN_MESSAGES_MAX, limits.QUEUE_TURN_BYTES_MAX
        excess = self._limit.excess(self.ready_count)
        for number, front in self._by_priority:
            while min(excess, left, left_bytes) > 0 and front.ready_count_most:
                dropped = self._drop(number, min(excess, left))
                if not dropped.size:
                    break
                excess -= dropped.size
                left, left_bytes = left - dropped.size, left_bytes - dropped.weight
            while min(left, left_bytes) > 0 and self._limit.is_too_large(self._ready_bytes):
                dropped = self._drop(number, 1)
                if not dropped.size:
                    break
                left, left_bytes = left - 1, left_bytes - dropped.weight
        if min(left, left_bytes) <= 0:
            self._continue()

    @property
    def _ready_bytes(self) -> int:
        """Return the bytes of ready messages; 0 for a queue that does not limit them."""
        if not self._limit.counts_bytes:
            return 0
        return sum(front.ready_bytes for front in self._fronts)

    def _drop(self, number: int, count: int) -> Popped:
        """Drop messages at the head of a lane for the limit, even if they have expired, too."""
        try:
            popped = self._fronts[number].pop(count, now_ms=0)
        except StorageError:
            self._unreadable()
            return Popped()
        excess = [(taken.offsets, taken.run) for taken in popped.good]
        self._finish(number, popped, excess=excess)
        return popped

    def _look_ahead(self) -> None:
        """Let overdue messages expire, and set the timer to the next expiry or end of a delay."""
        for number, front in enumerate(self._fronts):
            if front.may_expire:
                self._expire(number, front)
            if front.ledger.next_time_ms != NEVER:
                self._timer.set(front.ledger.next_time_ms)

    def _expire(self, number: int, front: Front) -> None:
        try:
            popped, again_ms = front.pop_overdue(self._clock.now_ms())
        except StorageError:
            self._unreadable()  # The log reports the error itself.
            return
        if popped.size:
            self._finish(number, popped)
        self._timer.set(again_ms)

    def _on_time(self) -> None:
        if self.fault is not None:
            return
        now_ms = self._clock.now_ms()
        for front in self._fronts:
            front.end_times(now_ms)
        self.dispatch()

    # --- settling, rejecting, returning

    def settle(self, owner: object, lane: int, offsets: Sequence[int]) -> None:
        """Settle messages that are leased to the owner; others are left as they are."""
        if self._unfinished or len(offsets) > limits.QUEUE_TURN_MESSAGES_MAX:
            self._do(partial(self._settle, owner, lane), offsets)
        else:
            self._settle(owner, lane, offsets)  # Nearly always.

    def _settle(self, owner: object, lane: int, offsets: Sequence[int]) -> None:
        ledger = self._fronts[lane].ledger
        for each in (offsets,) if isinstance(offsets, range) else _ranges(offsets):
            settled = ledger.settle(each, owner)
            if len(settled) > 1 and sum(map(len, settled)) == len(each):
                settled = [each]  # All of them: one range, perhaps with a step, instead of many.
            self._settled(lane, settled, CONSUMED)

    def reject(self, owner: object, lane: int, offsets: Sequence[int]) -> None:
        """Make dead letters of messages that their owner rejects, or drop them."""
        self._do(partial(self._dead_letter_or_drop, owner, lane, REJECTED), offsets)

    def requeue(
        self, owner: object, lane: int, offsets: Sequence[int], *, is_attempt: bool = True
    ) -> None:
        """Make messages that are leased to the owner ready again, at their old place.

        `is_attempt` says whether that counts as a failed delivery.
        """
        self._do(partial(self._requeue, owner, lane, is_attempt), offsets)

    def _requeue(self, owner: object, lane: int, is_attempt: bool, offsets: Sequence[int]) -> None:
        ledger, limit = self._fronts[lane].ledger, self.settings.delivery_limit
        if limit is not None and is_attempt:
            spent = [each for each in offsets if ledger.attempts(each) >= limit]
            self._dead_letter_or_drop(owner, lane, DELIVERY_LIMIT, spent)
        for each in _ranges(offsets):
            self._return(owner, lane, each, is_attempt=is_attempt)
        if self._is_in_memory:  # Otherwise later: that may be many reads from the disk.
            self._fronts[lane].count_more()
        if self._limit.drops and not self._is_gone:
            self._drop_excess()
        self._continue()

    def release(self, owner: object) -> None:
        """Return all messages that are leased to the owner, whose connection has ended."""
        for number, front in enumerate(self._fronts):
            leases = front.ledger.leased.items()
            held = sorted(offset for offset, lease in leases if lease.owner is owner)
            if held:
                self.requeue(owner, number, held)

    def when_settlements_committed(self, waiter: Waiter) -> None:
        """Call `waiter` once all settlements so far are committed, or have failed."""
        if self._unfinished:
            self._waiting_for_unfinished.append(waiter)
            return
        calls = [lane.when_settlements_committed for lane in self.lanes]
        self._when_all(calls, waiter)

    def when_safe(self, waiter: Waiter) -> None:
        """Call `waiter`, with an error if too few nodes of a cluster have now what is committed."""
        calls = [partial(lane.when_committed, lane.offset_end) for lane in self.lanes]
        self._when_all(calls, waiter)

    def _when_all(self, calls: Sequence[Callable[[Waiter], None]], waiter: Waiter) -> None:
        """Make these calls, and call `waiter` when each of them has answered."""
        waiting = len(calls)
        failed: StorageError | None = None

        def one_done(failure: StorageError | None) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed or failure
            if not waiting:
                waiter(failed)

        for call in calls:
            call(one_done)

    # --- requests for very many messages

    def _do(self, answer: Answer, offsets: Sequence[int]) -> None:
        """Call `answer` with these offsets: now if they are few, otherwise in several turns."""
        if not self._unfinished and len(offsets) <= limits.QUEUE_TURN_MESSAGES_MAX:
            answer(offsets)
            return
        self._do_later(answer, offsets)

    def _do_later(self, answer: Answer, offsets: Sequence[int]) -> None:
        """Call `answer` with these offsets in turns, after what is to be done before."""
        self._unfinished.append((answer, offsets))
        if len(self._unfinished) == 1:
            self._turns.start(self._do_rest())

    def _do_rest(self) -> Steps[None]:
        size = limits.QUEUE_TURN_MESSAGES_MAX
        while self._unfinished:  # It is also emptied when the queue is closed.
            answer, offsets = self._unfinished[0]
            self._unfinished[0] = answer, offsets[size:]
            self.guard(answer, offsets[:size])
            if self._unfinished and not self._unfinished[0][1]:
                self._unfinished.popleft()
                if not self._unfinished:
                    self.guard(self._all_done)
            yield

    def _all_done(self) -> None:
        """Dispatch again. Those who waited for all settlements now wait for their commit."""
        waiters, self._waiting_for_unfinished = self._waiting_for_unfinished, []
        for waiter in waiters:
            self.when_settlements_committed(waiter)
        self._continue()

    # --- changing the state of messages

    def _settled(self, lane: int, settled: Sequence[range], reason: str) -> None:
        """Count and record messages that were settled in the ledger, and answer publishers."""
        if settled and not self._is_gone:
            self._conservation.settled(settled, reason)
            self.lanes[lane].settled(settled)
            groups = self._fronts[lane].groups
            if groups is not None and groups.settled(settled):
                self._continue()
            watch = self._watches[lane]
            if watch.watched:
                watch.settled(settled, is_consumed=reason == CONSUMED)

    def _finish(
        self,
        lane: int,
        popped: Popped,
        consumed: Sequence[range] = (),
        excess: Sequence[Piece] = (),
    ) -> None:
        """Settle the popped messages that no consumer has leased, or send their dead letters.

        These are `consumed` (settled by their delivery), lost, expired, and `excess`, which
        exceeds the limit.
        """
        dead = [(EXPIRED, popped.expired), (MAXLEN, excess)]
        dead = [(reason, pieces) for reason, pieces in dead if pieces]
        sends = [self._sends_dead_letters(reason) for reason, _ in dead]
        for (_, pieces), is_sent in zip(dead, sends, strict=True):
            if is_sent:  # First, because for the ledger a popped message is settled.
                for offsets, _ in pieces:
                    self._fronts[lane].ledger.lease(offsets, self._dying)
                    self._dying_count += len(offsets)
        if consumed:
            self._settle_popped(lane, consumed, CONSUMED)
        if popped.lost:
            self._settle_popped(lane, [offsets for offsets, _ in popped.lost], LOST)
        for (reason, pieces), is_sent in zip(dead, sends, strict=True):
            if is_sent:
                self._send_dead_letters(lane, pieces, reason)
            else:
                self._settle_popped(lane, [offsets for offsets, _ in pieces], reason)

    def _sends_dead_letters(self, reason: str) -> bool:
        """Return whether messages that die for this reason become dead letters."""
        settings = self.settings
        return self._has_dead_letters and (settings.dead_letters_expired or reason != EXPIRED)

    def _settle_popped(self, lane: int, popped: Sequence[range], reason: str) -> None:
        for offsets in popped:
            self._fronts[lane].ledger.settle_popped(offsets)
        self._settled(lane, popped, reason)
        if reason == CONSUMED and popped:
            self.lanes[lane].hurry()

    def _return(self, owner: object, lane: int, offsets: range, *, is_attempt: bool) -> None:
        """Make messages that are leased to the owner ready again, and record the attempt."""
        front = self._fronts[lane]
        released = front.ledger.release(offsets, owner, is_attempt=is_attempt)
        if is_attempt and released and not self._is_gone:
            front.lane.attempted(released)
        front.came_back(released)

    # --- dead letters

    def _dead_letter_or_drop(
        self, owner: object, lane: int, reason: str, offsets: Sequence[int]
    ) -> None:
        """Make dead letters of messages that are leased to the owner.

        Without a dead letter exchange they are dropped.
        """
        ledger = self._fronts[lane].ledger
        for each in _ranges(offsets):
            if not self._has_dead_letters:
                self._settled(lane, ledger.settle(each, owner), reason)
                continue
            for held in ledger.hand_over(each, owner, self._dying):
                self._dying_count += len(held)
                self._read_dying(lane, reason, held)

    def _read_dying(self, lane: int, reason: str, offsets: Sequence[int]) -> None:
        """Read dying messages and publish their dead letters; if they cannot be read, try later.

        They are not made ready meanwhile: they were rejected, or delivered too often. Of large
        ones some are read now, and the others in later turns.
        """
        if self._is_gone or self.fault is not None:
            return
        leased, left = self._fronts[lane].ledger.leased, limits.QUEUE_TURN_BYTES_MAX
        for held in rows(each for each in offsets if leased.get(each) is self._dying):
            end, pieces = held.start, list[Piece]()
            if left > 0:
                try:
                    pieces = self.lanes[lane].read(held, left)
                except StorageError:  # The log reports the error itself.
                    self._send_again(lane, held, reason, limits.DEAD_LETTER_RETRY_MS)
                    continue
                end = pieces[-1][0].stop if pieces else held.stop
                left -= sum([len(body) for _, run in pieces for _, body in run.messages])
            for gap in gaps(range(held.start, end), pieces):
                self._end_dying(lane, gap, LOST)
            self._send_dead_letters(lane, pieces, reason)
            if end < held.stop:
                self._do_later(partial(self._read_dying, lane, reason), range(end, held.stop))

    def _cause(self, reason: str) -> Cause:
        exchange, key = self.settings.dead_letter_exchange, self.settings.dead_letter_key
        assert exchange is not None
        return Cause(self.name, reason, self._clock.now_ms(), exchange, key)

    def _send_dead_letters(self, lane: int, pieces: Sequence[Piece], reason: str) -> None:
        """Publish the dead letters of dying messages."""
        if not self._has_dead_letters:  # Not any more.
            for offsets, _ in pieces:
                self._end_dying(lane, offsets, reason)
            return
        cause = self._cause(reason)
        for offsets, run in pieces:
            for letters in dead_letters(run, cause, self._faults):
                self._send(lane, offsets[letters.places], letters, reason)

    def _send(self, lane: int, offsets: range, letters: DeadLetters, reason: str) -> None:
        if self._is_gone:
            return
        if not letters.may_go:
            self._end_dying(lane, offsets, UNROUTABLE)
            return
        nowhere: Sequence[Message] = ()

        def arrived(failure: Failure | None) -> None:
            unroutable = _places_of(nowhere, letters.run.messages) if nowhere else ()
            self.guard(self._dead_letters_arrived, lane, offsets, reason, unroutable, failure)

        publication = Publication(arrived)
        nowhere = self._publish_dead_letters(self, letters.run, letters.avoided, publication)
        publication.arrived()

    def _dead_letters_arrived(
        self,
        lane: int,
        offsets: range,
        reason: str,
        unroutable: Sequence[range],
        failure: Failure | None,
    ) -> None:
        """Settle messages whose dead letters are committed; send the others again later.

        `unroutable` are the places of those that no queue gets.
        """
        at_least_once = self.settings.dead_letter_at_least_once
        if failure is not None:
            if isinstance(failure, Refused) and not at_least_once:
                self._end_dying(lane, offsets, REFUSED)
            else:
                self._send_again(lane, offsets, reason, limits.DEAD_LETTER_RETRY_MS)
            return
        routed = Ranges([range(len(offsets))])
        for places in unroutable:
            routed.remove(places.start, places.stop)
            homeless = offsets[places.start : places.stop]
            if at_least_once:
                self._send_again(lane, homeless, reason, limits.DEAD_LETTER_UNROUTABLE_RETRY_MS)
            else:
                self._end_dying(lane, homeless, UNROUTABLE)
        for places in routed:
            self._end_dying(lane, offsets[places.start : places.stop], DEAD_LETTERED)

    def _send_again(self, lane: int, offsets: range, reason: str, delay_ms: int) -> None:
        """Publish dead letters again later, by the settings that the queue has then."""
        delay_s = delay_ms / 1_000
        self._loop.call_later(delay_s, self.guard, self._read_dying, lane, reason, offsets)

    def _end_dying(self, lane: int, offsets: range, reason: str) -> None:
        """Settle dying messages: their dead letters are committed, or dropped."""
        settled = self._fronts[lane].ledger.settle(offsets, self)
        self._dying_count -= sum(map(len, settled))
        self._settled(lane, settled, reason)

    # --- administration

    def purge(self) -> int:
        """Drop all ready messages. Returns how many. Raises QueueDown."""
        self.check_up()
        count = 0
        for number, front in enumerate(self._fronts):
            dropped = front.discard()
            count += sum(map(len, dropped))
            self._settled(number, dropped, PURGED)
        return count

    def rewind(self, *, offset: int | None = None, time_ms: int | None = None) -> None:
        """Make all messages from an offset or a time on ready again that are still kept.

        Raises StorageError, and InvalidQueue for an offset if the queue has priorities.
        """
        for number, to_offset in enumerate(self._rewind_places(offset, time_ms)):
            self._rewind(number, to_offset)
        self._continue()

    def rewind_preview(
        self, *, offset: int | None = None, time_ms: int | None = None
    ) -> tuple[int, int]:
        """Return how many messages a rewind would make ready that are not, and how many of these
        consumers hold now. Raises as `rewind`."""
        places = self._rewind_places(offset, time_ms)
        found = [
            front.rewind_preview(each) for front, each in zip(self._fronts, places, strict=True)
        ]
        return sum(again for again, _ in found), sum(leased for _, leased in found)

    def _rewind_places(self, offset: int | None, time_ms: int | None) -> list[int]:
        """Return the offset to which each lane is rewound."""
        self.check_up()
        if time_ms is not None:
            return [front.lane.offset_for_time(time_ms) for front in self._fronts]
        assert offset is not None, "neither an offset nor a time"
        if len(self._fronts) > 1:
            raise InvalidQueue(f"{self._text} has priorities: rewind it to a time")
        return [offset]

    def _rewind(self, lane: int, offset: int) -> None:
        """Rewind a lane. Dying messages are ready again, too, and still become dead letters."""
        present = self._conservation.present_count
        try:
            self._fronts[lane].rewind(offset)
        finally:
            self._conservation.rewound(present)
            leases = (each for front in self._fronts for each in front.ledger.leased.values())
            self._dying_count = sum(lease is self._dying for lease in leases)

    def deferred(self, count: int) -> list[Deferred]:
        """Return deferred messages, those due first at the front. Raises QueueDown."""
        self.check_up()
        every = (
            Deferred(number, offset, due_ms)
            for number, front in enumerate(self._fronts)
            for offset, due_ms in front.ledger.deferred.items()
        )
        return nsmallest(count, every, key=lambda each: (each.due_ms, each.lane, each.offset))

    def change_deferred(self, lane: int, offset: int, due_ms: int) -> bool:
        """Change until when a message is deferred. Returns False if it is not deferred."""
        front = self._front_of(lane, offset)
        if front is None:
            return False
        front.defer(offset, due_ms)
        self._look_ahead()
        return True

    def cancel_deferred(self, lane: int, offset: int) -> bool:
        """Drop a deferred message. Returns False if it is not deferred."""
        front = self._front_of(lane, offset)
        if front is None:
            return False
        self._settled(lane, front.cancel(offset), CANCELLED)
        return True

    def _front_of(self, lane: int, offset: int) -> Front | None:
        """Return the front of a deferred message; None if it is not deferred. Raises QueueDown."""
        self.check_up()
        front = self._fronts[lane] if 0 <= lane < len(self._fronts) else None
        return front if front is not None and front.is_deferred(offset) else None

    def touch(self) -> None:
        """Note that the queue is used: restart the time after which it is deleted if unused."""
        if self.settings.expires_ms is not None and not self._consumers.count:
            self._unused.stop()
            self._unused.set(self._clock.now_ms() + self.settings.expires_ms)

    def _on_expiry(self) -> None:
        if self.fault is None:  # A queue that is down is kept: nobody could have used it.
            self._on_unused(self)

    def delete(self) -> int:
        """Delete all messages, and cancel the consumers. Returns how many messages were ready.

        Messages that came just before are deleted with the others: their publishers are not
        refused, unless they wait for consumers.
        """
        count = self.ready_count
        self._is_deleted = True
        pending, self._append_buffer = self._append_buffer, []
        self.close()
        for each in pending:
            each.arrived(self._gone() if each.until_settled else None)
        for lane in self.lanes:
            lane.drop()
        self._cancel_consumers()
        return count

    def close(self) -> None:
        """Stop all activity, and record nothing more. Publishers that wait are refused."""
        self._is_gone = True
        self._timer.stop()
        self._unused.stop()
        self.timed_leases.close()
        if self._receipts is not None:
            self._receipts.close()
        for watch in self._watches:
            watch.close()
        if self._unfinished:
            self._unfinished.clear()
            self._all_done()


def _places_of(some: Sequence[Message], messages: Sequence[Message]) -> list[range]:
    """Return the places of some of the messages, told by their envelopes."""
    wanted = dict.fromkeys(id(envelope) for envelope, _ in some)
    return rows(place for place, (each, _) in enumerate(messages) if id(each) in wanted)


def _ranges(offsets: Sequence[int]) -> Iterable[range]:
    if isinstance(offsets, range):
        return (offsets,)
    return Ranges(range(offset, offset + 1) for offset in offsets)
