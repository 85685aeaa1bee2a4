"""One broker as a case sees it: connections, names of its own, and what was observed.

A case does things on a stage and says what a client sees of them. The same case is run on
the stages of two brokers, and what was seen has to be equal. So everything that may differ
and means nothing is made alike here: names that the broker made up, and times that are now.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker
from raw import Raw

SOON_S = 10.0  # What should happen has happened by then, on a busy machine too.
MADE_UP = re.compile(r"amq\.(gen|ctag)-[\w-]+")
TAG = re.compile(r"ctag\d+\.[0-9a-f]+")


class Stage:
    def __init__(self, host: str, port: int, prefix: str) -> None:
        self.host, self.port = host, port
        self._prefix = prefix
        self._connections: list[pika.BlockingConnection] = []
        self._raws: list[Raw] = []
        self._queues: list[str] = []
        self._exchanges: list[str] = []
        self.seen: list[tuple[str, object]] = []
        self.connection = self.connect()
        told = self.connection._impl.server_properties
        self.product = f"{told.get('product')} {told.get('version')}"
        self.channel = self.connection.channel()

    @property
    def is_old(self) -> bool:
        """RabbitMQ before 4. Where they differ we follow the newer."""
        return self.product.startswith("RabbitMQ 3.")

    # Peers.

    def connect(self, **parameters: object) -> pika.BlockingConnection:
        parameters = {"heartbeat": 0, "blocked_connection_timeout": SOON_S, **parameters}
        made = pika.BlockingConnection(
            pika.ConnectionParameters(self.host, self.port, **parameters)
        )
        self._connections.append(made)
        return made

    def open(self) -> BlockingChannel:
        """Another channel, on the connection that the stage has."""
        if not self.connection.is_open:
            self.connection = self.connect()
        return self.connection.channel()

    def raw(self) -> Raw:
        self._raws.append(Raw(self.host, self.port))
        return self._raws[-1]

    def reopen(self) -> None:
        """The broker closed the stage's own channel, or its connection."""
        if not self.channel.is_open:
            self.channel = self.open()

    # Things.

    def name(self, short: str) -> str:
        return f"{self._prefix}-{short}"

    def queue(self, short: str = "q", arguments: Mapping | None = None, **facts: bool) -> str:
        name = self.name(short)
        self._queues.append(name)
        self.channel.queue_declare(name, arguments=dict(arguments or {}), **facts)
        return name

    def exchange(self, short: str = "x", kind: str = "direct", **facts: object) -> str:
        name = self.name(short)
        self._exchanges.append(name)
        self.channel.exchange_declare(name, kind, **facts)
        return name

    def publish(self, key: str, *bodies: str, exchange: str = "", **properties: object) -> None:
        """And wait until the broker has them: a passive declaration is answered after them."""
        for body in bodies:
            made = pika.BasicProperties(**properties)
            self.channel.basic_publish(exchange, key, body.encode(), made)
        self.channel.exchange_declare("amq.direct", passive=True)

    def get(self, queue: str, auto_ack: bool = True) -> tuple | None:
        """Method, properties, body."""
        method, properties, body = self.channel.basic_get(queue, auto_ack)
        return None if method is None else (method, properties, body.decode())

    def drain(self, queue: str) -> list[str]:
        bodies = []
        while (got := self.get(queue)) is not None:
            bodies.append(got[2])
        return bodies

    def count(self, queue: str) -> int:
        return self.channel.queue_declare(queue, passive=True).method.message_count

    def await_count(self, queue: str, count: int) -> int:
        """What it is when it is as wanted, or when that took too long."""
        found = [-1]

        def is_there() -> bool:
            found[0] = self.count(queue)
            return found[0] == count

        until(is_there)
        return found[0]

    def exists(self, queue: str) -> bool:
        channel = self.open()
        try:
            channel.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as closed:
            if closed.reply_code != 404:
                raise
            return False
        channel.close()
        return True

    # What was seen.

    def see(self, what: str, value: object, instead: Mapping[object, object] | None = None) -> None:
        """`instead`: where RabbitMQ says this, something else is right. FINDINGS.md says why."""
        value = self._plain(value)
        if instead and self.product.startswith("RabbitMQ "):
            value = instead.get(value, value)
        self.seen.append((what, value))

    def refusal(self, ask: Callable[[BlockingChannel], object]) -> str:
        """The code and the text with which the channel or the connection was closed."""
        channel = self.open()
        try:
            answer = ask(channel)
            channel.exchange_declare("amq.direct", passive=True)  # For what has no answer.
        except ChannelClosedByBroker as closed:
            return f"channel {closed.reply_code} {closed.reply_text}"
        except ConnectionClosedByBroker as closed:
            return f"connection {closed.reply_code} {closed.reply_text}"
        channel.close()
        return f"fine: {type(getattr(answer, 'method', answer)).__name__}"

    def see_refusal(
        self,
        what: str,
        ask: Callable[[BlockingChannel], object],
        instead: Mapping[str, str] | None = None,
    ) -> None:
        self.see(what, self.refusal(ask), instead)
        self.reopen()

    def see_message(self, what: str, got: tuple | None) -> None:
        """Everything about a message that a consumer is told."""
        if got is None:
            self.see(what, None)
            return
        method, properties, body = got
        facts = {name: value for name, value in vars(properties).items() if value is not None}
        if self.is_old and "x-death" in facts.get("headers", {}):
            last = facts["headers"]["x-death"][0]  # The newest. Newer ones say it a second time.
            told = {f"x-last-death-{name}": last[name] for name in ("exchange", "queue", "reason")}
            facts["headers"] |= told
        told = method.exchange, method.routing_key, method.redelivered
        self.see(what, {"told": told, "facts": facts, "body": body})

    def _plain(self, value: object) -> object:
        if isinstance(value, str):
            value = TAG.sub("ctag", value.replace(self._prefix, "P"))
            return MADE_UP.sub(r"amq.\1", value)
        if isinstance(value, Mapping):
            return {self._plain(name): self._plain(item) for name, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self._plain(item) for item in value]
        if isinstance(value, datetime):
            age = abs((datetime.now(UTC) - value).total_seconds())
            return "now" if age < 60 else value
        return value

    def clear(self) -> None:
        """Whatever the case has left behind. What is gone already does not matter."""
        for raw in self._raws:
            raw.close()
        for connection in self._connections:
            if connection.is_open:
                connection.close()
        with pika.BlockingConnection(pika.ConnectionParameters(self.host, self.port)) as last:
            channel = last.channel()
            for queue in self._queues:
                channel.queue_delete(queue)
            for exchange in self._exchanges:
                channel.exchange_delete(exchange)


class Inbox:
    """What a consumer has been given, in order."""

    def __init__(
        self, channel: BlockingChannel, queue: str, auto_ack: bool = False, **facts: object
    ) -> None:
        self.channel = channel
        self.messages: list[tuple] = []
        self.tag = channel.basic_consume(queue, self._take, auto_ack, **facts)

    def _take(self, _: BlockingChannel, method: object, properties: object, body: bytes) -> None:
        self.messages.append((method, properties, body.decode()))

    @property
    def bodies(self) -> list[str]:
        return [body for _, _, body in self.messages]

    def tags(self) -> Iterator[int]:
        return (method.delivery_tag for method, _, _ in self.messages)

    def wait(self, count: int) -> list[str]:
        """Until so many have come; and then a little, in case there are more."""
        connection = self.channel.connection
        end = time.monotonic() + SOON_S
        while len(self.messages) < count and time.monotonic() < end:
            connection.process_data_events(0.05)
        return self.rest()

    def rest(self, seconds: float = 0.15) -> list[str]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.channel.connection.process_data_events(left)
        return self.bodies


def until(condition: Callable[[], bool], seconds: float = SOON_S) -> bool:
    end = time.monotonic() + seconds
    while not (is_so := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return is_so
