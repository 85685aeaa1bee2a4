"""Requests and their answers, over queues and subjects.

An answer finds its way by two properties of the request: the queue that answers go to, and a
correlation id. The queue is this client's own. It lasts longer than a connection, so an answer
that was on its way when the connection broke still comes; a while after the client has gone, the
broker deletes it.

A request goes to a queue, where one of those who serve it answers, or is published on a subject,
where everybody may answer who listens: whoever asks knows none of them. What comes after its time
is over is late: it is counted, and whoever wants it is told.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.consuming import PREFETCH, Consumption
from entrepot.client.messaging.message import Message, encoded, head_of
from entrepot.client.messaging.session import Channel
from entrepot.client.messaging.subjects import SubjectVerbs, Subscription
from entrepot.core.clock import SystemEntropy
from entrepot.wire.amqp.methods import queue

REPLIES_KEPT_S = 120  # After the client has gone.
LATE_KNOWN_MAX = 10_000  # Requests whose time is over and whose answers are known as late.
FAILED = "x-entrepot-failed"  # A header of an answer that says what went wrong.
_ID_BYTES = 12

logger = logging.getLogger("entrepot.client")

Answer = Callable[[Message], Any]


class RequestFailed(ClientError):
    """Who served the request has failed; the text says how."""


class _Waiting:
    """A request, and the answers that came and nobody has taken."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Message] = asyncio.Queue()


class RequestVerbs(SubjectVerbs):
    """The part of a client that is about requests."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.late_answers = 0  # How many came when their time was over.
        self.on_late_answer: Callable[[Message], object] | None = None
        self._requests: dict[str, _Waiting] = {}  # By correlation id.
        self._over: OrderedDict[str, None] = OrderedDict()  # Correlation ids, the oldest first.
        self._replies: Consumption | None = None
        self._reply_queue = f"replies.{SystemEntropy().token(_ID_BYTES).hex()}"
        self._starting = asyncio.Lock()

    async def request(
        self,
        name: str,
        value: Any,
        timeout_s: float = 30.0,
        *,
        type: str | None = None,
        headers: Mapping[str, Any] | None = None,
        priority: int | None = None,
        expires_s: float | None = None,
    ) -> Message:
        """Put a request into a queue, and return the answer.

        Raises TimeoutError, after which the answer is late, and RequestFailed.
        """
        correlation_id, waiting = await self._begin()
        try:
            async with asyncio.timeout(timeout_s):
                await self.put(
                    name,
                    value,
                    correlation_id=correlation_id,
                    reply_to=self._reply_queue,
                    type=type,
                    headers=headers,
                    priority=priority,
                    expires_s=timeout_s if expires_s is None else expires_s,
                )
                answer = await waiting.answers.get()
        except TimeoutError:
            raise TimeoutError(f"no answer from queue '{name}' in {timeout_s} s") from None
        finally:
            self._end(correlation_id)
        if FAILED in answer.headers:
            raise RequestFailed(str(answer.headers[FAILED]))
        return answer

    async def ask(
        self, subject: str, value: Any, timeout_s: float = 5.0, count: int | None = None
    ) -> AsyncIterator[Message]:
        """Publish a request to whoever listens; yield the answers as they come.

        It ends after so many answers, or when the time is over.
        """
        correlation_id, waiting = await self._begin()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                await self.publish(
                    subject, value, correlation_id=correlation_id, reply_to=self._reply_queue
                )
            deadline = limit.when()
            assert deadline is not None
            seen = 0
            while count is None or seen < count:
                try:
                    async with asyncio.timeout_at(deadline):
                        answer = await waiting.answers.get()
                except TimeoutError:
                    return
                seen += 1
                yield answer
        finally:
            self._end(correlation_id)

    async def serve(self, name: str, answer: Answer, *, prefetch: int = PREFETCH) -> Consumption:
        """Answer the requests of a queue with what a function returns, until `stop` is called.

        A request is settled when its answer is on disk. If the function raises, that is the answer.
        """

        async def handle(message: Message) -> None:
            try:
                found = await _called(answer, message)
                failed = {}
            except Exception as error:
                logger.exception("a request of '%s' was not served", name)
                found, failed = b"", {FAILED: f"{error.__class__.__name__}: {error}"}
            await self._reply(message, found, failed)

        return await self.notify(name, handle, prefetch=prefetch)

    async def answer(self, filter: str, answer: Answer, *, where: Any = None) -> Subscription:
        """Answer what is asked on subjects with what a function returns; None is no answer."""

        async def hear(_: Subscription, message: Message) -> None:
            found = await _called(answer, message)
            if found is not None:
                await self._reply(message, found, {})

        return await self.subscribe(filter, hear, where=where)

    # --- answers

    async def _reply(self, request: Message, value: Any, headers: dict[str, Any]) -> None:
        if request.reply_to is None:
            return
        body, content_type = encoded(value)
        head = head_of(content_type, headers=headers, correlation_id=request.correlation_id)
        # If the queue is gone, so is who asked.
        await self._publish("", request.reply_to, head, [body], is_mandatory=False)

    async def _begin(self) -> tuple[str, _Waiting]:
        async with self._starting:
            if self._replies is None or self._replies.is_over:
                replies = Consumption(self._keeper, self._prepare_replies, self._hear_answer)
                await replies.start()
                self._replies = replies
        correlation_id = SystemEntropy().token(_ID_BYTES).hex()
        waiting = self._requests[correlation_id] = _Waiting()
        return correlation_id, waiting

    def _end(self, correlation_id: str) -> None:
        self._requests.pop(correlation_id, None)
        self._over[correlation_id] = None
        if len(self._over) > LATE_KNOWN_MAX:
            self._over.popitem(last=False)

    async def _prepare_replies(self, channel: Channel) -> str:
        name = self._reply_queue
        arguments = {"x-expires": REPLIES_KEPT_S * 1000}
        declare = queue.Declare(queue=name, durable=True, arguments=arguments)
        await channel.ask(declare, queue.DeclareOk)
        return name

    async def _hear_answer(self, answer: Message) -> None:
        correlation_id = answer.correlation_id or ""
        waiting = self._requests.get(correlation_id)
        if waiting is not None:
            waiting.answers.put_nowait(answer)
        elif correlation_id in self._over:
            self.late_answers += 1
            if self.on_late_answer is not None:
                await _called(self.on_late_answer, answer)


async def _called(function: Callable[[Message], Any], message: Message) -> Any:
    result = function(message)
    return await result if inspect.isawaitable(result) else result
