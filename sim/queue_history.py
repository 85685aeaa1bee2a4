"""What publishers were told of their messages, and what consumers got.

Every message is published once, with a value of its own, and is expected in certain queues.
What must hold of a message in each of them:

- Once it is confirmed, it comes out: somebody acknowledged it there, or where it went as a
  dead letter. What nobody published, or took back, never comes out.
- Once its acknowledgement is permanent, it never comes again.
- It is with one consumer at a time. Whoever gets it after another is told so, as long as the
  broker lives that gave it out before; and ever after, once it came back and that is permanent.
- How often it came back is counted. The count grows with each delivery, and a crash takes back
  only what was not permanent of it. At the limit, there is no other delivery.
- What one publisher sent on one connection comes to a consumer in that order, but for what
  was delivered before.

A dead letter and a delayed message may come twice, as a crash may come between the copy and
the settlement of the original; so of those only the first is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sim.amqp_client import AmqpClient
from sim.history import Violation

HEARSAY_S = 0.05  # By then everybody has noticed that a link is broken or a channel closed.


@dataclass(slots=True)
class Sent:
    """A message that was published."""

    queues: tuple[str, ...]  # Where it is expected.
    body: bytes
    publisher: str  # And its connection.
    number: int
    priority: int = 0
    is_delayed: bool = False
    until_consumed: bool = False  # Its confirmation means that it was consumed.
    is_confirmed: bool = False
    is_taken_back: bool = False


@dataclass(slots=True, eq=False)
class Hold:
    """A message that somebody has and did not acknowledge."""

    client: AmqpClient
    queue: str
    origin: str  # The queue it was published to; not the same for a dead letter.
    value: str
    life: int  # Of the broker.
    is_unique: bool  # There is one copy of it in the queue.
    tried: int  # How often it came back before, as far as the delivery says.
    given_back_s: float | None = None  # When that was said.

    @property
    def place(self) -> tuple[str, str]:
        return self.queue, self.value


@dataclass(slots=True)
class QueueHistory:
    note: Callable[..., None]  # Part of the trace.
    delivery_limits: dict[str, int] = field(default_factory=dict)  # By queue.
    life: int = 0  # How often the broker was started.
    deliveries: int = 0
    finished: int = 0
    sent: dict[str, Sent] = field(default_factory=dict)  # By value.
    _out: dict[tuple[str, str], None] = field(default_factory=dict)  # Origin and value.
    _finished: dict[tuple[str, str], None] = field(default_factory=dict)  # Queue and value.
    _times: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # Life, count.
    _holds: dict[tuple[str, str], Hold] = field(default_factory=dict)  # The newest of each.
    _lives: dict[AmqpClient, int] = field(default_factory=dict)  # Of whom it is known.
    _tried: dict[int, dict[tuple[str, str], int]] = field(default_factory=dict)  # By life.
    _tried_least: dict[tuple[str, str], int] = field(default_factory=dict)  # What is permanent.
    _orders: dict[tuple[AmqpClient, str, str, int], int] = field(default_factory=dict)

    # --- publishers

    def publish(self, value: str, sent: Sent) -> None:
        assert value not in self.sent, value
        self.sent[value] = sent

    def confirm(self, value: str) -> None:
        self.note("confirmed", value)
        sent = self.sent[value]
        sent.is_confirmed = True
        if sent.until_consumed:
            for queue in sent.queues:
                if (queue, value) not in self._out:
                    raise Violation(f"{value} is confirmed as consumed, but nobody did in {queue}")
                if not sent.is_delayed:
                    self._finish(queue, value)

    def take_back(self, value: str) -> None:
        """It was part of a transaction that was rolled back."""
        self.sent[value].is_taken_back = True

    @property
    def confirmed(self) -> int:
        return sum(sent.is_confirmed for sent in self.sent.values())

    # --- consumers

    def connected(self, client: AmqpClient, life: int) -> None:
        """The broker had that life before it was connected."""
        if life == self.life:
            self._lives[client] = life

    def deliver(
        self,
        client: AmqpClient,
        queue: str,
        origin: str,
        value: str,
        *,
        redelivered: bool,
        count: int | None,
    ) -> Hold:
        """With the count of earlier deliveries, if the queue tells it."""
        self.deliveries += 1
        self.note("delivered", queue, origin, value, redelivered)
        sent = self.sent.get(value)
        if sent is None or origin not in sent.queues or sent.is_taken_back:
            raise Violation(f"nobody published {value!r} to {origin}, and it came out of {queue}")
        is_unique = queue == origin and not sent.is_delayed
        tried = int(redelivered) if count is None else count
        hold = Hold(client, queue, origin, value, self.life, is_unique, tried)
        if is_unique:
            self._check_again(hold, redelivered)
            self._check_tried(hold, redelivered)
            if not redelivered:
                self._check_order(hold, sent)
        return hold

    def _check_again(self, hold: Hold, redelivered: bool) -> None:
        place = hold.place
        if place in self._finished:
            self._suspect(f"{place} comes again, and its settlement was permanent", hold)
        life, count = self._times.get(place, (self.life, 0))
        count = count + 1 if life == self.life else 1
        self._times[place] = self.life, count
        if count > 1 and not redelivered:
            self._suspect(f"{place} was delivered before, and this is not said", hold)
        limit = self.delivery_limits.get(hold.queue)
        if limit is not None and count > limit + 1:
            self._suspect(f"{place} is delivered for the {count}th time", hold)
        before = self._holds.get(place)
        self._holds[place] = hold
        if before is not None and before.life == self.life and before.given_back_s is None:
            self._suspect(f"{place} was given to two at the same time", hold, before)

    def _check_tried(self, hold: Hold, redelivered: bool) -> None:
        place, tried = hold.place, hold.tried
        if redelivered != (tried > 0):
            raise Violation(f"{place} came back {tried} times, and redelivered is {redelivered}")
        if tried > self._tried_max(hold.queue):
            raise Violation(f"{place} is delivered and came back {tried} times")
        if tried < self._tried_least.get(place, 0):
            self._suspect(f"{place}: that it came back was permanent, and is forgotten", hold)
        life = self._lives.get(hold.client)
        if life is None:
            return
        known = self._tried.setdefault(life, {})
        if hold.queue in self.delivery_limits and tried <= known.get(place, -1):
            self._suspect(f"{place} came back, and this is not counted", hold)
        known[place] = max(tried, known.get(place, 0))

    def _tried_max(self, queue: str) -> int:
        """Other queues than those with limits say only that there was a delivery."""
        return self.delivery_limits.get(queue, 1)

    def tried(self, client: AmqpClient) -> dict[tuple[str, str], int]:
        """What the broker that it is connected to has said so far of messages' coming back."""
        return dict(self._tried.get(self._lives.get(client, -1), {}))

    def keep_tried(self, tried: dict[tuple[str, str], int], requeued: Sequence[Hold]) -> None:
        """That is permanent now, and that these came back once more."""
        told = [*tried.items(), *((each.place, each.tried + 1) for each in requeued)]
        for place, count in told:
            count = min(count, self._tried_max(place[0]))
            self._tried_least[place] = max(count, self._tried_least.get(place, 0))

    def _suspect(self, text: str, *holds: Hold) -> None:
        """What one of them was sent may have been on its way when it lost its connection, or
        its channel. Then it hears of that soon."""
        loop = asyncio.get_running_loop()
        loop.call_later(HEARSAY_S, self._judge, text, holds, loop.time() + HEARSAY_S)

    def _judge(self, text: str, holds: Sequence[Hold], until_s: float) -> None:
        losses = [hold.client.lost_s for hold in holds]
        if all(lost_s is None or lost_s > until_s for lost_s in losses):
            raise Violation(text)

    def _check_order(self, hold: Hold, sent: Sent) -> None:
        key = (hold.client, hold.queue, sent.publisher, sent.priority)
        if self._orders.get(key, -1) >= sent.number:
            raise Violation(f"{hold.value} comes out of {hold.queue} after what was sent later")
        self._orders[key] = sent.number

    def give_back(self, holds: Sequence[Hold]) -> None:
        """The consumer says something about them, whatever that is."""
        now_s = asyncio.get_running_loop().time()
        for hold in holds:
            hold.given_back_s = now_s

    def come_out(self, holds: Sequence[Hold]) -> None:
        """They are acknowledged, as far as the consumer is concerned."""
        for hold in holds:
            self._out[hold.origin, hold.value] = None

    def finish(self, holds: Sequence[Hold]) -> None:
        """Their acknowledgement is permanent: the broker said so."""
        for hold in holds:
            self.note("finished", *hold.place)
            if hold.is_unique:
                self._finish(*hold.place)

    def _finish(self, queue: str, value: str) -> None:
        self.finished += 1
        self._finished[queue, value] = None

    # --- the end

    def check_final(self) -> None:
        """All queues are drained."""
        lost = [
            (queue, value)
            for value, sent in self.sent.items()
            if sent.is_confirmed
            for queue in sent.queues
            if (queue, value) not in self._out
        ]
        if lost:
            raise Violation(f"{len(lost)} were confirmed and never came out: {lost[:5]}")
