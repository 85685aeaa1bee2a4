"""Where the messages of a run go, and that they get there.

Mostly nothing but the routing key decides: then a run is routed once and handed on as it is.
Where headers have a say, at the exchange or in the message, each message is asked, but what
is the same for several in a row goes on as a run again.

What is published to a deduplicating exchange goes once to each queue: see `deduplication`.

Three headers of a message are read here. `CC` and `BCC` are more routing keys, and nobody
downstream sees the second. `x-confirm: consumed` asks for the confirmation only when
consumers have settled the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from entrepot.broker.queue.message import Message, PropertyReader, Publication, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.router import Held, Route, Router
from entrepot.broker.virtual_host.deduplication import Deduplication, Memory
from entrepot.broker.virtual_host.topic_feed import TopicFeed
from entrepot.core.ports import Clock

CONFIRM = "x-confirm"
CONSUMED = "consumed"
_BLIND_COPY = "BCC"
# Names of headers as bytes, found in properties that may have such a header.
_COPY_BYTES = b"CC"
_CONFIRM_BYTES = CONFIRM.encode()

# Keeps messages until they are due at an exchange. The last says whether to confirm late.
Hold = Callable[[Held, Run, Publication | None, bool], None]


class _Way(NamedTuple):
    """What becomes of messages with the same properties."""

    route: Route
    properties: bytes  # As the receivers see them.
    until_settled: bool

    def is_shared_with(self, other: _Way) -> bool:
        return self.route == other.route and self.until_settled == other.until_settled


class _Together:
    """Messages in a row that go the same way."""

    def __init__(self, way: _Way, first: int) -> None:
        self.way = way
        self.first = first  # The place of the first one in its run.
        self.received: list[Message] = []
        self.sent: list[Message] = []

    def add(self, message: Message, way: _Way) -> None:
        properties, body = message
        self.received.append(message)
        self.sent.append(message if way.properties is properties else (way.properties, body))


class Publisher:
    def __init__(
        self,
        router: Router,
        queues: Mapping[str, Queue],
        feed: Callable[[str], TopicFeed],
        hold: Hold,
        deduplication: Deduplication,
        reader: PropertyReader,
        clock: Clock,
    ) -> None:
        self._router = router
        self._queues = queues
        self._feed = feed  # Of the topic with that name.
        self._hold = hold
        self._deduplication = deduplication
        self._reader = reader
        self._clock = clock

    def publish(
        self,
        exchange: str,
        key: str,
        messages: Sequence[Message],
        publication: Publication | None,
        *,
        start: str | None = None,
        inside: bool = False,
        avoided: Sequence[str] = (),
    ) -> Sequence[Message]:
        """Returns those that went nowhere.

        They are routed from the exchange they were published to, or from where they waited
        (`start`). `inside` is for what is not a client's own publish. Raises UnknownExchange,
        ExchangeRefused, InvalidRoutingHeader; what came before that is published.
        """
        run = Run(exchange, key, self._clock.now_ms(), messages)
        start = exchange if start is None else start
        if self._router.reads_headers(start) or _may_have_headers_to_read(messages):
            return self._publish_each(start, run, publication, inside, avoided)
        route = self._router.route(start, key, inside=inside)
        self._send(route.queues, run, publication, avoided)
        return () if route.queues else messages

    def _publish_each(
        self,
        start: str,
        run: Run,
        publication: Publication | None,
        inside: bool,
        avoided: Sequence[str],
    ) -> list[Message]:
        nowhere: list[Message] = []
        ways: dict[bytes, _Way] = {}  # Of the properties in this run.
        together: _Together | None = None
        memory = self._deduplication.memory(start)

        def go() -> None:
            if together is not None:
                (route, _, until_settled), received = together.way, together.received
                sent = run._replace(messages=together.sent)
                places = range(together.first, together.first + len(received))
                part = None if publication is None else publication.part(places)
                if memory is None:
                    self._send(route.queues, sent, part, avoided, until_settled)
                else:
                    names = [name for name in route.queues if name not in avoided]
                    self._send_once(memory, names, sent, part, until_settled)
                for held in route.held:
                    self._hold(held, run._replace(messages=received), part, until_settled)
                if part is not None:
                    part.arrived()
                if not route.queues and not route.held:
                    nowhere.extend(received)

        try:
            for place, message in enumerate(run.messages):
                way = ways.get(message[0])
                if way is None:
                    way = ways[message[0]] = self._way(start, run.routing_key, message[0], inside)
                if together is None or not way.is_shared_with(together.way):
                    go()
                    together = _Together(way, place)
                together.add(message, way)
        finally:  # Also if the next one is wrong.
            go()
        return nowhere

    def _way(self, start: str, key: str, properties: bytes, inside: bool) -> _Way:
        headers, named = self._reader.headers(properties), self._reader.named(properties)
        route = self._router.route(start, key, headers, named, inside=inside)
        if _BLIND_COPY in headers:
            seen = {name: value for name, value in headers.items() if name != _BLIND_COPY}
            properties = self._reader.with_headers(properties, seen)
        return _Way(route, properties, headers.get(CONFIRM) == CONSUMED)

    def _send(
        self,
        names: Sequence[str],
        run: Run,
        publication: Publication | None,
        avoided: Sequence[str],
        until_settled: bool = False,
    ) -> None:
        for name in names:
            if name in avoided:
                continue
            queue = self._queues.get(name)
            if queue is None:  # A topic is never consumed: what it has, it has.
                self._feed(name).publish(run, publication)
            else:
                queue.publish(run, publication, until_settled=until_settled)

    def _send_once(
        self,
        memory: Memory,
        names: Sequence[str],
        run: Run,
        publication: Publication | None,
        until_settled: bool,
    ) -> None:
        for name in names:
            queue = self._queues.get(name)
            if queue is None:
                feed = self._feed(name)
                memory.send(feed, run, publication, feed.publish)
            else:
                publish = partial(queue.publish, until_settled=until_settled)
                memory.send(queue, run, publication, publish)


def _may_have_headers_to_read(messages: Sequence[Message]) -> bool:
    """Looks at each kind of properties once. Rarely says yes where there is nothing."""
    for properties in dict.fromkeys([message[0] for message in messages]):
        if _COPY_BYTES in properties or _CONFIRM_BYTES in properties:
            return True
    return False
