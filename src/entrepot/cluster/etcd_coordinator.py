"""etcd as the coordinator, through its JSON gateway, over our own connections.

A request has a connection to itself while it is answered; what is idle is used again. When an
endpoint fails, the next one is tried by the next call: a change is never sent twice, because
nobody knows whether the first was made. A watch is one answer that does not end. It asks to be
ended when its member has lost the others, and is begun anew, after the last revision it told,
when the connection breaks or says nothing for long: a peer that is cut off says nothing either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from entrepot.core import limits
from entrepot.core.coordinator import Change, Entry, Event, Expected, Lease, Snapshot
from entrepot.core.errors import (
    CoordinatorUnavailable,
    LeaseLost,
    MalformedFrame,
    RevisionCompacted,
)
from entrepot.core.ports import Link, Net
from entrepot.wire import etcd
from entrepot.wire.http.answer import AnswerReader, post

T = TypeVar("T")

_OK = 200
# etcd ends the watch when the member that serves it has no leader.
_NEEDS_LEADER = (("Grpc-Metadata-hasleader", "true"),)


class EtcdCoordinator:
    def __init__(self, net: Net, endpoints: Sequence[tuple[str, int]]) -> None:
        """Use these addresses, the first one first. Nothing is connected yet."""
        assert endpoints, "etcd has an address"
        self._net = net
        self._endpoints = endpoints
        self._current = 0
        self._idle: list[_Connection] = []
        self._streams: dict[_Connection, None] = {}
        self._slots = asyncio.Semaphore(limits.COORDINATOR_REQUESTS_MAX)
        self._is_closed = False

    # --- calls

    async def get(self, key: str, *, may_be_stale: bool = False) -> Entry | None:
        request = etcd.get_request(key, may_be_stale=may_be_stale)
        answer = await self._call(etcd.RANGE, request, etcd.RangeAnswer)
        return answer.kvs[0].entry() if answer.kvs else None

    async def range(self, prefix: str, *, may_be_stale: bool = False) -> Snapshot:
        request = etcd.range_request(prefix, may_be_stale=may_be_stale)
        answer = await self._call(etcd.RANGE, request, etcd.RangeAnswer)
        return Snapshot(answer.header.revision, [each.entry() for each in answer.kvs])

    async def commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        request = etcd.transaction_request(expected, changes)
        answer = await self._call(etcd.TRANSACTION, request, etcd.TransactionAnswer)
        return answer.header.revision if answer.succeeded else None

    async def grant(self, seconds: int) -> Lease:
        request = etcd.grant_request(seconds)
        answer = await self._call(etcd.GRANT, request, etcd.LeaseAnswer)
        return Lease(answer.ID, answer.TTL)

    async def keep_alive(self, lease: int) -> float:
        body = await self._ask(etcd.KEEP_ALIVE, etcd.lease_request(lease))
        try:
            answer = etcd.decode_streamed(body, etcd.LeaseAnswer)
        except MalformedFrame as error:
            raise CoordinatorUnavailable(str(error)) from None
        if isinstance(answer, etcd.ErrorAnswer):
            raise _error(answer)
        if answer.TTL <= 0:
            raise LeaseLost(f"there is no lease {lease}")
        return answer.TTL

    async def revoke(self, lease: int) -> None:
        try:
            await self._ask(etcd.REVOKE, etcd.lease_request(lease))
        except LeaseLost:
            return

    def watch(self, prefix: str, revision: int) -> _EtcdWatch:
        return _EtcdWatch(self, prefix, revision)

    def close(self) -> None:
        self._is_closed = True
        for connection in [*self._idle, *self._streams]:
            connection.abort("shutting down")

    # --- connections

    async def _call(self, path: str, body: bytes, kind: type[T]) -> T:
        try:
            return etcd.decode(await self._ask(path, body), kind)
        except MalformedFrame as error:
            raise CoordinatorUnavailable(str(error)) from None

    async def _ask(self, path: str, body: bytes) -> bytes:
        """Return the body of the answer to one request. Raises what is wrong."""
        async with self._slots:
            connection = await self._connected()
            try:
                async with asyncio.timeout(limits.COORDINATOR_ANSWER_MS / 1_000):
                    connection.send(path, body)
                    await connection.whole()
            except TimeoutError:
                connection.failure = "no answer"
                self._turn_away(connection)
                raise CoordinatorUnavailable(f"{connection.name} does not answer") from None
            except BaseException:
                self._turn_away(connection)
                raise
            status, answer = connection.reader.status, connection.reader.take_body()
            if connection.reader.keeps_alive and not self._is_closed:
                self._idle.append(connection)
            else:
                connection.abort("answered")
        if status != _OK:
            try:
                raise _error(etcd.decode(answer, etcd.ErrorAnswer))
            except MalformedFrame:
                raise CoordinatorUnavailable(f"{connection.name} answers {status}") from None
        return answer

    async def open_stream(self, path: str, body: bytes) -> _Connection:
        """Send a request whose answer does not end."""
        connection = await self._connected()
        self._streams[connection] = None
        connection.send(path, body, _NEEDS_LEADER)
        return connection

    def close_stream(self, connection: _Connection) -> None:
        self._streams.pop(connection, None)
        self._turn_away(connection)

    async def _connected(self) -> _Connection:
        if self._is_closed:
            raise CoordinatorUnavailable("the coordinator is closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.failure is None:
                return connection
        number = self._current
        host, port = self._endpoints[number]
        name = f"etcd at {host}:{port}"
        try:
            async with asyncio.timeout(limits.COORDINATOR_ANSWER_MS / 1_000):
                made: list[_Connection] = []

                def attach(link: Link) -> _Connection:
                    made.append(_Connection(link, name, number))
                    return made[0]

                await self._net.connect(host, port, attach)
        except (OSError, TimeoutError) as error:
            self._next_endpoint(number)
            reason = getattr(error, "strerror", None)
            raise CoordinatorUnavailable(f"{name}: {reason or 'no answer'}") from None
        return made[0]

    def _turn_away(self, connection: _Connection) -> None:
        """Close a connection; if it failed, the next call tries the next endpoint."""
        if connection.failure is not None:
            self._next_endpoint(connection.number)
        connection.abort("not used any more")

    def _next_endpoint(self, number: int) -> None:
        if self._current == number:
            self._current = (number + 1) % len(self._endpoints)
            for idle in self._idle:
                idle.abort("another endpoint is used")
            self._idle.clear()


class _Connection:
    """One connection to etcd: the receiver of its answers."""

    def __init__(self, link: Link, name: str, number: int) -> None:
        self._link = link
        self.name = name
        self.number = number  # Of the endpoint.
        self.reader = AnswerReader(limits.COORDINATOR_ANSWER_BYTES_MAX)
        self.failure: str | None = None
        self._news = asyncio.Event()  # Something has come, or the connection failed.

    def send(self, path: str, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.reader.begin()
        self._link.send([post(self._link.peer, path, body, headers)])

    async def whole(self) -> None:
        """Wait for the end of the answer. Raises CoordinatorUnavailable."""
        while not self.reader.is_whole:
            await self._wait()

    async def lines(self) -> list[bytes]:
        """Wait for lines of the answer, and return them. Raises CoordinatorUnavailable."""
        while True:
            if lines := self.reader.take_lines():
                return lines
            if self.reader.is_whole:
                self.failure = self.failure or "the stream has ended"
            await self._wait()

    async def _wait(self) -> None:
        if self.failure is not None:
            raise CoordinatorUnavailable(f"{self.name}: {self.failure}")
        self._news.clear()
        await self._news.wait()

    def abort(self, reason: str) -> None:
        self._link.abort(reason)

    # What the link calls.

    def writable(self) -> memoryview:
        return self.reader.writable()

    def received(self, size: int) -> None:
        try:
            self.reader.received(size)
        except MalformedFrame as error:
            self.failure = str(error)
            self._link.abort(self.failure)
        self._news.set()

    def drained(self) -> None:
        """Requests are small: nothing waits for the backlog."""

    def closed(self, reason: str) -> None:
        self.failure = self.failure or reason
        self._news.set()


class _EtcdWatch:
    def __init__(self, coordinator: EtcdCoordinator, prefix: str, revision: int) -> None:
        self._coordinator = coordinator
        self._prefix = prefix
        self._revision = revision  # The next one to be told.
        self._stream: _Connection | None = None

    async def next(self) -> list[Event]:
        while True:
            if self._stream is None:
                request = etcd.watch_request(self._prefix, self._revision)
                self._stream = await self._coordinator.open_stream(etcd.WATCH, request)
            try:
                async with asyncio.timeout(limits.COORDINATOR_SILENCE_MS / 1_000):
                    lines = await self._stream.lines()
                events = [event for line in lines for event in self._told(line)]
            except TimeoutError:
                self.close()
                continue
            except MalformedFrame as error:
                self.close()
                raise CoordinatorUnavailable(str(error)) from None
            except (CoordinatorUnavailable, RevisionCompacted):
                self.close()
                raise
            if events:
                self._revision = events[-1].revision + 1
                return events

    def _told(self, line: bytes) -> list[Event]:
        """Return the changes in one message of the stream. Raises what it says is wrong."""
        answer = etcd.decode_streamed(line, etcd.WatchAnswer)
        if isinstance(answer, etcd.ErrorAnswer):
            raise _error(answer)
        if answer.compact_revision:
            raise RevisionCompacted(f"changes up to revision {answer.compact_revision} are gone")
        if answer.canceled:
            raise CoordinatorUnavailable(f"etcd ended the watch: {answer.cancel_reason}")
        return [each.event() for each in answer.events]

    def close(self) -> None:
        if self._stream is not None:
            self._coordinator.close_stream(self._stream)
            self._stream = None


def _error(answer: etcd.ErrorAnswer) -> Exception:
    if answer.code == etcd.NOT_FOUND:
        return LeaseLost(answer.text)
    return CoordinatorUnavailable(f"etcd refuses: {answer.text}")
