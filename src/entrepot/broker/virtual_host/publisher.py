"""Where the messages of a run go, and that they get there.

Mostly nothing but routing keys decides: then each key in the run is routed once. Where headers
have a say, at the exchange or in a message, each envelope is. A run whose messages all go the
same way is handed on as it is; otherwise each queue gets what is for it as one run, in the order
in which it came.

What goes to thousands of queues goes there a turn at a time; until it is there, what is
published after it waits behind it, so that every queue has both in their order.

What is published to a deduplicating exchange goes once to each queue: see `deduplication`.

The default exchange leads to every queue and topic by its name, without a binding that somebody
was allowed to make. Topics are others' as well, so there each topic's own permission is asked.

Three headers of a message are read here. `CC` and `BCC` are more routing keys, and nobody
downstream sees the second. `x-confirm: consumed` asks for the confirmation only when
consumers have settled the message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from entrepot.broker.queue.message import PropertyReader, Publication, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.broker.router.router import Held, Route, Router
from entrepot.broker.turns import Turns
from entrepot.broker.virtual_host.deduplication import Deduplication, Memory, Publish
from entrepot.broker.virtual_host.topic_feed import TopicFeed
from entrepot.core import limits
from entrepot.core.envelope import Envelope, Message, distinct, kinds, routing_keys
from entrepot.core.errors import PeerError
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps

CONFIRM = "x-confirm"
CONSUMED = "consumed"
_BLIND_COPY = "BCC"
# Names of headers as bytes, found in properties that may have such a header.
_COPY_BYTES = b"CC"
_CONFIRM_BYTES = CONFIRM.encode()

# Raises a PeerError when who publishes may not write to the topic of that name.
Check = Callable[[str], None]
# Keeps messages until they are due at an exchange. The last says whether to confirm late.
Hold = Callable[[Held, Run, Publication | None, bool], None]


class _Way(NamedTuple):
    """What becomes of messages with the same envelope."""

    route: Route
    until_settled: bool = False
    seen: Envelope | None = None  # The one that queues see, if it is another.


class _Sending(NamedTuple):
    """What holds for all messages of a publish."""

    publication: Publication | None
    avoided: Sequence[str]  # Queues.
    memory: Memory | None  # Of an exchange that drops duplicates.
    to_topics: bool = True


class _Delivery(NamedTuple):
    """A run and where it goes."""

    destinations: Sequence[str | Held]
    run: Run
    sending: _Sending
    until_settled: bool


class _Share:
    """What a queue gets of a run, or what waits at an exchange for the same time."""

    __slots__ = ("destination", "messages", "places", "until_settled")

    def __init__(self, destination: str | Held, until_settled: bool) -> None:
        self.destination = destination
        self.until_settled = until_settled
        self.messages: list[Message] = []
        self.places: list[int] = []  # Of the messages, in the run.


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
        turns: Turns,
    ) -> None:
        self._router = router
        self._queues = queues
        self._feed = feed  # Of the topic with that name.
        self._hold = hold
        self._deduplication = deduplication
        self._reader = reader
        self._clock = clock
        self._turns = turns
        self._delayed: deque[_Delivery] = deque()  # One that goes to very many, and the next.
        self._is_sending = False  # What is delayed, in the background.

    def publish(
        self,
        start: str,
        messages: Sequence[Message],
        publication: Publication | None,
        *,
        inside: bool = False,
        avoided: Sequence[str] = (),
        check: Check | None = None,
        to_topics: bool = True,
    ) -> Sequence[Message]:
        """Returns those that went nowhere.

        They are routed from that exchange: the one they were published to, or the one where
        they waited. `inside` is for what is not a client's own publish. Raises UnknownExchange,
        ExchangeRefused, InvalidRoutingHeader, and what `check` raises for a topic that is
        reached by its name; what came before that is published.
        """
        memory = self._deduplication.memory(start)
        sending = _Sending(publication, avoided, memory, to_topics)
        if start != DEFAULT_EXCHANGE:
            check = None
        keys = routing_keys(messages)
        if (
            self._router.reads_headers(start)
            or _may_have_headers_to_read(messages)
            or (check is not None and not self._may_write_all(keys, check))
        ):
            return self._publish_by_headers(start, messages, sending, inside, check)
        routes = [self._router.route(start, key, inside=inside) for key in keys]
        if routes.count(routes[0]) == len(routes):
            return self._send_whole(messages, _Way(routes[0]), sending)
        by_key = dict(zip(keys, map(_Way, routes), strict=True))
        ways = {envelope: by_key[envelope.routing_key] for envelope in distinct(messages)}
        return self._send_parts(messages, ways, sending)

    def _may_write_all(self, names: Iterable[str], check: Check) -> bool:
        try:
            self._check_topics(names, check)
        except PeerError:
            return False
        return True

    def _check_topics(self, names: Iterable[str], check: Check) -> None:
        """Raises what `check` does, for the first of these that is a topic and denied."""
        for name in names:
            if name not in self._queues and self._router.has_queue(name):
                check(name)

    def _publish_by_headers(
        self,
        start: str,
        messages: Sequence[Message],
        sending: _Sending,
        inside: bool,
        check: Check | None,
    ) -> Sequence[Message]:
        ways: dict[Envelope, _Way] = {}
        try:
            for envelope in distinct(messages):
                way = self._way_by_headers(start, envelope, inside)
                if check is not None:
                    self._check_topics(way.route.queues, check)
                ways[envelope] = way
        except PeerError:
            before = [*takewhile(lambda message: message[0] in ways, messages)]
            self._send_parts(before, ways, sending)
            raise
        first, *others = ways.values()
        if first.seen is None and all(way == first for way in others):
            return self._send_whole(messages, first, sending)
        return self._send_parts(messages, ways, sending)

    def _way_by_headers(self, start: str, envelope: Envelope, inside: bool) -> _Way:
        _, key, properties = envelope
        headers, named = self._reader.headers(properties), self._reader.named(properties)
        route = self._router.route(start, key, headers, named, inside=inside)
        until_settled = headers.get(CONFIRM) == CONSUMED
        if _BLIND_COPY not in headers:
            return _Way(route, until_settled)
        kept = {name: value for name, value in headers.items() if name != _BLIND_COPY}
        properties = self._reader.with_headers(properties, kept)
        return _Way(route, until_settled, envelope._replace(properties=properties))

    def _send_whole(
        self, messages: Sequence[Message], way: _Way, sending: _Sending
    ) -> Sequence[Message]:
        """All go the same way. Returns those that go nowhere."""
        (queues, held), until_settled, _ = way
        run = Run(self._clock.now_ms(), messages)
        destinations: list[str | Held] = [*queues, *held]
        if sending.avoided or not sending.to_topics:
            destinations = [each for each in destinations if not self._avoids(each, sending)]
        self._send(_Delivery(destinations, run, sending, until_settled))
        return () if destinations else messages

    def _send_parts(
        self, messages: Sequence[Message], ways: Mapping[Envelope, _Way], sending: _Sending
    ) -> Sequence[Message]:
        """To each destination what is for it. Returns those that go nowhere."""
        time_ms, publication = self._clock.now_ms(), sending.publication
        for share in _shares(messages, ways):
            if self._avoids(share.destination, sending):
                continue
            part = None if publication is None else publication.part(share.places)
            run = Run(time_ms, share.messages)
            own = sending._replace(publication=part)
            self._send(_Delivery([share.destination], run, own, share.until_settled))
            if part is not None:
                part.arrived()
        nowhere = {
            envelope: not way.route.held
            and all(self._avoids(each, sending) for each in way.route.queues)
            for envelope, way in ways.items()
        }
        return [message for message in messages if nowhere[message[0]]]

    def _avoids(self, destination: str | Held, sending: _Sending) -> bool:
        if isinstance(destination, Held):
            return False
        is_topic = destination not in self._queues
        return destination in sending.avoided or (is_topic and not sending.to_topics)

    def _send(self, delivery: _Delivery) -> None:
        """Now, if it is to few and nothing is delayed."""
        destinations, run, sending, until_settled = delivery
        if not self._delayed and len(destinations) <= limits.DESTINATIONS_AT_ONCE_MAX:
            for destination in destinations:
                self._send_to(destination, run, sending, until_settled)
            return
        if sending.publication is not None:
            sending.publication.expect()
        self._delayed.append(delivery)
        if not self._is_sending:
            self._is_sending = True
            self._turns.start(self._send_delayed())

    def _send_delayed(self) -> Steps[None]:
        try:
            while self._delayed:
                try:
                    yield from self._send_in_steps(self._delayed[0])
                finally:
                    self._delayed.popleft()  # Whatever became of it, it is not sent again.
        finally:
            self._is_sending = False

    def _send_in_steps(self, delivery: _Delivery) -> Steps[None]:
        destinations, run, sending, until_settled = delivery
        for destination in destinations:
            if isinstance(destination, Held) or self._router.has_queue(destination):
                self._send_to(destination, run, sending, until_settled)
            yield
        if sending.publication is not None:
            sending.publication.arrived()

    def _send_to(
        self, destination: str | Held, run: Run, sending: _Sending, until_settled: bool
    ) -> None:
        publication, memory = sending.publication, sending.memory
        if isinstance(destination, Held):
            self._hold(destination, run, publication, until_settled)
            return
        target: Queue | TopicFeed
        publish: Publish
        queue = self._queues.get(destination)
        if queue is not None:
            target, publish = queue, partial(queue.publish, until_settled=until_settled)
        else:  # A topic is never consumed: what it has, it has.
            target = self._feed(destination)
            publish = target.publish
        if memory is None:
            publish(run, publication)
        else:
            memory.send(target, run, publication, publish)


def _may_have_headers_to_read(messages: Sequence[Message]) -> bool:
    """Rarely says yes where there is nothing."""
    return any(_COPY_BYTES in each or _CONFIRM_BYTES in each for each in kinds(messages))


def _shares(messages: Sequence[Message], ways: Mapping[Envelope, _Way]) -> list[_Share]:
    """Who gets what. A destination has several shares, in their order, where messages that are
    confirmed when they are consumed are among others."""
    shares: list[_Share] = []
    latest: dict[str | Held, _Share] = {}

    def add(destination: str | Held, place: int, message: Message, until_settled: bool) -> None:
        share = latest.get(destination)
        if share is None or share.until_settled is not until_settled:
            share = latest[destination] = _Share(destination, until_settled)
            shares.append(share)
        share.messages.append(message)
        share.places.append(place)

    for place, message in enumerate(messages):
        envelope, body = message
        (queues, held), until_settled, seen = ways[envelope]
        sent = message if seen is None else (seen, body)
        for name in queues:
            add(name, place, sent, until_settled)
        for each in held:
            add(each, place, message, until_settled)
    return shares
