"""Queues in a simulated world, with consumers that write down what they are told."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from entrepot.broker.queue.lane import Piece, Waiter
from entrepot.broker.queue.memory_lane import MemoryLane
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Failure, Publication, Run, Taken
from entrepot.broker.queue.queue import Queue, Surroundings
from entrepot.broker.turns import Turns
from entrepot.core.errors import StorageError
from entrepot.core.message import Envelope, Message
from entrepot.core.value import freeze_table
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration
from entrepot.wire.amqp.properties import BasicProperties, encode
from sim.clock import SimClock
from sim.loop import SimLoop, run


def on_queues(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test function out of a story: the bed comes first, parameters after."""
    signature = inspect.signature(story)
    _, *parameters = signature.parameters.values()

    async def main(loop: SimLoop, arguments: dict[str, Any]) -> None:
        await story(Bed(SimClock(loop)), **arguments)

    def test(**arguments: Any) -> None:
        run(0, lambda loop: main(loop, arguments))

    test.__name__, test.__doc__, test.__module__ = story.__name__, story.__doc__, story.__module__
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test


async def settle_down() -> None:
    """Until nobody has anything to do now."""
    for _ in range(10):
        await asyncio.sleep(0)


def properties(headers: Mapping[str, object] | None = None, **fields: Any) -> bytes:
    return encode(BasicProperties(headers=headers, **fields))


def envelope(head: bytes = properties()) -> Envelope:
    return Envelope("x", "key", head, AMQP)


def words(text: str, head: bytes = properties()) -> list[Message]:
    return [(envelope(head), word.encode()) for word in text.split()]


def text_of(messages: Sequence[Message]) -> str:
    return " ".join(bytes(body).decode() for _, body in messages)


class Eater:
    """A consumer. What it is given it keeps, until it is told to settle it."""

    def __init__(
        self,
        tag: str = "c",
        room: int = 1_000_000,
        *,
        auto_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
    ) -> None:
        self.tag, self.auto_ack, self.priority = tag, auto_ack, priority
        self.is_exclusive = exclusive
        self.prefetch = room
        self.held: list[tuple[int, int, bytes]] = []  # Lane, offset, body.
        self.runs: list[Taken] = []
        self.story: list[str] = []

    def room(self) -> int:
        return self.prefetch - (0 if self.auto_ack else len(self.held))

    def deliver(self, lane: int, taken: Taken) -> None:
        assert len(taken.offsets) == len(taken.run.messages) <= self.room()
        self.runs.append(taken)
        pairs = zip(taken.offsets, taken.run.messages, strict=True)
        self.held += [(lane, offset, bytes(body)) for offset, (_, body) in pairs]

    def cancelled(self) -> None:
        self.story.append("cancelled")

    def activated(self, is_active: bool) -> None:
        self.story.append("active" if is_active else "waiting")

    @property
    def has(self) -> str:
        return " ".join(body.decode() for _, _, body in self.held)

    @property
    def attempts(self) -> list[int]:
        return [count for each in self.runs for count in (each.attempts or [0] * len(each.offsets))]

    def place(self, word: str) -> tuple[int, range]:
        """Lane and offset of a message it has, which it then has no longer."""
        found = next(each for each in self.held if each[2] == word.encode())
        self.held.remove(found)
        return found[0], range(found[1], found[1] + 1)

    def ack(self, queue: Queue, text: str) -> None:
        for word in text.split():
            queue.settle(self, *self.place(word))
        queue.dispatch()

    def nack(self, queue: Queue, text: str, *, is_attempt: bool = True) -> None:
        for word in text.split():
            queue.requeue(self, *self.place(word), is_attempt=is_attempt)

    def reject(self, queue: Queue, text: str) -> None:
        for word in text.split():
            queue.reject(self, *self.place(word))


class LaneAround:
    """A lane in memory, but for what a subclass changes: compiled classes cannot be inherited."""

    def __init__(self, memory_use: MemoryUse) -> None:
        self.lane = MemoryLane(memory_use)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lane, name)


class TroubledLane(LaneAround):
    """It commits when it is told to, and fails when it is to fail."""

    is_in_memory = False  # Nor does it commit at once.

    def __init__(self, memory_use: MemoryUse) -> None:
        super().__init__(memory_use)
        self.commits_late = False
        self.waiters: list[Waiter] = []
        self.cannot_append = self.cannot_read = False
        self.gone = range(0)  # Offsets that retention took.
        self.told: list[object] = []

    def append(self, runs: Sequence[Run]) -> int:
        if self.cannot_append:
            raise StorageError("full")
        return self.lane.append(runs)

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        if self.commits_late:
            self.waiters.append(waiter)
        else:
            self.lane.when_committed(offset_end, waiter)

    def when_settlements_committed(self, waiter: Waiter) -> None:
        if self.commits_late:
            self.waiters.append(waiter)
        else:
            self.lane.when_settlements_committed(waiter)

    def read(self, offsets: range, bytes_max: int | None = None) -> list[Piece]:
        if self.cannot_read:
            raise StorageError("torn")
        pieces = self.lane.read(offsets, bytes_max)
        return (
            [
                (range(offset, offset + 1), run._replace(messages=[message]))
                for each, run in pieces
                for offset, message in zip(each, run.messages, strict=True)
                if offset not in self.gone
            ]
            if self.gone
            else pieces
        )

    def hurry(self) -> None:
        self.told.append("hurry")

    def attempted(self, offsets: Iterable[range]) -> None:
        self.told.append(("attempted", *offsets))

    def deferred(self, offset: int, until_ms: int | None) -> None:
        self.told.append((offset, until_ms))

    def rewound(self, offset: int) -> None:
        self.told.append(f"rewound to {offset}")

    def commit(self, failure: StorageError | None = None) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter(failure)


class Bed:
    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self.memory_use = MemoryUse()
        self.letters: list[tuple[Run, list[str]]] = []
        self.letter_failures: list[Failure | None] = []  # One for each, then none.
        self.unused: list[Queue] = []
        self.confirms: list[tuple[str, Failure | None]] = []
        letters, turns = self._dead_letters, Turns(clock)
        self.surroundings = Surroundings(clock, letters, self.unused.append, turns)

    def queue(self, arguments: Mapping[str, object] | None = None, **fields: Any) -> Queue:
        fields.setdefault("durable", False)
        spec = QueueDeclaration("/", "q", freeze_table(arguments or {}), **fields).spec()
        self.lanes = [TroubledLane(self.memory_use) for _ in range(spec.settings.lane_count)]
        self.lane = self.lanes[0]
        return Queue("/", spec, self.lanes, self.surroundings)

    def queue_in_memory(self) -> Queue:
        spec = QueueDeclaration("/", "q", freeze_table({}), durable=False).spec()
        return Queue("/", spec, [MemoryLane(self.memory_use)], self.surroundings)

    def again(self, queue: Queue, *, recovered: int) -> Queue:
        """The same after a restart."""
        self.lane.offset_recovered = recovered
        queue.close()
        return Queue("/", queue.spec, self.lanes, self.surroundings)

    async def publish(
        self, queue: Queue, text: str, head: bytes = properties(), **options: Any
    ) -> None:
        """Words are messages. The confirmation is written down under the text."""
        self.publish_run(queue, words(text, head), text, **options)
        await settle_down()

    def publish_run(self, queue: Queue, messages: list[Message], name: str, **options: Any) -> None:
        publication = Publication(lambda failure: self.confirms.append((name, failure)))
        queue.publish(Run(self.clock.now_ms(), messages), publication, **options)
        publication.arrived()

    def _dead_letters(
        self, _: Queue, run: Run, avoided: Sequence[str], publication: Publication | None
    ) -> Sequence[Message]:
        self.letters.append((run, list(avoided)))
        if publication is not None:
            publication.expect()
            failure = self.letter_failures.pop(0) if self.letter_failures else None
            asyncio.get_running_loop().call_soon(publication.arrived, failure)
        return ()

    @property
    def dead(self) -> str:
        return " ".join(text_of(run.messages) for run, _ in self.letters)


def ready(queue: Queue) -> str:
    return " ".join(text_of(taken.run.messages) for _, taken in queue.peek(1_000))
