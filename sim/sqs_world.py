"""A node in trouble, and clients of SQS: what is hidden stays hidden, what is deleted is gone.

Senders send to a standard queue with a queue for dead letters, and to a FIFO queue, there again
with the same deduplication id until it is answered. Receivers hide messages for a while, for
longer or shorter than they said at first, delete them in time, too late or not at all, and leave in
the middle. The broker crashes, its power fails, links break, and its disk fails. At the end
everything is healed, received once and checked (`sqs_history`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from entrepot.broker.queue.identities import Identities
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.receipts import Receipts
from entrepot.config import Config, Ports, Security
from entrepot.log.policy import Durability
from sim.history import Violation
from sim.loop import SimLoop
from sim.sqs_client import Gone, Refused, SqsClient
from sim.sqs_history import Hold, Place, SqsHistory
from sim.trouble import HOST, Trouble

PORT = 9324
URL = f"http://{HOST}:{PORT}/000000000000/"
WORK, DEAD, FIFO = "work", "work-dead", "work.fifo"
SENDERS, RECEIVERS = 3, 5
GROUPS = ("a", "b", "c")
_DRAIN_S = 300.0
_LIFE_S_MAX = 8.0  # Longer than messages are hidden.
_CONFIG = Config(
    host=HOST,
    ports=Ports(kafka=None, amqp=None, mqtt=None, stomp=None, http=None, sqs=PORT),
    security=Security(insecure=True),
)


class Result(NamedTuple):
    sent: int
    deliveries: int
    deleted: int
    crashes: int
    faults: int
    trace: str


class SqsWorld(Trouble):
    def __init__(self, loop: SimLoop, *, seconds: float, **options: Any) -> None:
        clients = [f"s{number}" for number in range(SENDERS)]
        clients += [f"r{number}" for number in range(RECEIVERS)]
        super().__init__(loop, _CONFIG, clients, life_s_max=_LIFE_S_MAX, **options)
        self._seconds = seconds
        self._names = clients
        self._number = 0
        self._earlier: dict[str, list[str]] = {}  # By name: those before it in its group.
        self.sqs = SqsHistory()

    async def run(self) -> Result:
        await self._start_whole()
        await self._declare()
        nemeses = [self._crash_now_and_then(), self._break_links()]
        if self._loop.seed % 3 == 1:  # It stops queues until the next start: not in every world.
            nemeses.append(self._fail_the_disk())
        works = [self._live(name) for name in self._names]
        tasks = [self._loop.create_task(work) for work in [*nemeses, *works]]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._heal()
        self.sqs.check_end(await self._drain())
        history = self.sqs
        counts = len(history.sent), history.deliveries, len(history.deleted)
        return Result(*counts, self.crashes, self.faults, self.history.trace)

    def _note(self, *event: object) -> None:
        self.history.note(self._loop.time(), *event)

    async def _declare(self) -> None:
        client = await self._open("judge")
        await client.ask("CreateQueue", QueueName=DEAD)
        redrive = f'{{"deadLetterTargetArn":"arn:aws:sqs:x:0:{DEAD}","maxReceiveCount":4}}'
        await client.ask("CreateQueue", QueueName=WORK, Attributes={"RedrivePolicy": redrive})
        await client.ask("CreateQueue", QueueName=FIFO, Attributes={"FifoQueue": "true"})
        client.leave()

    # --- clients

    async def _open(self, name: str) -> SqsClient:
        return await SqsClient.open(self._network.door(name), HOST, PORT)

    async def _live(self, name: str) -> None:
        """Connect and work, again and again; a lost connection is ordinary."""
        random = self._loop.random(name)
        ordered = name == "s0"  # One sender for all groups: their order is that of its requests.
        work = self._receive if name[0] == "r" else self._send_fifo if ordered else self._send
        while self._goes_on():
            try:
                client = await self._open(name)
                while self._goes_on() and random.random() < 0.95:
                    await work(client, random)
                client.leave()
            except Gone as gone:
                self._note(name, str(gone))
            await asyncio.sleep(random.uniform(0.01, 0.2))

    def _new_name(self, start: str) -> str:
        self._number += 1
        return f"{start} {self._number}"

    async def _send(self, client: SqsClient, random: Random) -> None:
        names = [self._new_name("m") for _ in range(random.choice((1, 1, 3, 10)))]
        delay = {"DelaySeconds": 1} if random.random() < 0.1 else {}
        if len(names) == 1:
            await client.ask("SendMessage", QueueUrl=URL + WORK, MessageBody=names[0], **delay)
        else:
            entries = [{"Id": each.replace(" ", "-"), "MessageBody": each} for each in names]
            answer = await client.ask("SendMessageBatch", QueueUrl=URL + WORK, Entries=entries)
            good = [each["Id"].replace("-", " ") for each in answer["Successful"]]
            names = [each for each in names if each in good]
        self.sqs.sent |= dict.fromkeys(names)
        await asyncio.sleep(random.uniform(0, 0.2))

    async def _send_fifo(self, client: SqsClient, random: Random) -> None:
        """Send the next message of a group, again until it is answered: so its order is known."""
        group = random.choice(GROUPS)
        before = self._earlier.setdefault(group, [])
        if not before or before[-1] in self.sqs.sent:
            name = self._new_name(group)
            self._earlier[name] = [*before]
            before.append(name)
        name = before[-1]
        number = name.partition(" ")[2]
        asked = {"MessageGroupId": group, "MessageDeduplicationId": number}
        await client.ask("SendMessage", QueueUrl=URL + FIFO, MessageBody=name, **asked)
        if random.random() < 0.2:  # As if the answer had not come.
            await client.ask("SendMessage", QueueUrl=URL + FIFO, MessageBody=name, **asked)
        self.sqs.sent[name] = None
        await asyncio.sleep(random.uniform(0, 0.2))

    async def _receive(self, client: SqsClient, random: Random) -> None:
        queue = random.choice((WORK, WORK, FIFO, FIFO, DEAD))
        hidden_s, wait_s = random.randint(1, 3), random.choice((0, 0, 1, 2))
        holds = await self._received(client, queue, hidden_s, wait_s, random.randint(1, 10))
        if not holds:
            await asyncio.sleep(random.uniform(0, 0.2))
        for hold in holds:
            await asyncio.sleep(random.choice((0, 0, 0, 0.3, 2 * hidden_s)) * random.random())
            await self._decide(client, queue, hold, random)

    async def _received(
        self, client: SqsClient, queue: str, hidden_s: int, wait_s: int, count: int
    ) -> list[Hold]:
        asked_s, life = self._loop.time(), self.crashes
        answer = await client.ask(
            "ReceiveMessage",
            QueueUrl=URL + queue,
            MaxNumberOfMessages=count,
            VisibilityTimeout=hidden_s,
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["All"],
        )
        came_s, until_s = self._loop.time(), asked_s + hidden_s
        holds = [
            Hold(queue, each["Body"], each["ReceiptHandle"], asked_s, came_s, until_s, life)
            for each in answer.get("Messages", ())
        ]
        self._note(queue, [hold.name for hold in holds])
        if life == self.crashes:
            self.sqs.receive(holds)
            if queue == FIFO:
                self.sqs.check_order(holds, self._earlier)
                for hold, each in zip(holds, answer.get("Messages", ()), strict=True):
                    self.sqs.check_sequence(hold.name, each["Attributes"]["SequenceNumber"])
            return holds
        return []  # The answer is of a life that is over: these are received again.

    async def _decide(self, client: SqsClient, queue: str, hold: Hold, random: Random) -> None:
        """Delete a message, hide it for another time, or do nothing more with it."""
        handle = {"QueueUrl": URL + queue, "ReceiptHandle": hold.handle}
        chance = random.random()
        if chance < 0.6:
            self.sqs.begin_delete(hold)
            try:
                await client.ask("DeleteMessage", **handle)
            except Refused:  # In a FIFO queue: it was too late.
                self.sqs.refused(hold, hold.until_s, self._loop.time(), self.crashes)
                return
            self.sqs.end_delete(hold, self._loop.time(), self.crashes)
        elif chance < 0.8:
            hidden_s = random.randint(0, 3)
            until_s, before_s = self._loop.time() + hidden_s, hold.until_s
            self.sqs.change(hold, until_s)
            try:
                await client.ask("ChangeMessageVisibility", VisibilityTimeout=hidden_s, **handle)
            except Refused:
                self.sqs.refused(hold, before_s, self._loop.time(), self.crashes)
                return
            self.sqs.changed(hold, until_s)

    # --- the end

    async def _drain(self) -> dict[Place, int]:
        """Receive and delete everything, and return how often each message came."""
        left: Counter[Place] = Counter()
        client = await self._open("judge")
        deadline = self._loop.time() + _DRAIN_S
        while not all(self._is_empty(queue) for queue in (WORK, DEAD, FIFO)):
            if self._loop.time() > deadline:
                raise Violation("the queues do not become empty")
            for queue in (WORK, DEAD, FIFO):
                for hold in await self._received(client, queue, 10, 1, 10):
                    left[hold.place] += 1
                    self.sqs.begin_delete(hold)
                    handle = {"QueueUrl": URL + queue, "ReceiptHandle": hold.handle}
                    await client.ask("DeleteMessage", **handle)
        return left

    def _is_empty(self, name: str) -> bool:
        assert self._server is not None
        queue = self._server.broker.vhosts.default.queues.get(name)
        assert isinstance(queue, Queue), f"{name} is gone"
        account = queue.account()
        if account.wrong:
            raise Violation(f"{name}: {'; '.join(account.wrong)}")
        return not (queue.ready_count or queue.unacked_count or queue.deferred_count)


def _shorter(set_time: Callable[..., None]) -> Callable[..., None]:
    def shorter(receipts: Receipts, receipt: Any, until_ms: int) -> None:
        set_time(receipts, receipt, receipt.received_ms + (until_ms - receipt.received_ms) // 4)

    return shorter


def _settle_any(receipts: Receipts, name: str) -> bool:
    (lane, offset), _ = receipts._parse(name)
    held = receipts._held.pop((lane, offset), None)
    if held is not None:
        receipts._queue.settle(receipts, lane, range(offset, offset + 1))
    return held is not None


def _at_once(queue: Queue, waiter: Callable[[Exception | None], None]) -> None:
    waiter(None)


def _know_nothing(identities: Identities) -> Any:
    yield
    identities._is_complete = True
    waiting, identities._waiting = identities._waiting, []
    for each in waiting:
        each(None)


# Mistakes that must be found: what is replaced, and by what.
BUGS: dict[str, tuple[type, str, Any]] = {
    "short": (Receipts, "_set_time", _shorter(Receipts._set_time)),
    "stale": (Receipts, "settle", _settle_any),
    "unsynced": (Queue, "when_settlements_committed", _at_once),
    "forgetful": (Identities, "_read_known", _know_nothing),
}


def sqs_world(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`. Bugs: "short", messages are hidden for a shorter time; "stale", any receipt
    handle deletes; "unsynced", a delete is answered before it is on disk; "forgetful", ids of a
    FIFO queue are forgotten by a crash."""

    async def main(loop: SimLoop) -> Result:
        options = {"sync_is_noop": sync_is_noop, "durability": durability}
        world = SqsWorld(loop, seconds=seconds, **options)
        if bug is None:
            return await world.run()
        with patch.object(*BUGS[bug]):
            return await world.run()

    return main
