"""The load: messages through a broker as fast as it takes them, for next to no work here.

What is published is a block of bytes built beforehand and sent again and again; what arrives is
counted by its bytes, and the last whole message of each read is compared with what it must be. A
subscriber of QoS 1 acknowledges each message by its identifier. So one thread of Python can do
more than a million messages a second, and the broker is what is measured.

No more than `WINDOW` messages are on their way: published and not with every subscriber, or
published and not answered. Brokers drop messages for subscribers that are far behind.
"""

import itertools
import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.meter import Meter, Sample
from bench.mqtt_wire import ACK_BYTES, IDS, MQTT, PUBACK, Language
from bench.wire import TIMEOUT_S, Refused

WINDOW = 1_000
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Load:
    """Messages of one publisher to some subscribers, who all get all of them."""

    count: int
    body: bytes
    topics: Sequence[str] = ("bench/load/0",)  # Published to in turn; all equally long.
    filters: Sequence[str] = ("bench/load/0",)
    qos: int = 0
    subscribers: int = 1
    durable: bool = False  # Sessions that outlive their connections.
    language: Language = field(default=MQTT)

    @property
    def delivery_bytes(self) -> int:
        return self.language.delivery_bytes(self.topics[0], self.body, self.qos, self.filters)


class Publisher:
    """Sends the same messages again and again, and counts the answers."""

    def __init__(self, connected: socket.socket, load: Load) -> None:
        self._socket = connected
        topics, language = itertools.cycle(load.topics), load.language
        messages = [
            language.publication(topic, load.body, load.qos, number)
            for number, topic in zip(range(1, IDS + 1), topics, strict=False)
        ]
        self._block = memoryview(b"".join(messages))
        self._size = len(messages[0])
        self._bytes = 0  # Sent.
        self._count = load.count
        self._answer_bytes = language.answer_bytes(load.qos, load.subscribers)
        self._answered_bytes = 0
        self._aside = language.aside
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, most: int) -> bool:
        """Go on until so many are sent in all. False means: the socket takes no more."""
        end = min(most, self._count) * self._size
        while self._bytes < end:
            at = self._bytes % len(self._block)
            try:
                self._bytes += self._socket.send(self._block[at : at + end - self._bytes])
            except BlockingIOError:
                return False
        return True

    @property
    def answered(self) -> int:
        return self._answered_bytes // self._answer_bytes if self._answer_bytes else self._count

    def hear(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if data and data == self._aside:
            return
        if not data or not self._answer_bytes:
            raise Refused(f"the broker hung up on the publisher, or said {data[:100]!r}")
        self._answered_bytes += len(data)


class Subscriber:
    """Counts messages, and acknowledges each if they are of QoS 1."""

    def __init__(self, connected: socket.socket, load: Load) -> None:
        self._socket = connected
        self._size = load.delivery_bytes
        self._end = load.body[-32:] + load.language.tail  # What a message ends with.
        self._id_at = self._size - len(load.body) - 2 if load.qos else None
        self._area = bytearray(READ_BYTES)
        self._view = memoryview(self._area)
        self._aside = load.language.aside
        self._rest = 0  # Bytes of an incomplete message, at the beginning of the area.
        self._acks = b""  # To be sent.
        self.received = 0
        connected.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def hear(self) -> None:
        size = self._socket.recv_into(self._view[self._rest :])
        if not size:
            raise Refused("the broker hung up on a subscriber")
        filled, whole_size = self._without_aside(self._rest + size), self._size
        count = filled // whole_size
        end = count * whole_size
        if count:
            last = self._area[end - len(self._end) : end]
            if last != self._end:
                raise Refused(f"message {self.received + count} ends with {bytes(last)!r}")
            if self._id_at is not None:
                self._acknowledge(self._id_at, count, end)
        self._rest = filled - end
        if self._rest:
            self._area[: self._rest] = self._area[end:filled]
        self.received += count

    def _without_aside(self, filled: int) -> int:
        """Take out what is not a message; return how many bytes there are then."""
        at = self._area.find(self._aside, 0, filled) if self._aside else -1
        if at < 0:
            return filled
        end = at + len(self._aside)
        self._area[at : filled - len(self._aside)] = self._area[end:filled]
        return filled - len(self._aside)

    def _acknowledge(self, id_at: int, count: int, end: int) -> None:
        acks = bytearray(ACK_BYTES * count)
        acks[0::ACK_BYTES] = bytes((PUBACK,)) * count
        acks[1::ACK_BYTES] = bytes((2,)) * count
        acks[2::ACK_BYTES] = self._area[id_at : end : self._size]
        acks[3::ACK_BYTES] = self._area[id_at + 1 : end : self._size]
        self._acks += acks
        self.answer()

    def answer(self) -> bool:
        """Send acknowledgements. False means: the socket takes no more."""
        while self._acks:
            try:
                self._acks = self._acks[self._socket.send(self._acks) :]
            except BlockingIOError:
                return False
        return True


def through(port: int, pid: int, load: Load, name: str) -> Sample:
    """Messages in at one end and out at the other; the rate is that of deliveries."""
    language = load.language
    sockets = []
    try:
        for number in range(load.subscribers):
            connected = language.connect(port, f"{name}-{number:03}", durable=load.durable)
            language.subscribe(connected, load.filters, load.qos)
            sockets.append(connected)
        subscribers = [Subscriber(each, load) for each in sockets]
        sockets.append(language.connect(port, f"{name}-publisher"))
        publisher = Publisher(sockets[-1], load)
        meter = Meter(pid)
        pump(publisher, subscribers, load.count)
        deliveries = load.count * load.subscribers
        return meter.sample(deliveries, deliveries * len(load.body))
    finally:
        for each in sockets:
            each.close()
        if load.durable:  # A clean session deletes the old one.
            for number in range(load.subscribers):
                language.connect(port, f"{name}-{number:03}").close()


def pump(publisher: Publisher, subscribers: Sequence[Subscriber], count: int) -> None:
    """Until all is published, answered and delivered."""
    peers: dict[int, Publisher | Subscriber] = {each.fileno(): each for each in subscribers}
    peers[publisher.fileno()] = publisher
    poll = select.epoll()
    for number in peers:
        poll.register(number, select.EPOLLIN)
    stuck: set[int] = set()  # Those whose sockets take no more.
    while True:
        done = min([publisher.answered, *[each.received for each in subscribers]])
        is_done = done >= count
        now = {each.fileno() for each in subscribers if not each.answer()}
        if not publisher.send(done + WINDOW):
            now.add(publisher.fileno())
        if is_done and not now:
            return
        for number in now ^ stuck:
            poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if number in now else 0))
        stuck = now
        ready = poll.poll(TIMEOUT_S)
        if not ready:
            raise Refused(f"nothing came for {TIMEOUT_S} s; {done} of {count} are through")
        for number, events in ready:
            if events & ~select.EPOLLOUT:
                peers[number].hear()
