"""Routes the messages of a run, and publishes them to the queues and topics they are for.

Mostly the subject alone decides where a message goes: then each subject in the run is routed
once. Where the exchange reads headers, or a message has special handling, each envelope is
routed once. A run whose messages all have the same route is published as it is; otherwise each
queue gets its part as one run, in the order of publishing.

A run for thousands of queues is published in several turns of the loop. Runs published after it
wait until it is done, so that every queue gets both in the order of publishing.

A message published to a deduplicating exchange comes once to each queue: see `deduplication`.

The default exchange leads to every queue and topic by its name, without a binding that needed
permission. Topics are also used by other protocols, so a publish to a topic by its name is
checked against the permissions of that topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Publication, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.router import Held, Route, Router
from entrepot.broker.session.ports import Broadcast, Send
from entrepot.broker.subject.listener import Listener
from entrepot.broker.turns import Turns
from entrepot.broker.virtual_host.deduplication import Deduplication, Memory
from entrepot.broker.virtual_host.subject_routes import SubjectRoutes
from entrepot.broker.virtual_host.topic_feed import TopicFeed
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.message import Envelope, Message, distinct, subjects
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps, finish

# Raises a PeerError if the publisher may not write to the topic of that name.
Check = Callable[[str], None]
# Keeps messages until their delay at an exchange is over. The last argument says whether the
# publication is answered only when they are consumed.
Hold = Callable[[Held, Run, Publication | None, bool], None]


# A queue or topic by its name, a delayed exchange, or one who hears what is published on subjects.
Destination: TypeAlias = str | Held | Listener
_NAMED = (str, Held)
_FEW = 10  # So many destinations are always served at once, whatever they get.
_POSTPONED_BYTES = 4 * limits.KIB  # About what a run takes that waits, beside its bodies.


class _Way(NamedTuple):
    """Where messages with the same envelope go, and how."""

    route: Route
    until_settled: bool = False  # Whether they are confirmed only when they are consumed.
    seen: Envelope | None = None  # What queues get. None means: the envelope as it is.


_Ways = dict[int, _Way]  # By the identity of an envelope.


class _Sending(NamedTuple):
    """What is the same for all messages of one call of `publish`."""

    publication: Publication | None
    avoided: Sequence[str]  # Queues that must not get them.
    memory: Memory | None  # None means: duplicates are not dropped.
    to_topics: bool = True  # Whether topics may get them.
    sender: object | None = None  # The session that publishes them.
    check: Check | None = None  # Whether they may land where their subject says.
    encoded: dict[object, bytes] | None = None  # All of them, for those who hear them.


class _Share:
    """The messages of a run that go to one queue, or that one exchange delays equally long."""

    __slots__ = ("destination", "messages", "places", "until_settled")

    def __init__(self, destination: Destination, until_settled: bool) -> None:
        self.destination = destination
        self.until_settled = until_settled
        self.messages: list[Message] = []
        self.places: list[int] = []  # Indexes of these messages in the run.


class Publisher:
    def __init__(
        self,
        router: Router,
        queues: Mapping[str, Queue],
        feed: Callable[[str], TopicFeed],
        hold: Hold,
        deduplication: Deduplication,
        subjects: SubjectRoutes,
        clock: Clock,
        turns: Turns,
        memory_use: MemoryUse,
    ) -> None:
        self._router = router
        self._queues = queues
        self._feed = feed  # Returns the feed of the topic with that name.
        self._hold = hold
        self._deduplication = deduplication
        self._subjects = subjects
        self._clock = clock
        self._turns = turns
        self._memory_use = memory_use
        # What sends a run to very many destinations, or one that was published after such a run;
        # and what that counts as in memory.
        self._postponed: deque[tuple[Steps[None], int]] = deque()
        self._is_sending = False  # Whether a background task sends what is postponed.

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
        sender: object | None = None,
        memory: Memory | None = None,
        encoded: dict[object, bytes] | None = None,
    ) -> Sequence[Message]:
        """Route messages from the exchange `start`, and publish them to queues and topics.

        `start` is the exchange they were published to, or the one that delayed them. Returns the
        messages that no queue or topic gets. `inside` means: published by the broker itself and
        not by a client; `sender` is the session that publishes them. With a `memory`, a target that
        has a message already does not get it again. `encoded` is for those who hear them: see
        `Broadcast`. Raises UnknownExchange, ExchangeRefused, and what `check` raises for a topic
        that is reached by its name; the messages before the faulty one are published.
        """
        is_clients = not inside and not avoided and memory is None
        if is_clients and len(messages) == 1 and messages[0][0].is_plain and not self._postponed:
            queue = self._only_queue(start, messages[0][0].subject)
            if queue is not None:  # Nearly always, when messages come one at a time.
                queue.publish(Run(self._clock.now_ms(), messages), publication, at_once=True)
                return ()
        if start == self._subjects.exchange:  # It never deduplicates by itself.
            if is_clients and len(messages) == 1:
                nowhere = self.publish_alone(messages, publication, sender)
                if nowhere is not None:
                    return nowhere
            sending = _Sending(publication, avoided, memory, to_topics, sender, check, encoded)
            if not self._router.reads_headers(start) and not _are_special(messages):
                return self._publish_on_subjects(messages, sending, inside)
        else:
            memory = memory or self._deduplication.memory(start)
            sending = _Sending(publication, avoided, memory, to_topics)
        if not self._router.leads_by_name(start):
            check = None
        keys = subjects(messages)
        if (
            self._router.reads_headers(start)
            or _are_special(messages)
            or (check is not None and not self._may_write_all(keys, check))
        ):
            return self._publish_by_envelope(start, messages, sending, inside, check)
        routes = [self._router.route(start, key, inside=inside) for key in keys]
        if len(routes) == 1 or routes.count(routes[0]) == len(routes):
            return self._send_whole(messages, routes[0], sending)
        by_key = dict(zip(keys, map(_Way, routes), strict=True))
        ways = {id(envelope): by_key[envelope.subject] for envelope in distinct(messages)}
        return self._send_parts(messages, ways, sending)

    def _only_queue(self, start: str, key: str) -> Queue | None:
        """Return the one queue that a client's message goes to. None means: it is not that easy."""
        if start == self._subjects.exchange:
            return None
        route = self._router.known_route(start, key)
        if route is None or len(route.queues) != 1:
            return None
        return self._queues.get(route.queues[0])

    def publish_alone(
        self,
        messages: Sequence[Message],
        publication: Publication | None,
        sender: object | None,
    ) -> Sequence[Message] | None:
        """Publish one message that goes only to those who listen to its subject, or to nobody.

        Returns it if nobody gets it, and None if it goes elsewhere, too, or is not so simple:
        then it is not published.
        """
        envelope = messages[0][0]
        if self._postponed or (not envelope.is_plain and _are_special(messages)):
            return None
        listeners = self._subjects.only_listeners(envelope.subject)
        if not listeners:
            return None if listeners is None else messages
        if len(listeners) > _FEW and _takes_turns(len(listeners), len(messages[0][1])):
            return None
        broadcast = Broadcast(Run(self._clock.now_ms(), messages), publication, sender)
        for listener in listeners:
            listener.hear(broadcast)
        return ()

    def _publish_on_subjects(
        self, messages: Sequence[Message], sending: _Sending, inside: bool
    ) -> Sequence[Message]:
        start = self._subjects.exchange
        keys = subjects(messages)
        routes = [
            self._subjects.route(key, self._router.route(start, key, inside=inside), sending.check)
            for key in keys
        ]
        if len(routes) == 1 or routes.count(routes[0]) == len(routes):
            return self._send_whole(messages, routes[0], sending)
        by_key = dict(zip(keys, map(_Way, routes), strict=True))
        ways = {id(envelope): by_key[envelope.subject] for envelope in distinct(messages)}
        return self._send_parts(messages, ways, sending)

    def _may_write_all(self, names: Iterable[str], check: Check) -> bool:
        try:
            self._check_topics(names, check)
        except PeerError:
            return False
        return True

    def _check_topics(self, names: Iterable[str], check: Check) -> None:
        """Raise what `check` raises for the first of these names that is a forbidden topic."""
        for name in names:
            if name not in self._queues and self._router.has_queue(name):
                check(name)

    def _publish_by_envelope(
        self,
        start: str,
        messages: Sequence[Message],
        sending: _Sending,
        inside: bool,
        check: Check | None,
    ) -> Sequence[Message]:
        ways: _Ways = {}
        try:
            for envelope in distinct(messages):
                way = self._way(start, envelope, inside, sending.check)
                if check is not None:
                    self._check_topics(way.route.queues, check)
                ways[id(envelope)] = way
        except PeerError:
            before = [*takewhile(lambda message: id(message[0]) in ways, messages)]
            self._send_parts(before, ways, sending)
            raise
        first, *others = ways.values()
        if first.seen is None and all(way == first for way in others):
            return self._send_whole(messages, first.route, sending, first.until_settled)
        return self._send_parts(messages, ways, sending)

    def _way(self, start: str, envelope: Envelope, inside: bool, check: Check | None) -> _Way:
        route = self._router.route(start, envelope.subject, envelope, inside=inside)
        handling = envelope.handling
        if start == self._subjects.exchange:
            for key in (envelope.subject, *handling.copies, *handling.blind_copies):
                route = self._subjects.route(key, route, check)
        if not handling.blind_copies:
            return _Way(route, handling.confirms_when_consumed)
        seen = envelope.with_head(envelope.format.without_blind_copies(envelope.head))
        return _Way(route, handling.confirms_when_consumed, seen)

    def _send_whole(
        self,
        messages: Sequence[Message],
        route: Route,
        sending: _Sending,
        until_settled: bool = False,
    ) -> Sequence[Message]:
        """Send all messages along one route. Returns those that no queue or topic gets."""
        destinations: Sequence[Destination] = route.queues
        if not destinations and not route.held:
            destinations = route.listeners
        elif route.held or route.listeners:
            destinations = [*destinations, *route.held, *route.listeners]
        if sending.avoided or not sending.to_topics:
            destinations = [each for each in destinations if not self._avoids(each, sending)]
        if not destinations:
            return messages
        self._send(destinations, Run(self._clock.now_ms(), messages), sending, until_settled)
        return ()

    def _send_parts(
        self, messages: Sequence[Message], ways: _Ways, sending: _Sending
    ) -> Sequence[Message]:
        """Send each destination its messages. Returns those that no queue or topic gets."""
        time_ms, sending = self._clock.now_ms(), sending._replace(encoded=None)
        width = sum([way.route.width for way in ways.values()])
        sizes = (ways[id(envelope)].route.width * len(body) for envelope, body in messages)
        if _takes_turns(width, 0) or (width > _FEW and sum(sizes) > limits.QUEUE_TURN_BYTES_MAX):
            steps = self._send_shares_in_steps(messages, ways, sending, time_ms)
            self._postpone(steps, sending, width, sum([len(body) for _, body in messages]))
        else:
            for share in finish(_shares(messages, ways)):
                if not self._avoids(share.destination, sending):
                    own, run = _share_of(sending, share), Run(time_ms, share.messages)
                    self._send([share.destination], run, own, share.until_settled)
                    if own.publication is not None:
                        own.publication.arrived()
        nowhere = {
            envelope: not way.route.held
            and not way.route.listeners
            and all(self._avoids(each, sending) for each in way.route.queues)
            for envelope, way in ways.items()
        }
        return [message for message in messages if nowhere[id(message[0])]]

    def _avoids(self, destination: Destination, sending: _Sending) -> bool:
        if not isinstance(destination, str):
            return False
        is_topic = destination not in self._queues
        return destination in sending.avoided or (is_topic and not sending.to_topics)

    def _send(
        self,
        destinations: Sequence[Destination],
        run: Run,
        sending: _Sending,
        until_settled: bool,
    ) -> None:
        """Send a run now if it has few destinations and nothing is postponed; or postpone it."""
        width, size = len(destinations), 0
        if width > _FEW or self._postponed:
            size = sum([len(body) for _, body in run.messages])
        if not self._postponed and not _takes_turns(width, size):
            broadcast: Broadcast | None = None
            for destination in destinations:
                if isinstance(destination, _NAMED):
                    self._send_to(destination, run, sending, until_settled)
                else:
                    if broadcast is None:
                        broadcast = _broadcast(run, sending)
                    destination.hear(broadcast)
            return
        steps = self._send_in_steps(destinations, run, sending, until_settled)
        self._postpone(steps, sending, width, size)

    def _postpone(self, steps: Steps[None], sending: _Sending, width: int, size: int) -> None:
        """Send in turns, after what was postponed before. The steps end with an answer.

        What waits counts as memory of messages, so that publishers wait if it is much: by its
        bytes, and by its destinations, because it is time that there is too little of.
        """
        if sending.publication is not None:
            sending.publication.expect()
        is_wide = width > limits.DESTINATIONS_AT_ONCE_MAX
        cost = size + (limits.QUEUE_TURN_BYTES_MAX if is_wide else _POSTPONED_BYTES)
        self._memory_use.change(cost)
        self._postponed.append((steps, cost))
        if not self._is_sending:
            self._is_sending = True
            self._turns.start(self._send_postponed())

    def _send_postponed(self) -> Steps[None]:
        try:
            while self._postponed:
                steps, cost = self._postponed[0]
                try:
                    yield from steps
                finally:
                    self._postponed.popleft()  # Even if it failed, it is not sent again.
                    self._memory_use.change(-cost)
        finally:
            self._is_sending = False

    def _send_shares_in_steps(
        self, messages: Sequence[Message], ways: _Ways, sending: _Sending, time_ms: int
    ) -> Steps[None]:
        """Send each destination its messages. Then answer the publication."""
        shares = yield from _shares(messages, ways)
        for share in shares:
            if not self._avoids(share.destination, sending):
                own, run = _share_of(sending, share), Run(time_ms, share.messages)
                steps = self._send_in_steps([share.destination], run, own, share.until_settled)
                yield from steps
        if sending.publication is not None:
            sending.publication.arrived()

    def _send_in_steps(
        self,
        destinations: Sequence[Destination],
        run: Run,
        sending: _Sending,
        until_settled: bool,
    ) -> Steps[None]:
        """Send all of them the run. Then answer the publication."""
        broadcast: Broadcast | None = None
        for destination in destinations:
            if not isinstance(destination, _NAMED):
                if broadcast is None:
                    broadcast = _broadcast(run, sending, Queue.publish_now)
                destination.hear(broadcast)
            elif isinstance(destination, Held) or self._router.has_queue(destination):
                self._send_to(destination, run, sending, until_settled, is_wide=True)
            yield
        if sending.publication is not None:
            sending.publication.arrived()

    def _send_to(
        self,
        destination: str | Held,
        run: Run,
        sending: _Sending,
        until_settled: bool,
        *,
        is_wide: bool = False,
    ) -> None:
        """Send a run to one destination; `is_wide` means: one of very many."""
        publication, memory = sending.publication, sending.memory
        if isinstance(destination, Held):
            self._hold(destination, run, publication, until_settled)
            return
        queue = self._queues.get(destination)
        if queue is None:  # A topic. Nothing in it is consumed, so confirm when it is committed.
            feed = self._feed(destination)
            append = feed.publish_now if is_wide else feed.publish
            if memory is None:
                append(run, publication)
            else:
                memory.send(feed, run, publication, append)
        elif memory is None:
            publish = queue.publish_now if is_wide else queue.publish
            publish(run, publication, until_settled=until_settled)
        else:
            publish = queue.publish_now if is_wide else queue.publish
            own = partial(publish, until_settled=until_settled)
            memory.send(queue, run, publication, own)


def _takes_turns(width: int, size: int) -> bool:
    """Return whether so many bytes are not sent to so many destinations at once."""
    if width <= _FEW:
        return False
    return width > limits.DESTINATIONS_AT_ONCE_MAX or width * size > limits.QUEUE_TURN_BYTES_MAX


def _broadcast(run: Run, sending: _Sending, publish: Send | None = None) -> Broadcast:
    """Return the run for those who hear it. `publish` is a method of queues; None means: the
    usual one."""
    memory, publication, sender = sending.memory, sending.publication, sending.sender
    if memory is None:
        return Broadcast(run, publication, sender, send=publish, encoded=sending.encoded)
    publish_once = publish or Queue.publish

    def send(queue: Queue, run: Run, publication: Publication | None) -> None:
        memory.send(queue, run, publication, partial(publish_once, queue))

    return Broadcast(run, publication, sender, send=send)


def _are_special(messages: Sequence[Message]) -> bool:
    """Return whether any message has copies, or is confirmed only when it is consumed."""
    for envelope in distinct(messages):
        if envelope.is_plain:
            continue
        handling = envelope.handling
        if handling.confirms_when_consumed or handling.copies or handling.blind_copies:
            return True
    return False


def _share_of(sending: _Sending, share: _Share) -> _Sending:
    """Return the same for the messages of one share."""
    publication = sending.publication
    return sending._replace(
        publication=None if publication is None else publication.part(share.places)
    )


def _shares(messages: Sequence[Message], ways: _Ways) -> Steps[list[_Share]]:
    """Return the messages of each destination.

    A destination has several shares, in the order of publishing, if some of its messages are
    confirmed only when they are consumed and others are not.
    """
    shares: list[_Share] = []
    width = 0
    latest: dict[Destination, _Share] = {}

    def add(destination: Destination, place: int, message: Message, until_settled: bool) -> None:
        share = latest.get(destination)
        if share is None or share.until_settled is not until_settled:
            share = latest[destination] = _Share(destination, until_settled)
            shares.append(share)
        share.messages.append(message)
        share.places.append(place)

    for place, message in enumerate(messages):
        envelope, body = message
        route, until_settled, seen = ways[id(envelope)]
        queues, held, listeners = route
        width += route.width
        if width > limits.DESTINATIONS_AT_ONCE_MAX:
            width = 0
            yield
        sent = message if seen is None else (seen, body)
        for name in queues:
            add(name, place, sent, until_settled)
        for each in held:
            add(each, place, message, until_settled)
        for listener in listeners:
            add(listener, place, sent, until_settled)
    return shares
