"""What publishers and consumers of queues do while their connection lasts.

Publishers send messages to all kinds of queues in all kinds of ways, and listen for their
confirms. Consumers acknowledge, reject and hand back what they get in any order, in
transactions or without, hold some of it for long, and make mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from entrepot.wire.amqp.errors import ReplyCode
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, tx
from entrepot.wire.amqp.properties import PERSISTENT, BasicProperties, PropertyView, encode
from sim.amqp_client import AmqpClient
from sim.history import Violation
from sim.queue_history import Hold, QueueHistory, Sent

DIRECT, FAN, LATER, DEAD = "direct", "fan", "later", "dead"  # Exchanges.
GRAVES = "graves"  # The queue of dead letters: nobody rejects what is in there.
DELIVERY_LIMIT = 2
PRIORITY_MAX = 2
# Names of queues, and what they are declared with.
QUEUES: dict[str, dict[str, object]] = {
    "work": {"x-dead-letter-exchange": DEAD, "x-retention-ms": 0},
    "other": {"x-retention-bytes": 0, "x-single-active-consumer": True},
    "short": {"x-message-ttl": 150, "x-dead-letter-exchange": DEAD},
    "limited": {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": DEAD,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    },
    "urgent": {"x-max-priority": PRIORITY_MAX, "x-dead-letter-exchange": DEAD},
    "capped": {
        "x-max-length": 4,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "short",
    },
    "heavy": {"x-max-length-bytes": 6_000, "x-dead-letter-exchange": DEAD},
    "full": {"x-max-length": 6, "x-overflow": "reject-publish"},
    GRAVES: {},
}
_DROPS_REJECTED = ("other", "full", GRAVES)
_DIRECT = ("work", "short", "limited", "urgent", "capped", "heavy", "full")
_FANNED: tuple[str, ...] = ("work", "other")


class Letter(NamedTuple):
    method: basic.Publish
    properties: bytes
    body: bytes
    value: str
    sent: Sent


class Writer:
    """Makes messages: of one publisher, on one connection."""

    def __init__(self, name: str, random: Random, history: QueueHistory) -> None:
        self._name = name
        self._random = random
        self._history = history
        self._number = 0

    def write(self, *, may_wait: bool = True) -> Letter:
        """A message for somewhere; its publisher may wait until it is consumed."""
        random = self._random
        self._number += 1
        value = f"{self._name}:{self._number}"
        roll = random.random()
        headers: dict[str, object] = {}
        priority = expiration = None
        if roll < 0.15:
            exchange, key, queues = FAN, "any", _FANNED
        elif roll < 0.3:
            key = random.choice(_FANNED)
            exchange, queues = LATER, (key,)
            headers["x-delay"] = random.choice((1, 50, 400, 1_500))
        else:
            key = random.choice(("work", *_DIRECT))
            exchange, queues = random.choice((DIRECT, "")), (key,)
            if key == "urgent":
                priority = random.randint(0, PRIORITY_MAX)
        if may_wait and "work" in queues and random.random() < 0.1:
            headers["x-confirm"] = "consumed"
        elif key == "work" and random.random() < 0.1:
            expiration = str(random.choice((0, 40, 300)))
        properties = BasicProperties(
            headers=headers or None,
            delivery_mode=PERSISTENT,
            priority=priority,
            expiration=expiration,
            message_id=value,
        )
        padding = random.choice((0, 10, 10, 300, 300, 5_000))
        sent = Sent(
            queues,
            value.encode() + bytes(padding),
            self._name,
            self._number,
            priority or 0,
            is_delayed=exchange == LATER,
            until_consumed="x-confirm" in headers,
        )
        self._history.publish(value, sent)
        return Letter(basic.Publish(0, exchange, key), encode(properties), sent.body, value, sent)

    def write_to_nowhere(self) -> Letter:
        """A message that must come back."""
        self._number += 1
        value = f"{self._name}:{self._number}"
        sent = Sent((), value.encode(), self._name, self._number)
        self._history.publish(value, sent)
        method = basic.Publish(0, DIRECT, "nowhere", mandatory=True)
        return Letter(method, encode(BasicProperties(message_id=value)), sent.body, value, sent)


class Publishing:
    """A connection with publisher confirms."""

    def __init__(self, history: QueueHistory) -> None:
        self._history = history
        self._number = 0
        self._unconfirmed: dict[int, Letter] = {}  # By their numbers.
        self._unreturned: dict[str, None] = {}

    @property
    def is_waiting(self) -> bool:
        """For something that does not depend on consumers."""
        return any(not letter.sent.until_consumed for letter in self._unconfirmed.values())

    def publish(self, client: AmqpClient, letters: Sequence[Letter]) -> None:
        """Raises Gone."""
        client.publish([letter[:3] for letter in letters])
        for letter in letters:
            self._number += 1
            self._unconfirmed[self._number] = letter
            if letter.method.mandatory:
                self._unreturned[letter.value] = None

    def heard(self, method: Method, properties: bytes, body: bytes) -> None:
        match method:
            case basic.Ack(tag, multiple):
                for number in self._numbers(tag, multiple):
                    letter = self._unconfirmed.pop(number)
                    if letter.value in self._unreturned:
                        raise Violation(f"{letter.value} was not returned before it is confirmed")
                    self._history.confirm(letter.value)
            case basic.Nack(tag, multiple, _):
                for number in self._numbers(tag, multiple):
                    del self._unconfirmed[number]
            case basic.Return():
                value = str(PropertyView(properties).get("message_id"))
                if value not in self._unreturned or body != self._history.sent[value].body:
                    raise Violation(f"{value!r} is returned")
                del self._unreturned[value]
            case _:
                raise Violation(f"a publisher hears {method}")

    def _numbers(self, tag: int, multiple: bool) -> list[int]:
        numbers = [each for each in self._unconfirmed if each <= tag] if multiple else [tag]
        if tag not in self._unconfirmed:
            raise Violation(f"a confirm of {tag}, which is not on its way")
        return numbers


class Consuming:
    """A connection with a consumer of one queue, in a transaction or not."""

    def __init__(
        self, queue: str, tag: str, random: Random, history: QueueHistory, writer: Writer | None
    ) -> None:
        """With a writer, everything is done in transactions."""
        self.queue = queue
        self.tag = tag
        self.client: AmqpClient | None = None
        self._random = random
        self._history = history
        self._writer = writer
        self._holds: dict[int, Hold] = {}  # By delivery tag, those of which nothing was said.
        # In the open transaction: what was acknowledged, what was rejected or handed back (and
        # what only the latter), what was published.
        self._acked: dict[int, Hold] = {}
        self._rejected: dict[int, Hold] = {}
        self._requeued: dict[int, Hold] = {}
        self._published: list[Letter] = []
        self._is_recovering = False  # What comes was taken back already, or will be.

    # --- what is heard

    def heard(self, method: Method, properties: bytes, body: bytes) -> None:
        match method:
            case basic.Deliver(consumer_tag, tag, redelivered, exchange, key):
                if consumer_tag != self.tag:
                    raise Violation(f"{self.tag} gets what is for {consumer_tag}")
            case basic.GetOk(tag, redelivered, exchange, key, _):
                pass
            case basic.RecoverOk():
                self._is_recovering = False
                self._holds.clear()
                return
            case _:
                raise Violation(f"a consumer hears {method}")
        if self._is_recovering:
            return
        assert self.client is not None
        if tag in self._holds or tag in self._acked or tag in self._rejected:
            raise Violation(f"tag {tag} twice")
        view = PropertyView(properties)
        value = str(view.get("message_id"))
        death = view.header("x-first-death-queue")
        origin = self.queue if death is None else str(death)
        count = view.header("x-delivery-count")
        self._holds[tag] = self._history.deliver(
            self.client,
            self.queue,
            origin,
            value,
            redelivered=redelivered,
            count=count if isinstance(count, int) else None,
        )
        sent = self._history.sent[value]
        is_direct = exchange == "" or exchange in (DIRECT, FAN, LATER)
        if body != sent.body or (death is None and not is_direct):
            raise Violation(f"{value} is not what was published: {exchange} {key} {body!r}")

    # --- what is said

    async def act(self) -> None:
        """Something or nothing. Raises Gone."""
        client, random = self._client, self._random
        if self._writer is not None and random.random() < 0.3:
            await self._end_transaction(self._writer)
        elif not self._holds:
            return
        elif random.random() < 0.02:
            client.make_mistake(basic.Ack(10**6), ReplyCode.PRECONDITION_FAILED)
        elif random.random() < 0.03:
            self._history.give_back([*self._holds.values()])
            self._is_recovering = True
            await client.ask(basic.Recover(requeue=True), basic.RecoverOk)
        else:
            self._answer_some()

    @property
    def _client(self) -> AmqpClient:
        assert self.client is not None
        return self.client

    def _answer_some(self) -> None:
        random = self._random
        tags = list(self._holds)
        tag = random.choice((tags[0], random.choice(tags)))
        multiple = random.random() < 0.3
        chosen = [each for each in tags if each <= tag] if multiple else [tag]
        taken = {each: self._holds.pop(each) for each in chosen}
        roll = random.random()
        if roll < 0.7:
            self._client.say(basic.Ack(tag, multiple))
            self._conclude(taken, is_acked=True)
        elif roll < 0.85:
            self._client.say(basic.Nack(tag, multiple, requeue=True))
            self._conclude(taken, is_acked=False)
            if self._writer is not None:
                self._requeued.update(taken)
        else:
            self._client.say(basic.Nack(tag, multiple, requeue=False))
            self._conclude(taken, is_acked=self.queue in _DROPS_REJECTED)

    def _conclude(self, taken: dict[int, Hold], *, is_acked: bool) -> None:
        if self._writer is not None:
            (self._acked if is_acked else self._rejected).update(taken)
            return
        holds = [*taken.values()]
        self._history.give_back(holds)
        if is_acked:
            self._history.come_out(holds)

    # --- transactions

    async def _end_transaction(self, writer: Writer) -> None:
        random, client, history = self._random, self._client, self._history
        letters = [writer.write(may_wait=False) for _ in range(random.randint(0, 2))]
        client.publish([letter[:3] for letter in letters])
        self._published += letters
        if random.random() < 0.2:
            await client.ask(tx.Rollback(), tx.RollbackOk)
            for letter in self._published:
                history.take_back(letter.value)
            self._published.clear()
            # They are where they were: not acknowledged.
            self._holds = dict(sorted({**self._holds, **self._acked, **self._rejected}.items()))
            self._acked, self._rejected, self._requeued = {}, {}, {}
        else:
            await self.commit()

    async def commit(self) -> None:
        """Raises Gone."""
        acked, rejected = [*self._acked.values()], [*self._rejected.values()]
        requeued, published = [*self._requeued.values()], [*self._published]
        self._acked, self._rejected, self._requeued, self._published = {}, {}, {}, []
        tried = self._history.tried(self._client)
        self._history.give_back([*acked, *rejected])
        self._history.come_out(acked)
        self._client.mistake = ReplyCode.PRECONDITION_FAILED  # A full queue refuses a commit.
        await self._client.ask(tx.Commit(), tx.CommitOk)
        self._client.mistake = None
        self._history.finish(acked)
        if acked or rejected:  # Else nothing of the ledgers was waited for.
            self._history.keep_tried(tried, [hold for hold in requeued if hold.is_unique])
        for letter in published:
            self._history.confirm(letter.value)

    def take_all(self) -> None:
        """Acknowledge all there is. Raises Gone."""
        if self._holds:
            self._client.say(basic.Ack(0, multiple=True))
            taken, self._holds = self._holds, {}
            self._conclude(taken, is_acked=True)
