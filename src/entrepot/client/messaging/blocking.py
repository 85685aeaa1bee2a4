"""`Client`: `AsyncClient` for programs that do not wait in a loop.

A loop runs in a thread of its own, and what is called here waits for it; so a client may be used
from several threads. Callbacks run in a few other threads, so they may call the client, too, and
may take their time; those of one subscription come one after the other.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from entrepot.client.messaging.client import AMQP, KAFKA, AsyncClient
from entrepot.client.messaging.consuming import PREFETCH, Consumption
from entrepot.client.messaging.entries import LEASE_S, Entries, EntryTransaction, Kept
from entrepot.client.messaging.groups import Group, Sent, View
from entrepot.client.messaging.keeper import PATIENCE_S
from entrepot.client.messaging.memory import Memory, MemoryWatch
from entrepot.client.messaging.message import Message
from entrepot.client.messaging.queues import BATCH
from entrepot.client.messaging.replicated_space import ReplicatedSpace
from entrepot.client.messaging.space_transactions import SpaceTransaction
from entrepot.client.messaging.spaces import Space, Watch
from entrepot.client.messaging.subjects import Advertisement, Subscription
from entrepot.client.messaging.topics import FIRST, Entry, Topic, TopicReader, TopicTransaction
from entrepot.client.messaging.transactions import QueueTransaction

CALLBACKS_AT_ONCE = 16

P = ParamSpec("P")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")


class Loop:
    """An event loop in a thread of its own, and threads for callbacks."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="entrepot-client", daemon=True)
        self._callbacks = ThreadPoolExecutor(CALLBACKS_AT_ONCE, "entrepot-callback")
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Run it there, and return its result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a blocking client cannot be called from its own loop")
        call = _Call(work)
        self._loop.call_soon_threadsafe(call.begin)
        try:
            call.over.acquire()
        except BaseException:  # As when Ctrl-C is typed.
            self._loop.call_soon_threadsafe(call.cancel)
            raise
        return call.result()

    def in_thread(self, function: Callable[..., R]) -> Callable[..., Coroutine[Any, Any, R]]:
        """Return a coroutine function that calls a function in one of the threads."""

        async def call(*arguments: Any) -> R:
            return await self._loop.run_in_executor(self._callbacks, function, *arguments)

        return call

    def close(self) -> None:
        self.wait(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._callbacks.shutdown(wait=False, cancel_futures=True)
        self._loop.close()

    async def _end_tasks(self) -> None:
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Call(Generic[R]):
    """A coroutine that runs in the loop while another thread waits until it is over.

    The library's `Future` for threads takes a quarter more time for that.
    """

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self.over = threading.Lock()  # Taken until it is over.
        self.over.acquire()
        self._work = work
        self._task: asyncio.Task[R] | None = None

    def begin(self) -> None:
        self._task = asyncio.ensure_future(self._work)
        self._task.add_done_callback(lambda task: self.over.release())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> R:
        assert self._task is not None
        if self._task.cancelled():  # As when another thread closes the client.
            raise CancelledError
        return self._task.result()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Blocking(Generic[T_co]):
    """Something of `AsyncClient`, and the loop that it lives in."""

    def __init__(self, inner: T_co, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    @property
    def inner(self) -> T_co:
        return self._inner


@contextmanager
def entered(loop: Loop, inner: AbstractAsyncContextManager[R]) -> Iterator[R]:
    """Enter and leave something in the loop, for a `with` block here."""
    found = loop.wait(_awaited(inner.__aenter__()))
    try:
        yield found
    except BaseException as error:
        if not loop.wait(_awaited(inner.__aexit__(type(error), error, error.__traceback__))):
            raise
    else:
        loop.wait(_awaited(inner.__aexit__(None, None, None)))


def waits(
    verb: Callable[Concatenate[V, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Blocking[V], P], R]:
    """Return a method that calls the verb of the inner object, and waits for it."""

    def call(self: Blocking[V], /, *arguments: P.args, **options: P.kwargs) -> R:
        return self._loop.wait(verb(self.inner, *arguments, **options))

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    return call


class BlockingSubscription(Blocking[Subscription]):
    """The handle of a subscription."""

    unsubscribe = waits(Subscription.unsubscribe)

    @property
    def filter(self) -> str:
        return self.inner.filter

    @property
    def is_over(self) -> bool:
        return self.inner.is_over

    @property
    def count(self) -> int:
        return self.inner.count


class BlockingConsumption(Blocking[Consumption]):
    """What `notify` and `serve` have begun."""

    stop = waits(Consumption.stop)


class BlockingTopic(Blocking[Topic]):
    """A topic's name, and what can be done with it."""

    append = waits(Topic.append)
    append_many = waits(Topic.append_many)

    def read(
        self, start: str | int = FIRST, *, group: str | None = None, committed: bool = True
    ) -> BlockingReader:
        """Begin to read: see `Topic.read`."""
        reader = self._loop.wait(self.inner.read(start, group=group, committed=committed))
        return BlockingReader(reader, self._loop)


class BlockingReader(Blocking[TopicReader]):
    """Reads a topic from a position that it knows."""

    poll = waits(TopicReader.poll)
    commit = waits(TopicReader.commit)

    def seek(self, offset: int, partition: int = 0) -> None:
        """Go on there."""
        self.inner.seek(offset, partition)

    @property
    def positions(self) -> dict[int, int]:
        return self.inner.positions

    def __iter__(self) -> Iterator[Entry]:
        while True:
            yield from self.poll()


class BlockingSpace(Blocking[Space]):
    """A space of tuples."""

    write = waits(Space.write)
    read = waits(Space.read)
    take = waits(Space.take)
    cancel = waits(Space.cancel)
    renew = waits(Space.renew)

    @contextmanager
    def transaction(self) -> Iterator[BlockingSpaceTransaction]:
        """Write, read and take as one: see `Space.transaction`."""
        with entered(self._loop, self.inner.transaction()) as found:
            yield BlockingSpaceTransaction(found, self._loop)

    def __len__(self) -> int:
        return len(self.inner)

    def notify(self, callback: Callable[[tuple[Any, ...]], Any], *template: Any) -> Watch:
        """Call a function with each matching tuple that is written from now on."""
        return self.inner.notify(self._loop.in_thread(callback), *template)


class BlockingSpaceTransaction(Blocking[SpaceTransaction]):
    """Operations on a space that wait for the commit."""

    write = waits(SpaceTransaction.write)
    read = waits(SpaceTransaction.read)
    take = waits(SpaceTransaction.take)


class BlockingEntryTransaction(Blocking[EntryTransaction]):
    """Operations on a space of entries that wait for the commit."""

    write = waits(EntryTransaction.write)
    read = waits(EntryTransaction.read)
    take = waits(EntryTransaction.take)


class BlockingEntries(Blocking[Entries]):
    """A space of typed entries."""

    write = waits(Entries.write)
    read = waits(Entries.read)
    take = waits(Entries.take)
    renew = waits(Entries.renew)
    cancel = waits(Entries.cancel)

    @contextmanager
    def transaction(self) -> Iterator[BlockingEntryTransaction]:
        """Write, read and take as one: see `Space.transaction`."""
        with entered(self._loop, self.inner.transaction()) as found:
            yield BlockingEntryTransaction(found, self._loop)

    def keep(self, entry: Any, lease_s: float = LEASE_S) -> BlockingKept:
        """Write an entry that is there as long as this process is: see `Entries.keep`."""
        return BlockingKept(self._loop.wait(self.inner.keep(entry, lease_s)), self._loop)

    def notify(self, callback: Callable[[Any], Any], template: Any) -> Watch:
        """Call a function with each entry like this that is written from now on."""
        return self.inner.notify(self._loop.in_thread(callback), template)


class BlockingKept(Blocking[Kept]):
    """The handle of an entry that is kept."""

    stop = waits(Kept.stop)


class BlockingReplicatedSpace(Blocking[ReplicatedSpace]):
    """A space with a copy at each of its sites."""

    write = waits(ReplicatedSpace.write)
    read = waits(ReplicatedSpace.read)
    take = waits(ReplicatedSpace.take)


class BlockingMemory(Blocking[Memory]):
    """Variables that all clients share, as if they were a dictionary here."""

    write = waits(Memory.write)
    delete = waits(Memory.delete)
    fresh = waits(Memory.fresh)

    def read(self, name: str, default: Any = None) -> Any:
        """Return the value of a variable, as this client knows it."""
        return self.inner.read(name, default)

    def notify(self, callback: Callable[[str, Any], Any], name: str | None = None) -> MemoryWatch:
        """Call a function with the name and the value at each change from now on."""
        return self.inner.notify(self._loop.in_thread(callback), name)

    def __getitem__(self, name: str) -> Any:
        return self.inner[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.write(name, value)

    def __delitem__(self, name: str) -> None:
        self.delete(name)

    def __contains__(self, name: object) -> bool:
        return name in self.inner

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.inner))

    def __len__(self) -> int:
        return len(self.inner)


class BlockingGroup(Blocking[Group]):
    """A group of processes, and perhaps our membership."""

    join = waits(Group.join)
    leave = waits(Group.leave)
    send = waits(Group.send)

    @property
    def view(self) -> View:
        return self.inner.view

    @property
    def position(self) -> int:
        return self.inner.position

    @property
    def leader(self) -> str | None:
        return self.inner.leader

    @property
    def is_member(self) -> bool:
        return self.inner.is_member


class BlockingTransaction(Blocking[QueueTransaction]):
    """Gets and puts that are held until the commit."""

    get = waits(QueueTransaction.get)
    put = waits(QueueTransaction.put)
    publish = waits(QueueTransaction.publish)


class BlockingTopicTransaction(Blocking[TopicTransaction]):
    """Records of topics, and positions of readers: all of it or nothing."""

    append = waits(TopicTransaction.append)
    append_many = waits(TopicTransaction.append_many)

    def commit_position(self, reader: BlockingReader) -> None:
        """Commit how far a reader's group has read, together with the rest."""
        self._loop.wait(self.inner.commit_position(reader.inner))


class Client(Blocking[AsyncClient]):
    """Queues, publish/subscribe, requests, topics and transactions of one broker.

        with entrepot.Client() as client:
            client.put("work", {"id": 7})
            message = client.get("work", timeout_s=5)

    It connects when it has to, and again when a connection breaks. `AsyncClient` is the same for
    programs that wait in a loop.
    """

    def __init__(
        self,
        amqp: str = AMQP,
        kafka: str = KAFKA,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`amqp` and `kafka` are `host:port`: for queues and subjects, and for topics."""
        loop = Loop()

        async def make() -> AsyncClient:
            return AsyncClient(
                amqp, kafka, user=user, password=password, vhost=vhost, patience_s=patience_s
            )

        super().__init__(loop.wait(make()), loop)
        self._is_closed = False

    def __enter__(self) -> Self:
        """Connected, or Unreachable when the patience is over."""
        try:
            self._loop.wait(self.inner.__aenter__())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything. What was not confirmed fails, and what was not settled is ready again."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.wait(self.inner.close())
            self._loop.close()

    # --- queues

    declare_queue = waits(AsyncClient.declare_queue)
    delete_queue = waits(AsyncClient.delete_queue)
    count = waits(AsyncClient.count)
    put = waits(AsyncClient.put)
    put_many = waits(AsyncClient.put_many)
    poll = waits(AsyncClient.poll)
    get = waits(AsyncClient.get)
    browse = waits(AsyncClient.browse)

    def notify(
        self,
        name: str,
        callback: Callable[[Message], Any],
        where: Any = None,
        *,
        prefetch: int = PREFETCH,
    ) -> BlockingConsumption:
        """Call a function with each message that comes to a queue, until `stop` is called.

        The message is settled when the function returns. If it raises, the message comes once
        more, and if that fails, too, it is rejected.
        """
        handle = self._loop.in_thread(callback)
        found = self._loop.wait(self.inner.notify(name, handle, where, prefetch=prefetch))
        return BlockingConsumption(found, self._loop)

    def batches(
        self,
        name: str,
        size_max: int = BATCH,
        where: Any = None,
        *,
        timeout_s: float | None = None,
    ) -> Iterator[list[Message]]:
        """Yield what comes, many messages at a time; settled when the next are asked for.

        It ends when nothing has come for that time. Who leaves before that
        has not settled the last ones.
        """
        return self._iterate(self.inner.batches(name, size_max, where, timeout_s=timeout_s))

    def _iterate(self, inner: AsyncIterator[R]) -> Iterator[R]:
        try:
            while True:
                try:
                    found = self._loop.wait(_next(inner))
                except StopAsyncIteration:
                    return
                yield found
        finally:
            self._loop.wait(_end(inner))

    @contextmanager
    def lease(
        self,
        name: str,
        timeout_s: float | None = None,
        where: Any = None,
        *,
        id: str | None = None,
        correlation_id: str | None = None,
        type: str | None = None,
    ) -> Iterator[Message]:
        """Get a message that is settled when the block ends, and ready again if it fails."""
        inner = self.inner.lease(
            name, timeout_s, where, id=id, correlation_id=correlation_id, type=type
        )
        with entered(self._loop, inner) as message:
            yield message

    # --- subjects

    publish = waits(AsyncClient.publish)
    advertise = waits(AsyncClient.advertise)
    unadvertise = waits(AsyncClient.unadvertise)

    def subscribe(
        self,
        filter: str,
        callback: Callable[[BlockingSubscription, Message], Any],
        expiry_s: float | None = None,
        *,
        where: Any = None,
        durable: str | None = None,
        on_advertised: Callable[[BlockingSubscription, Advertisement], Any] | None = None,
    ) -> BlockingSubscription:
        """Call a function with the handle and each event whose subject matches, until `unsubscribe`
        is called or the time is over: see `AsyncClient.subscribe`."""

        def hear(handle: Subscription, event: Message) -> Any:
            return callback(BlockingSubscription(handle, self._loop), event)

        def advertised(handle: Subscription, what: Advertisement) -> Any:
            assert on_advertised is not None
            return on_advertised(BlockingSubscription(handle, self._loop), what)

        found = self._loop.wait(
            self.inner.subscribe(
                filter,
                self._loop.in_thread(hear),
                expiry_s,
                where=where,
                durable=durable,
                on_advertised=None if on_advertised is None else self._loop.in_thread(advertised),
            )
        )
        return BlockingSubscription(found, self._loop)

    # --- types of events

    declare_type = waits(AsyncClient.declare_type)
    event_type = waits(AsyncClient.event_type)
    publish_event = waits(AsyncClient.publish_event)

    def subscribe_type(
        self,
        type: str,
        callback: Callable[[BlockingSubscription, Message], Any],
        expiry_s: float | None = None,
        *,
        where: Any = None,
    ) -> BlockingSubscription:
        """Call a function with each event of a type or one of its subtypes."""

        def hear(handle: Subscription, event: Message) -> Any:
            return callback(BlockingSubscription(handle, self._loop), event)

        found = self._loop.wait(
            self.inner.subscribe_type(type, self._loop.in_thread(hear), expiry_s, where=where)
        )
        return BlockingSubscription(found, self._loop)

    # --- requests

    request = waits(AsyncClient.request)

    @property
    def late_answers(self) -> int:
        """Return how many answers came when their time was over."""
        return self.inner.late_answers

    def ask(
        self, subject: str, value: Any, timeout_s: float = 5.0, count: int | None = None
    ) -> Iterator[Message]:
        """Publish a request to whoever listens; yield the answers as they come."""
        return self._iterate(self.inner.ask(subject, value, timeout_s, count))

    def serve(
        self, name: str, answer: Callable[[Message], Any], *, prefetch: int = PREFETCH
    ) -> BlockingConsumption:
        """Answer the requests of a queue with what a function returns, until `stop` is called."""
        handle = self._loop.in_thread(answer)
        found = self._loop.wait(self.inner.serve(name, handle, prefetch=prefetch))
        return BlockingConsumption(found, self._loop)

    def answer(
        self, filter: str, answer: Callable[[Message], Any], *, where: Any = None
    ) -> BlockingSubscription:
        """Answer what is asked on subjects with what a function returns; None is no answer."""
        handle = self._loop.in_thread(answer)
        found = self._loop.wait(self.inner.answer(filter, handle, where=where))
        return BlockingSubscription(found, self._loop)

    # --- topics and transactions

    def topic(self, name: str, *, partitions: int | None = None) -> BlockingTopic:
        """Return a topic; with a number of partitions, make it if there is none."""
        return BlockingTopic(
            self._loop.wait(self.inner.topic(name, partitions=partitions)), self._loop
        )

    def space(self, name: str, *, partitions: int = 1) -> BlockingSpace:
        """Return a tuple space, made if there is none: then it has so many partitions."""
        made = self.inner.space(name, partitions=partitions)
        return BlockingSpace(self._loop.wait(made), self._loop)

    def entries(self, name: str, *types: type) -> BlockingEntries:
        """Return a space of typed entries, made if there is none: see `AsyncClient.entries`."""
        return BlockingEntries(self._loop.wait(self.inner.entries(name, *types)), self._loop)

    def replicated_space(
        self, name: str, *, sites: int = 3, trace: Callable[[str, str], None] | None = None
    ) -> BlockingReplicatedSpace:
        """Return a space after Xu and Liskov: see `AsyncClient.replicated_space`."""
        made = self.inner.replicated_space(name, sites=sites, trace=trace)
        return BlockingReplicatedSpace(self._loop.wait(made), self._loop)

    def memory(self, name: str) -> BlockingMemory:
        """Return a memory that all clients share, made if there is none."""
        return BlockingMemory(self._loop.wait(self.inner.memory(name)), self._loop)

    def group(
        self,
        name: str,
        on_event: Callable[[View | Sent], Any] | None = None,
        *,
        member: str | None = None,
        is_closed: bool = True,
        is_durable: bool = True,
        machine: Callable[[Sent], Any] | None = None,
        after: int | None = None,
    ) -> BlockingGroup:
        """Return a group of processes, made if there is none: see `AsyncClient.group`."""
        made = self.inner.group(
            name,
            None if on_event is None else self._loop.in_thread(on_event),
            member=member,
            is_closed=is_closed,
            is_durable=is_durable,
            machine=machine,
            after=after,
        )
        return BlockingGroup(self._loop.wait(made), self._loop)

    delete_group = waits(AsyncClient.delete_group)

    @contextmanager
    def transaction(self) -> Iterator[BlockingTransaction]:
        """Get, put and publish as one: see `AsyncClient.transaction`."""
        with entered(self._loop, self.inner.transaction()) as found:
            yield BlockingTransaction(found, self._loop)

    @contextmanager
    def topic_transaction(self, transactional_id: str) -> Iterator[BlockingTopicTransaction]:
        """Append to topics and commit positions, all or nothing: see `AsyncClient`."""
        with entered(self._loop, self.inner.topic_transaction(transactional_id)) as found:
            yield BlockingTopicTransaction(found, self._loop)


async def _awaited(work: Any) -> Any:
    return await work if inspect.isawaitable(work) else work


async def _next(inner: AsyncIterator[R]) -> R:
    return await anext(inner)


async def _end(inner: Any) -> None:
    await inner.aclose()
