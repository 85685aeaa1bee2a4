"""Tuple spaces: write, read and take by example, for processes that know nothing of each other.

A space is a state that all clients keep alike (see `replica`): the tuples that were written and not
taken. A write is a record, and so is a take: it names the tuple, and of several takes of one tuple
the first in the log gets it. So no tuple is taken twice, whoever dies when, and what was written is
there after any crash. Whoever dies between a take and its result has taken the tuple with it.

A tuple may have a lease; when that is over, it is gone. Whether it was over is judged by the time
of the take's record, by all alike.

A space may have several partitions, led by different nodes. A client reads those in which it has
written or looked for something, and no others.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.replica import COMPACTED, Replica, text_headers
from entrepot.client.messaging.space_transactions import TIMEOUT_MS, Conflict, SpaceTransaction
from entrepot.client.messaging.templates import (
    Held,
    Tuple,
    Written,
    keys_of,
    matches,
    place_of,
    places_of,
)
from entrepot.client.messaging.topics import Entry, TopicVerbs
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.record import Record

if TYPE_CHECKING:
    from entrepot.client.transaction_writer import TransactionWriter

TUPLES_MAX = 1_000_000  # Of a space: every client holds all of them.
FIELDS_MAX = 100
PARTITIONS_MAX = 1_000
CHOSEN_FROM, CHOSEN_FROM_MAX = 8, 4_096  # Several takers shall not all want the same tuple.
_ID_BYTES = 12
_TAKER, _EXPIRES = "space-taker", "space-expires-ms"
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_RENEWS, _WAS = "space-renews", "space-expired-ms"  # Which tuple's lease, and how long it was.


class Space:
    """A space of tuples. Made by `AsyncClient.space`."""

    def __init__(self, verbs: TopicVerbs, name: str, partitions: int) -> None:
        """`partitions` is how many there are, if the space is made here."""
        self.name = name
        self.partitions = partitions
        self._verbs = verbs
        self._taker = SystemEntropy().token(_ID_BYTES).hex()
        self._clock = SystemClock()
        self._entropy = SystemEntropy()
        self._tuples: dict[str, Held] = {}
        self._shapes: dict[object, dict[str, Held]] = {}  # By length, and by first field.
        self._waiting: dict[asyncio.Future[None], Tuple] = {}
        self._watchers: dict[Watch, None] = {}
        self._replicas: dict[int, Replica] = {}  # Of the partitions that were read to their end.
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._chosen_from = CHOSEN_FROM
        self._written = 0  # How many tuples got an id.
        self.topic = f"space.{name}"
        self.writers: list[TransactionWriter] = []  # That are free.
        self._writer_count = 0

    def __len__(self) -> int:
        """Return how many tuples are in the partitions that this client reads."""
        return len(self._tuples)

    @property
    def places(self) -> list[int]:
        """Return the partitions that this client reads."""
        return sorted(self._replicas)

    async def start(self) -> None:
        """Make the space, unless it is there; read it, if it has one partition."""
        from entrepot.client.admin import Admin, NewTopic

        client, topic = await self._verbs.kafka(), self.topic
        wanted = NewTopic(topic, self.partitions, settings=COMPACTED)
        await Admin(client).ensure_topic(wanted)
        self.partitions = len((await client.topic(topic, create=True)).partitions)
        if self.partitions == 1:
            await self.read_up([0])

    async def read_up(self, places: list[int]) -> None:
        """Begin to follow partitions, and return when all that was in them is here."""
        for place in places:
            if place in self._replicas:
                continue
            if place not in self._starting or self._starting[place].done():
                self._starting[place] = asyncio.create_task(self._follow(place))
            await asyncio.shield(self._starting[place])  # Whoever waits may have no more time.

    async def _follow(self, place: int) -> None:
        replica = Replica(
            self._verbs, self.topic, self._apply, partition=place, partitions=self.partitions
        )
        await replica.start()
        self._replicas[place] = replica

    # --- the verbs

    async def write(self, *fields: Any, lease_s: float | None = None) -> Written:
        """Put a tuple into the space; with a lease, for so long. It is on disk when this returns.

        Raises ClientError for what JSON cannot say, and when the space is full.
        """
        held, record = self.made(fields, lease_s)
        await self.read_up([held.place])
        await self._replicas[held.place].change(record)
        return Written(held.id, fields)

    async def read(self, *template: Any, timeout_s: float | None = None) -> Tuple:
        """Return a tuple that matches, and leave it there; wait for one if there is none.

        Raises TimeoutError; at once, with a time of 0.
        """
        return (await self.found(template, timeout_s)).value

    async def take(self, *template: Any, timeout_s: float | None = None) -> Tuple:
        """Take a tuple that matches out of the space: nobody else gets it. See `read`."""
        async with asyncio.timeout(timeout_s if timeout_s != 0 else None):
            while not await self._claim((held := await self._found(template, timeout_s)).id):
                # Somebody else was faster: take others next time.
                self._chosen_from = min(2 * self._chosen_from, CHOSEN_FROM_MAX)
            self._chosen_from -= (self._chosen_from - CHOSEN_FROM) // 32
            return held.value

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SpaceTransaction]:
        """Write, read and take as one: when the block ends; if it raises, nothing has happened.

        Raises Conflict if somebody else was faster to take what was read or taken: then nothing has
        happened, either. Raises ClientError if the connection breaks; if that was while it was
        being committed, it may have happened.
        """
        made = SpaceTransaction(self)
        try:
            yield made
            await made.commit()
        except Conflict:
            self._chosen_from = min(2 * self._chosen_from, CHOSEN_FROM_MAX)
            raise
        finally:
            made.end()

    async def renew(self, written: Written, lease_s: float) -> bool:
        """Have a lease end so long from now, and not before. False means: it is over, or somebody
        has taken the tuple."""
        held = self._tuples.get(written.id)
        if held is None or held.expires_ms is None:
            return held is not None
        until_ms = self._clock.now_ms() + round(lease_s * 1000)
        headers = (
            (_RENEWS, held.id.encode()),
            (_WAS, str(held.expires_ms).encode()),
            (_EXPIRES, str(until_ms).encode()),
        )
        # Of the renewals of a tuple the topic keeps the last, which must tell all alone.
        record = Record(_renewal_key(held.id), b"{}", headers)
        return await self._replicas[held.place].change(record) is not None

    async def cancel(self, written: Written) -> bool:
        """Take back what was written. False means: somebody has taken it, or its lease is over."""
        return written.id in self._tuples and await self._claim(written.id)

    def notify(self, callback: Callable[[Tuple], Any], *template: Any) -> Watch:
        """Call a function with each matching tuple that is written from now on, in the partitions
        that this client reads."""
        watch = Watch(self._watchers, callback, template)
        self._watchers[watch] = None
        return watch

    # --- for transactions, too

    def made(self, fields: Tuple, lease_s: float | None) -> tuple[Held, Record]:
        """Return a new tuple, and the record that writes it. Raises ClientError."""
        if not 0 < len(fields) <= FIELDS_MAX:
            raise ClientError(f"a tuple has 1 to {FIELDS_MAX} fields")
        if len(self._tuples) >= TUPLES_MAX:
            raise ClientError(f"space '{self.name}' has {TUPLES_MAX} tuples, and takes no more")
        try:
            body = _ENCODER.encode(fields).encode()
        except (TypeError, ValueError) as error:
            raise ClientError(f"a tuple has fields that JSON can say: {error}") from None
        headers: tuple[tuple[str, bytes], ...] = ()
        expires_ms = None
        if lease_s is not None:
            expires_ms = self._clock.now_ms() + round(lease_s * 1000)
            headers = ((_EXPIRES, str(expires_ms).encode()),)
        id = self._new_id()
        held = Held(id, place_of(fields, self.partitions), fields, expires_ms)
        return held, Record(id.encode(), body, headers)

    async def found(self, template: Tuple, timeout_s: float | None) -> Held:
        """Return a tuple that matches, which stays; wait for one. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s if timeout_s != 0 else None):
            return await self._found(template, timeout_s)

    async def _found(self, template: Tuple, timeout_s: float | None) -> Held:
        await self.read_up(places_of(template, self.partitions))
        while (held := self._find(template)) is None:
            await self._wait(template, timeout_s)
        return held

    def takes(self, held: Held) -> list[Record]:
        """Return the records that take a tuple."""
        record = Record(held.id.encode(), None, ((_TAKER, self._taker.encode()),))
        return [record, Record(_renewal_key(held.id), None)] if held.is_renewed else [record]

    def nothing(self) -> Record:
        """Return a record that changes nothing, of which the topic keeps one for each client."""
        return Record(f"look/{self._taker}".encode(), None)

    def has(self, held: Held) -> bool:
        """Return whether a tuple is in the space, and its lease not over."""
        return held.id in self._tuples and not _is_over(held, self._clock.now_ms())

    def replica(self, place: int) -> Replica:
        return self._replicas[place]

    async def writer(self) -> TransactionWriter:
        """Return what writes a transaction: one that is free, or a new one."""
        from entrepot.client.transaction_writer import TransactionWriter
        from entrepot.client.transactions import Transactions

        if self.writers:
            return self.writers.pop()
        self._writer_count += 1
        client, id = await self._verbs.kafka(), f"{self.topic}.{self._taker}.{self._writer_count}"
        opened = await Transactions(client).take(id, timeout_ms=TIMEOUT_MS)
        return TransactionWriter(client, self._clock, opened)

    # --- how

    async def _claim(self, id: str) -> bool:
        """Append a take; return whether it is the first of this tuple."""
        held = self._tuples[id]
        self.unfile(held)  # Nobody else here shall try to take it.
        try:
            replica = self._replicas[held.place]
            is_ours = await replica.change(self.takes(held)[0], self._give_back) is not None
            if is_ours and held.is_renewed:
                await replica.change(Record(_renewal_key(id), None))
            return is_ours
        except ClientError:  # Nobody knows; whoever tries next will see.
            self.file_again(held)
            raise

    def _give_back(self, held: object) -> None:
        """Write a tuple again that was taken for somebody whose time was over."""
        if isinstance(held, Held):
            headers: tuple[tuple[str, bytes], ...] = ()
            if held.expires_ms is not None:
                headers = ((_EXPIRES, str(held.expires_ms).encode()),)
            body, id = _ENCODER.encode(held.value).encode(), self._new_id()
            replica = self._replicas[held.place]
            again = asyncio.ensure_future(replica.change(Record(id.encode(), body, headers)))
            again.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _find(self, template: Tuple) -> Held | None:
        """Return one of the first tuples that match and that nobody here is taking."""
        now_ms, among = self._clock.now_ms(), self._candidates(template)
        first = self._entropy.below(min(self._chosen_from, len(among))) if among else 0
        for held in chain(islice(among.values(), first, None), islice(among.values(), first)):
            if not _is_over(held, now_ms) and matches(template, held.value):
                return held
        return None

    def _candidates(self, template: Tuple) -> dict[str, Held]:
        first = template[0] if template else None
        key: object = len(template)
        if isinstance(first, str | int | float):
            key = len(template), first
        return self._shapes.get(key, {})

    async def _wait(self, template: Tuple, timeout_s: float | None) -> None:
        """Return when a tuple that matches was written, or a taker of ours was late."""
        if timeout_s == 0:
            raise TimeoutError("nothing matches")
        for place in places_of(template, self.partitions):
            if (failure := self._replicas[place].failure) is not None:
                raise failure
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[wake] = template
        try:
            await wake
        finally:
            self._waiting.pop(wake, None)

    def _apply(self, entry: Entry) -> object:
        """Apply a record. Of a take, return the tuple that it gets, or None."""
        headers = text_headers(entry) if entry.headers else {}
        id = (entry.key or b"").decode("utf-8", "replace")
        if _TAKER in headers:
            held = self._remove(id)
            is_over = held is not None and _is_over(held, entry.timestamp_ms)
            return None if is_over else held
        if _RENEWS in headers:
            return self._renew(headers, entry.timestamp_ms)
        try:
            value = tuple(json.loads(entry.body.decode()))
            expires_ms = int(headers[_EXPIRES]) if _EXPIRES in headers else None
        except (ValueError, TypeError):
            return None  # Somebody wrote something else there.
        if value and id not in self._tuples:
            self._add(Held(id, entry.partition, value, expires_ms))
        return None

    def _add(self, held: Held) -> None:
        self._tuples[held.id] = held
        self._file(held)
        if held.expires_ms is not None:
            self._end_in_time(held)
        self._wake(held)
        for watch in list(self._watchers) if held.place in self._replicas else ():
            watch.tell(held.value)  # Not of what had been there before we came.

    def _wake(self, held: Held) -> None:
        for wake, template in self._waiting.items():
            if not wake.done() and matches(template, held.value):
                wake.set_result(None)

    def _renew(self, headers: Mapping[str, str], now_ms: int) -> Held | None:
        held = self._tuples.get(headers[_RENEWS])
        try:
            was_ms, until_ms = int(headers[_WAS]), int(headers[_EXPIRES])
        except (KeyError, ValueError):
            return None
        if held is None or held.expires_ms is None or was_ms <= now_ms:
            return None
        held.is_renewed = True
        if until_ms > held.expires_ms:
            held.expires_ms = until_ms
            self._end_in_time(held)
        return held

    def _end_in_time(self, held: Held) -> None:
        """Remove a tuple when its lease is over, unless that is renewed."""
        assert held.expires_ms is not None
        left_s = (held.expires_ms - self._clock.now_ms()) / 1000
        due = max(0.0, left_s) + 1
        asyncio.get_running_loop().call_later(due, self._expire, held, held.expires_ms)

    def _expire(self, held: Held, expires_ms: int) -> None:
        if held.expires_ms == expires_ms:
            self._remove(held.id)

    def _remove(self, id: str) -> Held | None:
        held = self._tuples.pop(id, None)
        if held is not None:
            self.unfile(held)
        return held

    def _file(self, held: Held) -> None:
        held.is_filed = True
        for key in keys_of(held.value):
            self._shapes.setdefault(key, {})[held.id] = held

    def file_again(self, held: Held) -> None:
        """Have it found again, if it is still there."""
        if held.id in self._tuples:
            self._file(held)
            self._wake(held)

    def unfile(self, held: Held) -> None:
        """Have it found no more. Without effect if it is not."""
        if not held.is_filed:
            return
        held.is_filed = False
        for key in keys_of(held.value):
            among = self._shapes[key]
            del among[held.id]
            if not among:
                del self._shapes[key]

    def _new_id(self) -> str:
        self._written += 1
        return f"{self._taker}-{self._written}"


class Watch:
    """The handle of a notification."""

    def __init__(
        self, among: dict[Watch, None], callback: Callable[[Tuple], Any], template: Tuple
    ) -> None:
        self._among = among
        self._callback = callback
        self._template = template
        self._running: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Call it no more."""
        self._among.pop(self, None)

    def tell(self, value: Tuple) -> None:
        if matches(self._template, value):
            task = asyncio.get_running_loop().create_task(self._call(value))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _call(self, value: Tuple) -> None:
        result = self._callback(value)
        if inspect.isawaitable(result):
            await result


class SpaceVerbs(TopicVerbs):
    """The part of a client that is about tuple spaces."""

    async def space(self, name: str, *, partitions: int = 1) -> Space:
        """Return a space, made if there is none: then it has so many partitions."""
        if not 0 < partitions <= PARTITIONS_MAX:
            raise ClientError(f"a space has 1 to {PARTITIONS_MAX} partitions")
        made = Space(self, name, partitions)
        await made.start()
        return made


def _is_over(held: Held, now_ms: int) -> bool:
    return held.expires_ms is not None and held.expires_ms <= now_ms


def _renewal_key(id: str) -> bytes:
    return f"lease/{id}".encode()
