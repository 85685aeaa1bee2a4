"""The raw load: whole requests built beforehand, so that the broker is what is measured.

One plain socket, the same bytes again and again, `in_flight` requests unanswered at a time.
Every answer is checked: no error, and offsets that follow one another without a gap. The
answers of one run all have the same shape, so their fields are read at fixed places.
"""

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from bench.brokers import Broker
from bench.meter import Meter, Sample
from bench.wire import (
    Connection,
    Refused,
    batch,
    check_produced,
    decode,
    fill,
    frame,
    produce_request,
)

VALUE = bytes(range(256)) * 4  # 1 KiB
_INT = struct.Struct(">i")
_PRODUCED = struct.Struct(">hq")  # error code, base offset
_FETCHED = struct.Struct(">h8x8x8xi4xi")  # error code, aborted transactions, size of the records
_BATCH = struct.Struct(">qi")  # base offset, length


class Batch(NamedTuple):
    data: bytes
    records: int

    @property
    def payload(self) -> int:
        return self.records * len(VALUE)


def batch_of(size: int) -> Batch:
    """As many 1 KiB records as fit a batch of this size."""
    one, two = len(batch([VALUE])), len(batch([VALUE] * 2))
    records = 1 + (size - one) // (two - one)
    while len(data := batch([VALUE] * records)) > size:  # Varints grow with the count.
        records -= 1
    return Batch(data, records)


def produce(
    broker: Broker, topic: str, each: Batch, count: int, in_flight: int, offset: int = 0
) -> Sample:
    """Append `count` batches to partition 0, which ends at `offset`, with acks=1."""
    request = frame(produce_request(topic, [(0, each.data)], acks=1))
    burst = memoryview(request * in_flight)
    with broker.connect() as connection:
        answers = _Answers(connection, topic, each.records, offset)
        meter = Meter(broker.pid)
        sent = answered = 0
        while answered < count:
            room = min(in_flight - (sent - answered), count - sent)
            if room:
                connection.socket.sendall(burst[: room * len(request)])
                sent += room
            answered += answers.read()
        return meter.sample(count * each.records, count * each.payload)


class _Answers:
    """Reads Produce answers, as many as have come."""

    def __init__(self, connection: Connection, topic: str, records: int, offset: int) -> None:
        self._socket = connection.socket
        self._records = records
        self._offset = offset  # What the next answer must say.
        self._buffer = bytearray(1 << 16)
        self._held = 0
        # Size, correlation id, [topics: name, [partitions: index, then what _PRODUCED reads.
        self._at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
        # The rest: append time, log start, record errors, error message; then the throttle time.
        self._size = self._at + _PRODUCED.size + 8 + 8 + 4 + 2 + 4

    def read(self) -> int:
        view = memoryview(self._buffer)
        count = self._socket.recv_into(view[self._held :])
        if count == 0:
            raise Refused("the broker closed the connection")
        self._held += count
        whole = self._held // self._size
        for i in range(whole):
            start = i * self._size
            error, offset = _PRODUCED.unpack_from(self._buffer, start + self._at)
            if (
                error
                or offset != self._offset
                or _INT.unpack_from(view, start)[0] + 4 != self._size
            ):
                raise Refused(f"produce: error {error}, offset {offset}, not {self._offset}")
            self._offset += self._records
        rest = self._held - whole * self._size
        self._buffer[:rest] = self._buffer[self._held - rest : self._held]
        self._held = rest
        return whole


def fetch(broker: Broker, topic: str, each: Batch, count: int, bytes_max: int) -> Sample:
    """Read back `count` batches of partition 0 from the beginning, one request at a time."""
    with broker.connect() as connection:
        read = _fetcher(connection, topic, each, bytes_max)
        meter = Meter(broker.pid)
        batches = 0
        while batches < count:
            batches += read(batches * each.records)
        return meter.sample(batches * each.records, batches * each.payload)


def _fetcher(
    connection: Connection, topic: str, each: Batch, bytes_max: int
) -> Callable[[int], int]:
    """A function that fetches from an offset and says how many whole batches came."""
    marker = 0x0123456789ABCDEF
    request = bytearray(frame(_fetch_request(topic, marker, bytes_max)))
    offset_at = request.index(marker.to_bytes(8, "big"))
    source = connection.socket
    # Correlation id, throttle time, error, session, [topics: name, [partitions: index.
    at = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    records_at = at + _FETCHED.size
    buffer = bytearray(records_at + max(bytes_max, len(each.data)) + 1024)
    view = memoryview(buffer)

    def read(offset: int) -> int:
        struct.pack_into(">q", request, offset_at, offset)
        source.sendall(request)
        fill(source, view[:4])
        (size,) = _INT.unpack_from(buffer)
        fill(source, view[:size])
        error, aborted, length = _FETCHED.unpack_from(buffer, at)
        if error or aborted > 0 or length < len(each.data):
            raise Refused(f"fetch at {offset}: error {error}, {length} bytes")
        first, rest = _BATCH.unpack_from(buffer, records_at)
        if (first, rest) != (offset, len(each.data) - 12):
            raise Refused(f"fetch at {offset}: got a batch at {first} of {rest} bytes")
        return int(length // len(each.data))  # The last one may be cut.

    return read


class Tick:
    """Requests sent at once, each with batches for some partitions of a topic, acks=all."""

    def __init__(
        self, broker: Broker, topic: str, requests: Iterable[Sequence[tuple[int, bytes]]]
    ) -> None:
        self._requests = [produce_request(topic, each, acks=-1) for each in requests]
        self._frames = b"".join(frame(each) for each in self._requests)
        self._connection = broker.connect()

    def __enter__(self) -> "Tick":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.socket.close()

    def commit(self) -> float:
        """Milliseconds until it is acknowledged."""
        start = time.perf_counter()
        self._connection.socket.sendall(self._frames)
        answers = [self._connection.answer() for _ in self._requests]
        elapsed = time.perf_counter() - start
        for request, answer in zip(self._requests, answers, strict=True):
            check_produced(decode(request, answer))
        return elapsed * 1e3


def _fetch_request(topic: str, offset: int, bytes_max: int) -> FetchRequest:
    partition = FetchPartition(
        partition=i32(0), fetch_offset=i64(offset), partition_max_bytes=i32(bytes_max)
    )
    return FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(milliseconds=500)),
        min_bytes=i32(1),
        topics=(FetchTopic(topic=TopicName(topic), partitions=(partition,)),),
        forgotten_topics_data=(),
    )
