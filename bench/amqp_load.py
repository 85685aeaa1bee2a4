"""The load: messages through a broker as fast as it takes them, for next to no work here.

What is published is a block of bytes built beforehand and sent again and again; what is
delivered is counted, not read: all deliveries of a run are equally long, so the bytes that
came say how many they were. That the count is right is checked with every read, by the tag
of the last delivery in it. Acknowledgements are one frame for each message, as clients send
them, built beforehand too. So one thread of Python can do more than a million messages a
second, and the broker is what is measured.

No more than `WINDOW` messages are on their way: published and not delivered, or published and
not confirmed. A broker that lets queues grow would otherwise look fast for a while.
"""

import itertools
import select
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.amqp_wire import (
    ACK,
    ACK_FRAME,
    BODY,
    DELIVER,
    ENVELOPE_BYTES,
    FRAME_HEAD,
    HEADER,
    METHOD,
    Acknowledgements,
    Connection,
    complaint,
    read_method,
)
from bench.brokers import Broker
from bench.meter import Meter, Sample
from bench.wire import TIMEOUT_S, Refused

WINDOW = 10_000
PREFETCH = 200
BLOCK_MESSAGES = 250  # In a block that is sent at once.
READ_BYTES = 1 << 20
TAG = "{:03}"  # Of a consumer: all equally long, for their deliveries must be.
TAG_AT = FRAME_HEAD.size + 4 + 1 + len(TAG.format(0))  # Of the delivery tag in a delivery.


@dataclass(frozen=True, slots=True)
class Kind:
    """How messages travel."""

    name: str
    durable: bool  # A durable queue, persistent messages, confirms.
    auto_ack: bool  # Otherwise each is acknowledged, and PREFETCH are out at most.


TRANSIENT = Kind("transient, auto-ack", durable=False, auto_ack=True)
DURABLE = Kind("durable, confirms, acks", durable=True, auto_ack=False)


class Publisher:
    """Sends the same messages again and again, and counts confirms when they were asked for."""

    def __init__(
        self, connection: Connection, messages: Sequence[bytes], count: int, confirms: bool
    ) -> None:
        self._socket = connection.socket
        self._block = memoryview(b"".join(messages))
        self._ends = list(itertools.accumulate(map(len, messages)))  # In the block.
        self._at = 0  # Bytes of the block that is being sent.
        self._sent = 0  # Messages, in whole blocks.
        self.count = count
        self.confirms = confirms
        if confirms:
            connection.confirm()
        self._rest = connection.left_over()
        self._confirmed_end = 1
        self._confirmed_later: set[int] = set()  # Tags after that one.
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_sent_all(self) -> bool:
        return self._sent >= self.count

    def send(self, most: int) -> bool:
        """Go on until so many are out in all; False when the socket takes no more."""
        while self._sent < min(most, self.count):
            size = min(len(self._ends), self.count - self._sent)
            end = self._ends[size - 1]
            try:
                self._at += self._socket.send(self._block[self._at : end])
            except BlockingIOError:
                return False
            if self._at == end:
                self._sent += size
                self._at = 0
        return True

    @property
    def confirmed(self) -> int:
        return self._confirmed_end - 1 + len(self._confirmed_later)

    def hear(self) -> None:
        """Read what came: confirms, or why there will be none."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise Refused("the broker hung up on the publisher")
        data = self._rest + data
        whole = len(data) - len(data) % ACK_FRAME.size
        self._rest = data[whole:]
        for kind, _, _, class_id, method_id, tag, flags, _ in ACK_FRAME.iter_unpack(data[:whole]):
            if kind != METHOD or (class_id, method_id) != ACK:
                raise Refused(complaint(read_method(data[FRAME_HEAD.size :])))
            if flags & 1 or tag == self._confirmed_end:
                self._confirm(tag + 1)
            else:
                self._confirmed_later.add(tag)

    def _confirm(self, end: int) -> None:
        """All below the end are, and those after it that were confirmed before their turn."""
        later = self._confirmed_later
        end = max(end, self._confirmed_end)
        while end in later:
            end += 1
        self._confirmed_end = end
        if later:
            self._confirmed_later = {tag for tag in later if tag > end}


class Subscriber:
    """Counts deliveries, and acknowledges each when that was asked for."""

    def __init__(self, connection: Connection, queues: Sequence[str], auto_ack: bool) -> None:
        """Consumes at once."""
        if not auto_ack:
            connection.prefetch(PREFETCH)
        self._auto_ack = auto_ack
        self._acks = Acknowledgements()
        self._acked = 0
        self._part = 0  # Bytes of the next one that are sent already.
        self._connection = connection
        self._socket = connection.socket
        self._area = bytearray(READ_BYTES)
        self._size = 0  # Of a delivery. Until the first has come nobody knows.
        self._bytes = 0
        self.received = 0
        for number, queue in enumerate(queues):
            connection.consume(queue, TAG.format(number), auto_ack)

    def fileno(self) -> int:
        return self._socket.fileno()

    def begin(self) -> None:
        """Wait for the first delivery and read it frame by frame: the others are as long."""
        frames = [self._connection.frame() for _ in range(3)]
        found = read_method(frames[0][1])
        if [kind for kind, _ in frames] != [METHOD, HEADER, BODY] or found.id != DELIVER:
            raise Refused(complaint(found))
        self._size = sum(ENVELOPE_BYTES + len(payload) for _, payload in frames)
        self._bytes = self._size + len(self._connection.left_over())
        self.received = self._bytes // self._size
        self._socket.setblocking(False)

    def hear(self) -> None:
        try:
            size = self._socket.recv_into(self._area)
        except BlockingIOError:
            return
        if not size:
            raise Refused("the broker hung up on the consumer")
        before, self._bytes = self._bytes, self._bytes + size
        self.received = self._bytes // self._size
        at = (self.received - 1) * self._size + TAG_AT - before
        if at >= 0:  # The tag of the last whole delivery is in what came.
            found = struct.unpack_from(">Q", self._area, at)[0]
            if found != self.received:
                raise Refused(f"delivery {self.received} has the tag {found}")

    @property
    def has_answered(self) -> bool:
        return self._auto_ack or self._acked == self.received

    def answer(self) -> bool:
        """Acknowledge all that has come; False when the socket takes no more."""
        while not self.has_answered:
            acks = self._acks.of(self._acked + 1, self.received + 1)[self._part :]
            try:
                self._part += self._socket.send(acks)
            except BlockingIOError:
                return False
            whole, self._part = divmod(self._part, ACK_FRAME.size)
            self._acked += whole
        return True

    def settle(self) -> None:
        """Wait until the broker has taken all acknowledgements: it answers what came after."""
        if not self._auto_ack:
            self._socket.settimeout(TIMEOUT_S)
            self._connection.prefetch(PREFETCH)


def pump(
    publisher: Publisher | None, subscriber: Subscriber | None, deliveries: int, copies: int = 1
) -> None:
    """Until all is published, confirmed, delivered and acknowledged.

    Without a publisher the queue is full already; without a subscriber it is being filled.
    A message is delivered `copies` times.
    """
    peers = {peer.fileno(): peer for peer in (publisher, subscriber) if peer is not None}
    interest = dict.fromkeys(peers, 0)
    poll = select.poll()
    while True:
        wanted = dict.fromkeys(peers, select.POLLIN)
        if publisher is not None and not publisher.send(_allowed(publisher, subscriber, copies)):
            wanted[publisher.fileno()] |= select.POLLOUT
        if subscriber is not None and not subscriber.answer():
            wanted[subscriber.fileno()] |= select.POLLOUT
        if _is_over(publisher, subscriber, deliveries):
            break
        if wanted != interest:
            for number, events in wanted.items():
                poll.register(number, events)
            interest = wanted
        ready = poll.poll(TIMEOUT_S * 1_000)
        if not ready:
            raise Refused(f"nothing came for {TIMEOUT_S} s")
        for number, events in ready:
            if events & ~select.POLLOUT:
                peers[number].hear()
    if subscriber is not None:
        subscriber.settle()


def _is_over(publisher: Publisher | None, subscriber: Subscriber | None, deliveries: int) -> bool:
    if publisher is not None and not (
        publisher.has_sent_all
        and (not publisher.confirms or publisher.confirmed >= publisher.count)
    ):
        return False
    return subscriber is None or (subscriber.received >= deliveries and subscriber.has_answered)


def _allowed(publisher: Publisher, subscriber: Subscriber | None, copies: int) -> int:
    """How many may have been published by now."""
    done = [publisher.count]
    if publisher.confirms:
        done.append(publisher.confirmed)
    if subscriber is not None:
        done.append(subscriber.received // copies)
    return min(done) + WINDOW


def through(
    broker: Broker,
    kind: Kind,
    queues: Sequence[str],
    messages: Sequence[bytes],
    count: int,
    size: int,
) -> Sample:
    """Messages in at one end and out at the other; the rate is that of deliveries."""
    copies = len(queues)
    with broker.amqp() as incoming, broker.amqp() as outgoing:
        publisher = Publisher(incoming, messages, count, kind.durable)
        subscriber = Subscriber(outgoing, queues, kind.auto_ack)
        meter = Meter(broker.pid)
        publisher.send(WINDOW)
        subscriber.begin()
        pump(publisher, subscriber, count * copies, copies)
        sample = meter.sample(count * copies, count * copies * size)
    expect_empty(broker, queues)
    return sample


def fill(broker: Broker, message: bytes, count: int, size: int) -> Sample:
    """A durable queue, until all is confirmed."""
    with broker.amqp() as incoming:
        publisher = Publisher(incoming, [message] * BLOCK_MESSAGES, count, confirms=True)
        meter = Meter(broker.pid)
        pump(publisher, None, 0)
        return meter.sample(count, count * size)


def drain(broker: Broker, queue: str, count: int) -> float:
    """A queue that holds so many, until all are acknowledged; the seconds it took."""
    with broker.amqp() as outgoing:
        start = time.perf_counter()
        subscriber = Subscriber(outgoing, [queue], auto_ack=False)
        subscriber.begin()
        pump(None, subscriber, count)
        elapsed = time.perf_counter() - start
    expect_empty(broker, [queue])
    return elapsed


def expect_empty(broker: Broker, queues: Sequence[str]) -> None:
    """With the consumer gone, what it had not acknowledged would be back."""
    with broker.amqp() as connection:
        for queue in queues:
            left = connection.count(queue)
            if left:
                raise Refused(f"{left} messages are left in {queue}")
