"""Sends what waits for an HTTP endpoint, and sends again what it did not take.

Each subscription has a queue of its own, and here is its consumer. A message is settled when the
endpoint has answered with a status of 2xx. After another answer, or none, it is sent again as the
delivery policy says; when that is over, or an answer says that repeating is useless, the message
is rejected, and so a dead letter of the queue if the subscription has a redrive policy. How often
a message was tried is not written down: after a restart the count begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count

from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.core.faults import Faults
from entrepot.core.message import Message
from entrepot.core.ports import Clock
from entrepot.gateway.sqs.sns.delivery_policy import DeliveryPolicy
from entrepot.gateway.sqs.sns.notification import HEADERS
from entrepot.gateway.sqs.sns.posting import Headers, PostFailed
from entrepot.wire.sqs import limits as sqs_limits

log = logging.getLogger("entrepot.sns")

_TOO_MANY = 429

Post = Callable[[bytes, Headers, str], Awaitable[int]]  # Body, headers and content type.


class _Held:
    """A message that is being sent, or waits for its time."""

    __slots__ = ("attempts", "lane", "message", "offset")

    def __init__(self, lane: int, offset: int, message: Message) -> None:
        self.lane = lane
        self.offset = offset
        self.message = message
        self.attempts = 0


class Delivery:
    """Implements `Consumer` for the queue of a subscription."""

    auto_ack = False
    is_exclusive = True
    priority = 0

    def __init__(
        self, queue: Queue, policy: DeliveryPolicy, post: Post, clock: Clock, faults: Faults
    ) -> None:
        self.tag = f"endpoint of {queue.name}"
        self._queue = queue
        self.policy = policy
        self._post = post
        self._clock = clock
        self._faults = faults
        self._due: list[tuple[float, int, _Held]] = []  # A heap: when it is sent.
        self._order = count()
        self._held_count = self._held_bytes = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rate_s = 0.0  # When the policy's rate allows the next request.
        self._is_stopped = False

    def start(self) -> None:
        self._queue.add_consumer(self)
        self._queue.dispatch()

    async def stop(self) -> None:
        """Give back what is not settled."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._queue.remove_consumer(self)

    # --- Consumer

    def room(self) -> int:
        if self._is_stopped or self._held_bytes > sqs_limits.ENDPOINT_BYTES_MAX:
            return 0
        return max(0, sqs_limits.ENDPOINT_MESSAGES_MAX - self._held_count)

    def deliver(self, lane: int, taken: Taken) -> None:
        now = self._clock.monotonic()
        for offset, message in zip(taken.offsets, taken.run.messages, strict=True):
            self._held_count += 1
            self._held_bytes += len(message[1])
            heappush(self._due, (now, next(self._order), _Held(lane, offset, message)))
        self._send_due()

    def cancelled(self) -> None:
        log.warning("%s is deleted: nothing more is sent from it", self._queue.name)
        self._is_stopped = True
        self._due.clear()

    def activated(self, is_active: bool) -> None:
        """Do nothing: it is the only consumer."""

    # --- sending

    def _send_due(self) -> None:
        """Send what is due, as many at once as are allowed, and look again when more is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.monotonic()
        while self._due and len(self._tasks) < sqs_limits.ENDPOINT_POSTS_MAX:
            due = max(self._due[0][0], self._rate_s)
            if due > now:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(due - now, self._send_due)
                return
            _, _, held = heappop(self._due)
            if self.policy.rate:
                self._rate_s = max(self._rate_s, now) + 1 / self.policy.rate
            task = asyncio.get_running_loop().create_task(self._send(held))
            self._tasks[task] = None
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._is_stopped = True
            self._faults.caught(self.tag, error)
        if not self._is_stopped:
            self._send_due()

    async def _send(self, held: _Held) -> None:
        envelope, body = held.message
        # Others may publish to the queue, too, and write into headers what they like.
        headers = tuple(
            (name, value)
            for name, value in envelope.properties.headers.items()
            if name in HEADERS
            and isinstance(value, str)
            and value.isascii()
            and value.isprintable()
        )
        try:
            status = await self._post(bytes(body), headers, self.policy.content_type)
            problem = f"status {status}"
        except PostFailed as error:
            status, problem = 0, str(error)
        if self._is_stopped:
            return
        if 200 <= status < 300:
            self._conclude(held, self._queue.settle)
            return
        held.attempts += 1
        delay_s = self.policy.delay_s(held.attempts)
        is_final = 300 <= status < 500 and status != _TOO_MANY
        if is_final or delay_s is None:
            log.warning("%s: a message is given up: %s", self.tag, problem)
            self._conclude(held, self._queue.reject)
            return
        log.info("%s: %s; again in %.0f s", self.tag, problem, delay_s)
        heappush(self._due, (self._clock.monotonic() + delay_s, next(self._order), held))

    def _conclude(self, held: _Held, answer: Callable[[object, int, list[int]], None]) -> None:
        self._held_count -= 1
        self._held_bytes -= len(held.message[1])
        answer(self, held.lane, [held.offset])
        self._queue.dispatch()
